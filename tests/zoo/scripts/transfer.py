"""Fine-tuning: a trained body, a new head, frozen layers, groups of parameters, hooks, surgery on a state_dict, pruning."""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.nn.utils.prune as prune
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(0)
torch.set_printoptions(precision=3, sci_mode=False)
rng = np.random.default_rng(0)


def numbers(*shape, scale=1.0):
    return torch.from_numpy(rng.standard_normal(shape) * scale).float()


class BasicBlock(nn.Module):
    def __init__(self, planes):
        super().__init__()
        self.conv1 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + x)


class ResNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stem = nn.Sequential(OrderedDict([("conv", nn.Conv2d(3, 8, 3)), ("relu", nn.ReLU())]))
        self.layer1 = nn.Sequential(BasicBlock(8), BasicBlock(8))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layer1(self.stem(x))), 1))


pretrained = ResNet(10)
with torch.no_grad():
    for p in pretrained.parameters():
        if p.dim() > 1:
            p.copy_(numbers(*p.shape, scale=0.2))
    pretrained.stem.conv.bias.zero_()
weights = {"module." + k: v for k, v in pretrained.state_dict().items()}  # as DataParallel names them
model = ResNet(2)
state = OrderedDict((k.removeprefix("module."), v) for k, v in weights.items())
try:
    model.load_state_dict(state)
except RuntimeError as error:
    print(error)
del state["fc.weight"], state["fc.bias"]
result = model.load_state_dict(state, strict=False)
print(result)
print(result.missing_keys, result.unexpected_keys)

for param in model.parameters():
    param.requires_grad = False
for name, param in model.layer1[1].named_parameters():
    param.requires_grad_()
num_ftrs = model.fc.in_features
model.fc = nn.Linear(num_ftrs, 2)
with torch.no_grad():
    model.fc.weight.copy_(numbers(2, num_ftrs, scale=0.3))
    model.fc.bias.zero_()
trainable = [n for n, p in model.named_parameters() if p.requires_grad]
print(trainable)
optimizer = torch.optim.SGD(
    [
        {"params": model.layer1[1].parameters(), "lr": 1e-3},
        {"params": model.fc.parameters(), "weight_decay": 1e-2},
    ],
    lr=1e-2,
    momentum=0.9,
)
scheduler = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lr_lambda=lambda epoch: 0.9)
print(optimizer)

activation, gradients = {}, []


def get_activation(name):
    def hook(module, input, output):
        activation[name] = output.detach()

    return hook


handles = [
    model.layer1.register_forward_hook(get_activation("layer1")),
    model.avgpool.register_forward_hook(get_activation("avgpool")),
    model.fc.register_full_backward_hook(
        lambda m, gi, go: gradients.append((gi[0].shape, go[0].norm().item()))
    ),
    model.fc.register_forward_pre_hook(lambda m, args: (args[0] * 1.0,)),
]
inputs, targets = numbers(12, 3, 8, 8), torch.arange(12) % 2
inputs[targets == 1] += 0.5
model.train()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval()
for epoch in range(4):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"{loss.item():.4f} {[round(g['lr'], 6) for g in optimizer.param_groups]}")
print(
    {k: tuple(v.shape) for k, v in activation.items()},
    len(gradients),
    gradients[0][0],
    f"{gradients[0][1]:.4f}",
)
for handle in handles:
    handle.remove()
print(model.stem.conv.weight.grad, model.fc.bias.grad is not None, len(model.fc._forward_pre_hooks))

extractor = nn.Sequential(*list(model.children())[:-1])
features = extractor(inputs).flatten(1)
print(features.shape, torch.allclose(features, activation["avgpool"].flatten(1)))

prune.l1_unstructured(model.fc, name="weight", amount=0.5)
print([n for n, _ in model.fc.named_parameters()], [n for n, _ in model.fc.named_buffers()])
print(model.fc.weight_mask.sum().item(), list(model.fc._forward_pre_hooks.values())[0].__class__.__name__)
prune.ln_structured(model.stem.conv, "weight", amount=2, n=2, dim=0)
print((model.stem.conv.weight.abs().sum((1, 2, 3)) == 0).sum())
prune.remove(model.fc, "weight")
print(100.0 * float(torch.sum(model.fc.weight == 0)) / model.fc.weight.nelement(), prune.is_pruned(model))
parameters_to_prune = ((model.layer1[0].conv1, "weight"), (model.layer1[0].conv2, "weight"))
prune.global_unstructured(parameters_to_prune, pruning_method=prune.L1Unstructured, amount=0.25)
print(sum(int((m.weight == 0).sum()) for m, _ in parameters_to_prune))


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


layer = nn.Linear(3, 3)
parametrize.register_parametrization(layer, "weight", Symmetric())
print(layer, torch.equal(layer.weight, layer.weight.T), parametrize.is_parametrized(layer))
layer.weight = torch.eye(3)
print(list(layer.state_dict()), layer.weight)
parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
print(layer)
normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 2), name="weight")
print(normed, [tuple(p.shape) for p in normed.parameters()])
old = torch.nn.utils.weight_norm(nn.Linear(4, 2), name="weight")
print(sorted(dict(old.named_parameters())))
orthogonal = torch.nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
print(torch.dist(orthogonal.weight.T @ orthogonal.weight, torch.eye(3)) < 1e-5)
vector = parameters_to_vector(model.fc.parameters())
vector_to_parameters(torch.zeros_like(vector), model.fc.parameters())
print(vector.shape, model.fc.weight.sum().item())
for name, module in model.named_modules():
    if isinstance(module, nn.Conv2d):
        print(name, module)
