"""What a network looks at: hooks of every kind, Grad-CAM, guided gradients, integrated ones, occlusion, features by name."""

from collections import OrderedDict
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.module import register_module_forward_hook

rng = np.random.RandomState(8)


class SmallNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv1", nn.Conv2d(1, 6, 3, padding=1)),
                    ("relu1", nn.ReLU()),
                    ("pool1", nn.AvgPool2d(2)),
                    ("conv2", nn.Conv2d(6, 8, 3, padding=1, groups=2)),
                    ("relu2", nn.ReLU()),
                ]
            )
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.pool(self.features(x)).flatten(1))


net = SmallNet().eval()
for p in net.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype(np.float32) * (0.4 if p.dim() > 1 else 0.05))
x = torch.from_numpy(rng.rand(2, 1, 12, 12).astype(np.float32)).requires_grad_()
torch.set_printoptions(precision=3, sci_mode=False)

# Hooks see what passes, in the order in which they were registered.
order, shapes = [], {}
handles = []
for name, module in net.named_modules():
    if not list(module.children()):
        handles.append(module.register_forward_pre_hook(lambda m, i, name=name: order.append("pre " + name)))
        handles.append(
            module.register_forward_hook(lambda m, i, o, name=name: shapes.update({name: tuple(o.shape)}))
        )
handles.append(
    net.head.register_full_backward_hook(lambda m, gi, go: order.append(f"back {tuple(gi[0].shape)}"))
)
handles.append(
    net.head.register_full_backward_pre_hook(lambda m, go: order.append(f"pre back {tuple(go[0].shape)}"))
)
handles.append(
    net.register_forward_hook(lambda m, a, k, o: order.append(f"end {sorted(k)}"), with_kwargs=True)
)
handles.append(net.register_forward_pre_hook(lambda m, a, k: (a + (k["x"],), {}), with_kwargs=True))
handles.append(net.head.register_forward_hook(lambda m, i, o: order.append("first"), prepend=True))
net(x=x).sum().backward()
print(order)
print(shapes)
for h in handles:
    h.remove()
count = len(order)
net(x)
print("removed", len(order) == count, len(net.head._forward_hooks), len(net.head._backward_hooks))
every = register_module_forward_hook(lambda m, i, o: order.append(type(m).__name__))
net(x)
every.remove()
print(order[count:])
changed = net.features.relu1.register_forward_hook(lambda m, i, o: o.clamp(max=0.1))
print("changed", bool((net.features[:2](x).max() <= 0.1).item()))
changed.remove()
try:
    with torch.no_grad():
        bad = net.head.register_forward_pre_hook(lambda m, i: 1 / 0)
        net(x)
except ZeroDivisionError as error:
    print("raised", error)
bad.remove()


class GradCAM:
    def __init__(self, model, layer):
        self.model, self.kept = model, {}
        layer.register_forward_hook(self.keep)

    def keep(self, module, inputs, output):
        self.kept["activation"] = output.detach()
        if output.requires_grad:
            output.register_hook(partial(self.kept.__setitem__, "gradient"))

    def __call__(self, x, index=None):
        logits = self.model(x)
        index = logits.argmax(dim=1) if index is None else index
        self.model.zero_grad()
        logits.gather(1, index[:, None]).sum().backward(retain_graph=True)
        weights = self.kept["gradient"].mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.kept["activation"]).sum(1, keepdim=True))
        cam = F.interpolate(cam, x.shape[2:], mode="bilinear", align_corners=False)
        low, high = cam.flatten(1).min(1).values, cam.flatten(1).max(1).values
        return (cam - low.view(-1, 1, 1, 1)) / (high - low + 1e-8).view(-1, 1, 1, 1), index


cam, index = GradCAM(net, net.features.conv2)(x)
print("cam", tuple(cam.shape), index.tolist(), cam[0, 0, ::4, ::4])


def guided(module, grad_input, grad_output):
    return (grad_input[0].clamp(min=0.0),)


held = [m.register_full_backward_hook(guided) for m in net.modules() if isinstance(m, nn.ReLU)]
x.grad = None
net(x)[:, 1].sum().backward()
print("guided", x.grad.norm(), (x.grad >= 0).float().mean())
for h in held:
    h.remove()
x.grad = None
net(x)[:, 1].sum().backward()
print("plain", x.grad.norm(), x.grad.abs().amax(dim=1)[0, :2, :5])


def integrated(x, target, steps=20):
    alphas = torch.linspace(0, 1, steps + 1)[1:].view(-1, 1, 1, 1)
    total = []
    for one in x.detach():
        path = (alphas * one).requires_grad_(True)
        (g,) = torch.autograd.grad(net(path)[:, target].sum(), path)
        total.append(g.mean(0) * one)
    return torch.stack(total)


with torch.no_grad():
    gap = net(x)[:, 1] - net(torch.zeros_like(x))[:, 1]
attributed = integrated(x, 1).flatten(1).sum(1)
print("integrated", bool((attributed - gap).abs().max() < 0.05), attributed)
smooth = torch.stack(
    [torch.autograd.grad(net(y)[:, 1].sum(), y)[0] for y in (x + 0.01 * k for k in range(4))]
).mean(0)
print("smoothed", smooth.std())

with torch.no_grad():
    covered = x.detach().repeat(9, 1, 1, 1, 1)
    for k in range(9):
        covered[k, ..., k // 3 * 4 : k // 3 * 4 + 4, k % 3 * 4 : k % 3 * 4 + 4] = 0
    drop = net(x)[:, 1] - net(covered.flatten(0, 1)).view(9, 2, -1)[..., 1]
print("occlusion", drop[:, 0].view(3, 3))


class IntermediateLayerGetter(nn.ModuleDict):
    def __init__(self, model, return_layers):
        layers, self_layers = OrderedDict(), dict(return_layers)
        for name, module in model.named_children():
            layers[name] = module
            self_layers.pop(name, None)
            if not self_layers:
                break
        super().__init__(layers)
        self.return_layers = return_layers

    def forward(self, x):
        out = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out


getter = IntermediateLayerGetter(net.features, {"relu1": "low", "conv2": "high"})
print({k: tuple(v.shape) for k, v in getter(x).items()}, list(getter))
adversarial = x.detach() + 0.1 * x.grad.sign()
print("adversarial", (net(adversarial)[:, 1] - net(x)[:, 1]).detach())
kept = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
    net(x).sum().backward()
print("saved", len(kept) > 0, net.get_submodule("features.conv2"), net.get_parameter("head.bias").shape)
