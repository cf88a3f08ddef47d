"""Second derivatives at work: Newton, conjugate gradients, Gauss-Newton, natural gradients, forward mode, Laplace's law."""

import math

import numpy as np
import torch
import torch.autograd.forward_ad as fwAD
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_default_dtype(torch.double)
torch.set_printoptions(precision=4, sci_mode=False)
rng = np.random.RandomState(9)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def newton(f, x, steps=20, damping=1e-3):
    path = []
    for _ in range(steps):
        x = x.detach().requires_grad_()
        value = f(x)
        (g,) = torch.autograd.grad(value, x)
        H = hessian(f, x)
        L, info = torch.linalg.cholesky_ex(H + damping * torch.eye(len(x)))
        step = -torch.cholesky_solve(g[:, None], L).squeeze(1) if info == 0 else -g / g.norm()
        t = 1.0
        while f(x + t * step) > value + 1e-4 * t * g.dot(step) and t > 1e-8:
            t *= 0.5
        x = x + t * step
        path.append(value.item())
        if g.norm() < 1e-8:
            break
    return x.detach(), path


x, path = newton(rosenbrock, torch.tensor([-1.2, 1.0, 0.8]))
print("newton", x, ["%.2e" % v for v in path[:4]], len(path) < 20)
H = hessian(rosenbrock, torch.tensor([1.0, 1.0, 1.0]))
print(H, torch.linalg.eigvalsh(H), f"{torch.linalg.cond(H).item():.1f}")


def cg(product, b, tol=1e-10):
    x, r = torch.zeros_like(b), b.clone()
    p, rs = r.clone(), torch.vdot(r, r)
    for k in range(50):
        Ap = product(p)
        alpha = rs / torch.vdot(p, Ap)
        x.add_(p, alpha=alpha)
        r.sub_(p, alpha=alpha)
        x, r = x, b - product(x)
        new = torch.vdot(r, r)
        if new.sqrt() < tol:
            return x, k + 1
        p, rs = r + new / rs * p, new
    return x, 50


at = torch.tensor([0.5, 0.8, 1.1])
b = torch.tensor([1.0, -2.0, 0.5])
solved = torch.linalg.solve(hessian(rosenbrock, at) + 600 * torch.eye(3), b)
by_products, count = cg(lambda v: hvp(rosenbrock, at, v)[1] + 600 * v, b)
print("conjugate gradients", torch.allclose(solved, by_products, atol=1e-6))
print(vhp(rosenbrock, at, b)[1], vjp(lambda x: x.cumprod(0), at, b)[1], jvp(lambda x: x.cumprod(0), at, b)[1])
J = jacobian(lambda a, b: (a * b.sum(), a.outer(b)), (at, b[:2]), vectorize=True)
print([[tuple(t.shape) for t in row] for row in J], J[0][1][0])
full = hessian(
    lambda a, b: (a.sin() * b.sum() ** 2).sum(), (at[:2], b[:2]), outer_jacobian_strategy="reverse-mode"
)
print(full[0][1])
strict = jacobian(lambda x: torch.ones(2), at, strict=False)
print(tuple(strict.shape), strict.abs().sum().item())
try:
    jacobian(lambda x: torch.ones(2), at, strict=True)
except RuntimeError as error:
    print("refused", type(error).__name__)

# Forward mode: dual numbers, a whole network's derivative along a direction.
net = nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 2))
for p in net.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape))
with fwAD.dual_level():
    dual = fwAD.make_dual(at, b)
    out = fwAD.unpack_dual(net(dual))
    print("primal", out.primal.detach(), "tangent", out.tangent.detach())
    names = {n: fwAD.make_dual(p.detach(), torch.ones_like(p)) for n, p in net.named_parameters()}
    print(fwAD.unpack_dual(functional_call(net, names, (at,))).tangent)
    print(fwAD.unpack_dual(dual.exp().sum()).tangent, fwAD.unpack_dual(at).tangent)
forward = torch.func.jvp(net, (at,), (b,))[1]
print("both ways", torch.allclose(forward, jacobian(net, at) @ b))
second = torch.func.jvp(lambda x: torch.func.jvp(rosenbrock, (x,), (b,))[1], (at,), (b,))[1]
print(second, b @ hessian(rosenbrock, at) @ b)

