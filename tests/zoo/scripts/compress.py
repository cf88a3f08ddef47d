"""Smaller and tamer networks: pruning, weight and spectral norms, parametrizations, distillation, mixup, warm restarts."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.nn.utils.prune as prune
from torch.nn.utils import (
    parametrizations,
    remove_spectral_norm,
    remove_weight_norm,
    spectral_norm,
    weight_norm,
)
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    MultiplicativeLR,
    PolynomialLR,
)

rng = np.random.RandomState(13)
torch.set_printoptions(precision=4, sci_mode=False)


def fill(model, scale=0.5):
    for p in model.parameters():
        with torch.no_grad():
            p.copy_(torch.from_numpy(rng.randn(*p.shape) * scale))
    return model


X = torch.from_numpy(rng.randn(96, 8).astype("f"))
labels = (X[:, :3].sum(1) > 0).long() + (X[:, 3] > 1).long()
mlp = lambda width: nn.Sequential(nn.Linear(8, width), nn.Hardtanh(), nn.Linear(width, 3))  # noqa: E731

# A large network teaches a small one, by soft labels and mixed pictures.
teacher, student = fill(mlp(32), 0.3), fill(mlp(6), 0.3)


def mixup_data(x, y, alpha=0.4):
    lam = rng.beta(alpha, alpha)
    index = torch.from_numpy(rng.permutation(len(x)))
    return lam * x + (1 - lam) * x[index, :], y, y[index], lam


def kd_loss(logits, target, soft, T=3.0, alpha=0.7):
    kl = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(logits / T, dim=1), F.softmax(soft / T, dim=1))
    return kl * (alpha * T * T) + F.cross_entropy(logits, target) * (1.0 - alpha)


optimizer = torch.optim.SGD(teacher.parameters(), lr=0.2, momentum=0.9)
scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=5, T_mult=2, eta_min=0.01)
rates = []
for epoch in range(20):
    x, a, b, lam = mixup_data(X, labels)
    out = teacher(x)
    loss = lam * F.cross_entropy(out, a, label_smoothing=0.1) + (1 - lam) * F.cross_entropy(
        out, b, label_smoothing=0.1
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(epoch + 0.5)
    rates.append(round(scheduler.get_last_lr()[0], 4))
    if epoch < 3:
        print(f"epoch {epoch} loss {loss.item():.4f} lam {lam:.3f}")
print(rates[3:8])
optimizer = torch.optim.Rprop(student.parameters(), lr=0.01)
for epoch in range(25):
    with torch.no_grad():
        soft = teacher(X)
    loss = kd_loss(student(X), labels, soft)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch < 3:
        print(f"distilled {loss.item():.4f}")
agree = (student(X).argmax(1) == soft.argmax(1)).float().mean()
print("agrees", bool(agree > 0.7))

# Pruning.
model = copy.deepcopy(teacher)
prune.l1_unstructured(model[0], name="weight", amount=0.3)
prune.random_unstructured(model[0], name="bias", amount=4)
prune.ln_structured(model[2], name="weight", amount=0.5, n=2, dim=1)
print(
    sorted(dict(model[0].named_parameters())), sorted(dict(model[0].named_buffers())), prune.is_pruned(model)
)
print(
    "zeros",
    int((model[0].weight == 0).sum()),
    int((model[0].bias == 0).sum()),
    int((model[2].weight.abs().sum(0) == 0).sum()),
)
prune.l1_unstructured(model[0], name="weight", amount=0.5)
print(type(list(model[0]._forward_pre_hooks.values())[0]).__name__, int((model[0].weight_mask == 0).sum()))
prune.remove(model[0], "weight")
print(
    "weight_orig" in dict(model[0].named_parameters()), [k for k in model.state_dict() if k.startswith("0")]
)


class EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


EveryOther.apply(model[2], "bias")
print(model[2].bias_mask.tolist())
whole = copy.deepcopy(teacher)
prune.global_unstructured(
    [(whole[0], "weight"), (whole[2], "weight")], pruning_method=prune.L1Unstructured, amount=0.6
)
left = [float((m.weight != 0).float().mean()) for m in (whole[0], whole[2])]
print("left", [round(v, 3) for v in left])
try:
    prune.l1_unstructured(whole[0], "weight", amount=1.5)
except ValueError as error:
    print("refused:", error)
fixed = prune.custom_from_mask(nn.Linear(2, 2), "weight", torch.eye(2))
print((fixed.weight != 0).tolist())

# Norms of weights, old and new.
layer = fill(nn.Linear(4, 3))
before = layer.weight.detach().clone()
layer = weight_norm(layer, dim=0)
print(
    sorted(n for n, _ in layer.named_parameters()),
    torch.allclose(layer.weight, before, atol=1e-6),
    layer.weight_g.flatten(),
)
remove_weight_norm(layer)
print(sorted(n for n, _ in layer.named_parameters()))
conv = parametrizations.weight_norm(fill(nn.Conv1d(2, 3, 3)), "weight", dim=None)
print([n for n, _ in conv.named_parameters()], conv.parametrizations.weight.original0.shape)
torch.manual_seed(0)
sn = spectral_norm(fill(nn.Linear(5, 4)), n_power_iterations=30)
sn(torch.ones(1, 5))
print("sigma", f"{torch.linalg.matrix_norm(sn.weight, 2).item():.3f}", "weight_u" in dict(sn.named_buffers()))
remove_spectral_norm(sn)
new = parametrizations.spectral_norm(fill(nn.Linear(5, 4)), n_power_iterations=30)
new.train()
_ = [new(torch.ones(1, 5)) for _ in range(3)]
print(
    "sigma",
    f"{torch.linalg.svdvals(new.weight)[0].item():.3f}",
    parametrize.is_parametrized(new, "weight"),
    new,
)
ortho = parametrizations.orthogonal(fill(nn.Linear(4, 4)), orthogonal_map="cayley")
Q = ortho.weight
print("orthogonal", torch.allclose(Q @ Q.T, torch.eye(4), atol=1e-5))


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


class MatrixExponential(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X - X.T)


layer = fill(nn.Linear(3, 3), 0.2)
parametrize.register_parametrization(layer, "weight", Symmetric())
print(torch.equal(layer.weight, layer.weight.T), type(layer).__name__, layer.parametrizations)
layer.weight = torch.arange(9.0).view(3, 3)
print(layer.weight)
with parametrize.cached():
    print(layer.weight is layer.weight)
parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
print(type(layer).__name__, layer.weight.diagonal())
rotation = fill(nn.Linear(3, 3), 0.4)
parametrize.register_parametrization(rotation, "weight", MatrixExponential())
rotation.weight.sum().backward()
print(
    f"{torch.det(rotation.weight).item():.4f} {rotation.parametrizations.weight.original.grad.norm().item():.4f}"
)
try:
    parametrize.register_parametrization(rotation, "nothing", Symmetric())
except ValueError as error:
    print("refused:", str(error)[:60])

# Fusion, rates that move.
bn = fill(nn.BatchNorm2d(4), 0.3).eval()
bn.running_var.fill_(0.5)
conv = fill(nn.Conv2d(2, 4, 3)).eval()
fused = nn.utils.fusion.fuse_conv_bn_eval(conv, bn)
image = torch.from_numpy(rng.randn(1, 2, 6, 6).astype("f"))
print("fused", torch.allclose(fused(image), bn(conv(image)), atol=1e-5))
p = [nn.Parameter(torch.zeros(1))]
for make in (
    lambda o: CyclicLR(o, 0.1, 0.5, step_size_up=2, mode="triangular2"),
    lambda o: MultiplicativeLR(o, lambda e: 0.9),
    lambda o: PolynomialLR(o, total_iters=4, power=2.0),
    lambda o: LambdaLR(o, [lambda e: 1 / (e + 1)]),
):
    o = torch.optim.SGD(p, lr=0.4, momentum=0.9)
    s = make(o)
    seen = []
    for _ in range(5):
        o.step()
        s.step()
        seen.append(round(s.get_last_lr()[0], 5))
    print(type(s).__name__, seen)
