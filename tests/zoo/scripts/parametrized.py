"""Parametrizations as in their tutorial: symmetric, skew, rotations by the exponential and by Cayley, ranks, caches, pruning."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

rng = np.random.RandomState(9)
torch.set_printoptions(precision=3, sci_mode=False)


def filled(net):
    for p in net.parameters():
        p.data = torch.from_numpy(rng.randn(*p.shape).astype(np.float32)) * 0.5
    return net


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu()


class Skew(nn.Module):
    def forward(self, X):
        A = X.triu(1)
        return A - A.transpose(-1, -2)

    def right_inverse(self, A):
        return A.triu(1)


class MatrixExponential(nn.Module):
    def forward(self, X):
        return torch.matrix_exp(X)


class CayleyMap(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("Id", torch.eye(n))

    def forward(self, X):
        return torch.linalg.solve(self.Id - X, self.Id + X)

    def right_inverse(self, A):
        return torch.linalg.solve(A + self.Id, A - self.Id)


layer = filled(nn.Linear(3, 3))
parametrize.register_parametrization(layer, "weight", Symmetric())
print(torch.allclose(layer.weight, layer.weight.T), layer)
print(
    [n for n, _ in layer.named_parameters()],
    type(layer).__name__,
    parametrize.is_parametrized(layer, "weight"),
)
A = torch.from_numpy(rng.rand(3, 3).astype(np.float32))
A = A + A.T
layer.weight = A
print(torch.allclose(layer.weight, A), layer.parametrizations.weight.original)
cnn = filled(nn.Conv2d(1, 2, 2))
parametrize.register_parametrization(cnn, "weight", Symmetric())
print(torch.allclose(cnn.weight, cnn.weight.transpose(2, 3)))

rotation = filled(nn.Linear(3, 3))
parametrize.register_parametrization(rotation, "weight", Skew())
parametrize.register_parametrization(rotation, "weight", MatrixExponential())
X = rotation.weight
print(torch.dist(X.T @ X, torch.eye(3)) < 1e-5, round(torch.linalg.det(X).item(), 3), rotation.weight)
optimizer = torch.optim.SGD(rotation.parameters(), lr=0.1)
goal = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
for step in range(30):
    loss = (rotation.weight - goal).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 3))
cayley = filled(nn.Linear(3, 3))
parametrize.register_parametrization(cayley, "weight", Skew())
parametrize.register_parametrization(cayley, "weight", CayleyMap(3))
Y = torch.from_numpy(np.linalg.qr(rng.rand(3, 3))[0].astype(np.float32))
Y = Y * torch.linalg.det(Y).sign()
cayley.weight = Y
print(torch.allclose(cayley.weight, Y, atol=1e-4), list(cayley.state_dict()))

with parametrize.cached():
    print(cayley.weight is cayley.weight)
print(cayley.weight is cayley.weight)


class RankOne(nn.Module):
    def forward(self, x, y):
        return x.unsqueeze(-1) @ y.unsqueeze(-2)

    def right_inverse(self, Z):
        U, S, Vh = torch.linalg.svd(Z, full_matrices=False)
        s0_sqrt = S[0].sqrt().unsqueeze(-1)
        return U[..., :, 0] * s0_sqrt, Vh[..., 0, :] * s0_sqrt


low = filled(nn.Linear(4, 3))
parametrize.register_parametrization(low, "weight", RankOne())
print(torch.linalg.matrix_rank(low.weight).item(), [tuple(p.shape) for p in low.parameters()])
parametrize.remove_parametrizations(rotation, "weight", leave_parametrized=True)
print(
    type(rotation),
    torch.dist(rotation.weight.T @ rotation.weight, torch.eye(3)) < 1e-5,
    list(rotation.state_dict()),
)
parametrize.remove_parametrizations(low, "weight", leave_parametrized=True)
print(low.weight.shape)
try:
    parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Linear(2, 3))
except ValueError as e:
    print(str(e)[:60])
o = orthogonal(filled(nn.Linear(4, 2)))
print(
    torch.allclose(o.weight @ o.weight.T, torch.eye(2), atol=1e-5),
    orthogonal(filled(nn.Linear(3, 3)), orthogonal_map="cayley").weight.det().round(),
)
w = weight_norm(filled(nn.Linear(3, 2)), dim=0)
print(
    w.parametrizations.weight.original0.flatten(),
    torch.allclose(w.weight.norm(dim=1), w.parametrizations.weight.original0.flatten()),
)
s = spectral_norm(filled(nn.Linear(3, 4)), n_power_iterations=30)
print(round(torch.linalg.matrix_norm(s.weight, 2).item(), 3))

# ---- pruning


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 16, 3)
        self.fc1, self.fc2 = nn.Linear(16, 12), nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


model = filled(LeNet())
prune.l1_unstructured(model.conv1, name="bias", amount=3)
prune.ln_structured(model.conv1, name="weight", amount=0.5, n=2, dim=0)
print([n for n, _ in model.conv1.named_parameters()], [n for n, _ in model.conv1.named_buffers()])
print(model.conv1.bias, model.conv1.weight.flatten(1).norm(dim=1), len(model.conv1._forward_pre_hooks))
for hook in model.conv1._forward_pre_hooks.values():
    print(type(hook).__name__, hook._tensor_name)
prune.l1_unstructured(model.conv1, name="weight", amount=0.25)
print(
    (model.conv1.weight == 0).sum().item(),
    [type(h).__name__ for h in model.conv1._forward_pre_hooks.values()],
)
prune.remove(model.conv1, "weight")
print([n for n, _ in model.conv1.named_parameters()])
parameters = ((model.conv2, "weight"), (model.fc1, "weight"), (model.fc2, "weight"))
prune.global_unstructured(parameters, pruning_method=prune.L1Unstructured, amount=0.2)
print([(m.weight == 0).sum().item() for m, _ in parameters], prune.is_pruned(model))


class FooBarPruningMethod(prune.BasePruningMethod):
    """Prunes every other entry."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


FooBarPruningMethod.apply(model.fc1, "bias")
print(model.fc1.bias_mask, model(torch.ones(1, 1, 10, 10)))
prune.custom_from_mask(model.fc2, "bias", torch.tensor([1, 0, 1, 0, 1]))
print(model.fc2.bias)
