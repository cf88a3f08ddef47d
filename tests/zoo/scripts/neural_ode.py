"""Neural differential equations: Euler, midpoint, RK4 and Dormand-Prince, the adjoint as a Function, a spiral, a Hamiltonian."""

import math
from typing import Callable

import numpy as np
import torch
import torch.nn as nn
from torch import Tensor
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=5, sci_mode=False, linewidth=100)


def euler(f, t, y, h):
    return y + h * f(t, y)


def midpoint(f, t, y, h):
    return y + h * f(t + h / 2, y + h / 2 * f(t, y))


def rk4(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(t + h, y + h * k3))


def odeint(f: Callable, y0: Tensor, t: Tensor, method=rk4, substeps=2) -> Tensor:
    out = [y0]
    for a, b in zip(t[:-1], t[1:]):
        y, h = out[-1], (b - a) / substeps
        for k in range(substeps):
            y = method(f, a + k * h, y, h)
        out.append(y)
    return torch.stack(out)


def dopri5(f, y, t0, t1, rtol=1e-6, atol=1e-8):
    c = [0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1]
    a = [
        [],
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
    e = torch.tensor([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])
    t, h, steps, rejected = float(t0), 0.1, 0, 0
    while t < t1 - 1e-12:
        h = min(h, t1 - t)
        k = []
        for row, at in zip(a, c):
            k.append(f(t + at * h, y + h * sum(w * z for w, z in zip(row, k)) if row else y))
        error = h * torch.tensordot(e, torch.stack(k), dims=1)
        new = y + h * sum(w * z for w, z in zip(a[-1], k))
        ratio = (error / (atol + rtol * torch.maximum(y.abs(), new.abs()))).square().mean().sqrt().item()
        if ratio <= 1:
            t, y, steps = t + h, new, steps + 1
        else:
            rejected += 1
        h *= min(5.0, max(0.2, 0.9 * max(ratio, 1e-10) ** -0.2))
    return y, steps, rejected


exact = lambda t: torch.stack([torch.cos(t), -torch.sin(t)], -1)  # noqa: E731
circle = lambda t, y: torch.stack([y[..., 1], -y[..., 0]], -1)  # noqa: E731
t = torch.linspace(0, 2, 9)
for method in (euler, midpoint, rk4):
    errors = [
        (odeint(circle, torch.tensor([1.0, 0.0]), t, method, s) - exact(t)).abs().max().item()
        for s in (1, 2, 4)
    ]
    order = math.log2(errors[1] / errors[2])
    print(f"{method.__name__:8s}", ["%.3e" % e for e in errors], f"order {order:.2f}")
y, steps, rejected = dopri5(circle, torch.tensor([1.0, 0.0]), 0.0, 2.0)
print("dopri5", y, steps, rejected, "%.1e" % (y - exact(torch.tensor(2.0))).abs().max().item())


class ODEFunc(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        r = np.random.RandomState(seed)
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                m.weight.data = torch.from_numpy(r.normal(0, 0.3, m.weight.shape))
                nn.init.constant_(m.bias, val=0)
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3)


class Adjoint(Function):
    """Gradients by solving the adjoint equation back in time: memory does not grow with steps."""

    @staticmethod
    def forward(ctx, flat, y0, t, func):
        ctx.func = func
        with torch.no_grad():
            ys = odeint(func, y0, t)
        ctx.save_for_backward(t, ys, flat)
        return ys

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        t, ys, flat = ctx.saved_tensors
        params = tuple(ctx.func.parameters())
        n = ys[0].numel()

        def augmented(at, state):
            y, a = state[:n].view_as(ys[0]), state[n : 2 * n].view_as(ys[0])
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                out = ctx.func(at, y)
                gy, *gp = torch.autograd.grad(out, (y,) + params, -a, allow_unused=True, retain_graph=False)
            gp = [torch.zeros_like(p) if g is None else g for p, g in zip(params, gp)]
            return torch.cat(
                [out.detach().reshape(-1), gy.reshape(-1), torch.cat([g.reshape(-1) for g in gp])]
            )

        state = torch.cat([ys[-1].reshape(-1), grad[-1].reshape(-1), torch.zeros_like(flat)])
        for k in range(len(t) - 1, 0, -1):
            state = odeint(augmented, state, torch.stack([t[k], t[k - 1]]))[-1]
            state = torch.cat(
                [ys[k - 1].reshape(-1), state[n : 2 * n] + grad[k - 1].reshape(-1), state[2 * n :]]
            )
        return state[2 * n :], state[n : 2 * n].view_as(ys[0]), None, None


true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
with torch.no_grad():
    t = torch.linspace(0.0, 1.5, 13)
    y0 = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    target = odeint(lambda t, y: torch.mm(y**3, true_A), y0, t, substeps=4)
func = ODEFunc()
direct = odeint(func, y0, t)
loss = (direct - target).abs().mean()
loss.backward()
plain = torch.cat([p.grad.flatten() for p in func.parameters()])
flat = parameters_to_vector(func.parameters()).detach().requires_grad_()
out = Adjoint.apply(flat, y0, t, func)
(out - target).abs().mean().backward()
print(
    "adjoint",
    f"{loss.item():.5f}",
    "%.0e" % ((flat.grad - plain).norm() / plain.norm()).item() < "1e-03",
    func.nfe,
)

optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-2)
for step in range(40):
    optimizer.zero_grad()
    loss = torch.mean(torch.abs(odeint(func, y0, t, substeps=1) - target))
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:02d} | loss {loss.item():.6f}")
vector_to_parameters(parameters_to_vector(func.parameters()) * 1.0, func.parameters())


class Softsign3(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, power):
        return x / (1 + x.abs()) ** power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        b = 1 + x.abs()
        return g * (b - ctx.power * x.abs()) / b ** (ctx.power + 1), None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        b = 1 + x.abs()
        return tangent * (b - ctx.power * x.abs()) / b ** (ctx.power + 1)


x = torch.tensor([-1.5, 0.25, 2.0], requires_grad=True)
print(
    gradcheck(Softsign3.apply, (x, 3)),
    gradgradcheck(Softsign3.apply, (x, 2)),
    gradcheck(Softsign3.apply, (x, 2), check_forward_ad=True),
)
print(torch.func.vmap(torch.func.grad(lambda v: Softsign3.apply(v, 3)))(x.detach()))
print(torch.func.jvp(lambda v: Softsign3.apply(v, 3), (x.detach(),), (torch.ones(3),))[1])
try:
    torch.autograd.grad(
        torch.autograd.grad(Adjoint.apply(flat, y0, t, func).sum(), flat, create_graph=True)[0].sum(), flat
    )
except RuntimeError as error:
    print("refused:", "does not require grad and does not have a grad_fn" in str(error))


def hamiltonian(q, p):
    return 0.5 * (p**2).sum(-1) + (1 - torch.cos(q)).sum(-1)


def leapfrog(q, p, h, steps):
    for _ in range(steps):
        p = p - h / 2 * torch.func.grad(lambda q: hamiltonian(q, p).sum())(q)
        q = q + h * p
        p = p - h / 2 * torch.func.grad(lambda q: hamiltonian(q, p).sum())(q)
    return q, p


q, p = torch.tensor([1.0]), torch.tensor([0.0])
before = hamiltonian(q, p)
q, p = leapfrog(q, p, 0.1, 60)
print(q, p, "%.1e" % (hamiltonian(q, p) - before).abs().item())