# Levenberg and Marquardt on a curve.
t = torch.linspace(0, 4, 30)
y = 2.0 * torch.exp(-0.7 * t) + 0.3 + 0.01 * torch.from_numpy(rng.randn(30))
residual = lambda p: p[0] * torch.exp(-p[1] * t) + p[2] - y  # noqa: E731
p, lam, r = torch.tensor([1.0, 0.1, 0.0]), 1e-2, None
for step in range(15):
    r, J = residual(p), torch.func.jacfwd(residual)(p)
    A = J.T @ J
    delta = torch.linalg.solve(A + lam * A.diag().diag(), -J.T @ r)
    better = residual(p + delta).square().sum() < r.square().sum()
    p, lam = (p + delta, lam / 3) if better else (p, lam * 2)
print("fitted", p, f"{residual(p).square().mean().sqrt().item():.4f}")
covariance = torch.linalg.inv(A) * r.square().sum() / 27
print("errors", covariance.diagonal().sqrt(), torch.linalg.lstsq(J, -r).solution.norm() < 1e-3)
q, R = torch.linalg.qr(J)
print(
    torch.allclose(q @ R, J),
    torch.linalg.svdvals(J).sort(descending=True).values[:1] > 3,
    torch.linalg.matrix_rank(J).item(),
)

# Natural gradients and Laplace's approximation of logistic regression.
X = torch.from_numpy(rng.randn(60, 3))
labels = (X @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 * torch.from_numpy(rng.randn(60)) > 0).double()
nll = lambda w: F.binary_cross_entropy_with_logits(X @ w, labels, reduction="sum") + 0.5 * w.dot(w)  # noqa: E731
w = torch.zeros(3)
for _ in range(8):
    score = torch.func.vmap(
        torch.func.grad(lambda w, x, y: F.binary_cross_entropy_with_logits(x @ w, y)), (None, 0, 0)
    )(w, X, labels)
    fisher = score.T @ score + torch.eye(3)
    w = w - torch.linalg.solve(fisher, score.sum(0) + w)
w, path = newton(nll, w)
precision = hessian(nll, w)
evidence = -nll(w) + 1.5 * math.log(2 * math.pi) - 0.5 * torch.logdet(precision)
print("map", w, f"evidence {evidence.item():.4f}", torch.linalg.inv(precision).diagonal())
spread = (X[:3] @ torch.linalg.inv(precision) * X[:3]).sum(1)
print("predicted", torch.sigmoid(X[:3] @ w / torch.sqrt(1 + math.pi * spread / 8)))
trace = torch.stack([v @ hvp(nll, w, v)[1] for v in torch.eye(3)]).sum()
print("trace", torch.allclose(trace, precision.trace()), torch.linalg.slogdet(precision).logabsdet)

# A penalty on the gradient, a gradient through a solution, a fixed point.
inputs = X[:5].clone().requires_grad_()
g = torch.autograd.grad(net(inputs).sum(), inputs, create_graph=True)[0]
penalty = (g.norm(2, dim=1) - 1).pow(2).mean()
penalty.backward()
print("penalty", penalty.detach(), net[0].weight.grad.norm(), inputs.grad is not None)
A = (torch.eye(3) * 2 + 0.1).requires_grad_()
torch.linalg.solve(A, b).sum().backward()
print(A.grad)
z = torch.zeros(3)
weight = torch.full((3, 3), 0.2, requires_grad=True)
with torch.no_grad():
    for _ in range(60):
        z = torch.tanh(weight @ z + at)
f = torch.tanh(weight @ z + at)
implicit = torch.linalg.solve(
    (torch.eye(3) - torch.func.jacrev(lambda z: torch.tanh(weight @ z + at))(z)).T.detach(), torch.ones(3)
)
(gw,) = torch.autograd.grad(f, weight, implicit)
print("fixed point", z, gw.sum())
flat = parameters_to_vector(net.parameters())
vector_to_parameters(flat * 2, net.parameters())
print(flat.numel(), torch.allclose(parameters_to_vector(net.parameters()), flat * 2))
