"""Many at once by torch.func: populations of policies, an ensemble, private gradients, control along a trajectory."""

import math

import numpy as np
import torch
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(7)


def normal(*size):
    return torch.from_numpy(rng.standard_normal(size))


# ---- a pole on a cart, for all policies and starts at once
def dynamics(state, force):
    x, dx, angle, turning = state.unbind(-1)
    sin, cos = angle.sin(), angle.cos()
    pushed = (force + 0.05 * turning**2 * sin) / 1.1
    bent = (9.8 * sin - cos * pushed) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    pulled = pushed - 0.05 * bent * cos / 1.1
    return state + 0.05 * torch.stack([dx, pulled, turning, bent], -1)


class Policy(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, state):
        return 5 * torch.tanh(self.body(state)).squeeze(-1)


policy = Policy()
shapes = {k: p.shape for k, p in policy.named_parameters()}
sizes = [s.numel() for s in shapes.values()]


def parameters(flat):
    return {k: piece.view(s) for (k, s), piece in zip(shapes.items(), flat.split(sizes))}


def cost(flat, start, steps=25):
    state, total = start, 0.0
    for _ in range(steps):
        force = functional_call(policy, parameters(flat), (state,))
        state = dynamics(state, force)
        total = total + state[0] ** 2 * 0.1 + state[2] ** 2 + 0.001 * force**2
    return total / steps


starts = normal(6, 4) * 0.2
mean = torch.sin(torch.arange(sum(sizes)) * 0.9) * 0.3
everyone = vmap(vmap(cost, in_dims=(None, 0)), in_dims=(0, None))
for generation in range(8):
    noise = normal(10, mean.numel())
    noise = torch.cat([noise, -noise])
    costs = everyone(mean + 0.1 * noise, starts).mean(1)
    ranks = costs.argsort().argsort().double() / (len(costs) - 1) - 0.5
    mean = mean - 0.5 * (ranks[:, None] * noise).mean(0) / 0.1 * 0.1
    if generation % 2:
        print("evolution", generation, f"{costs.mean().item():.8f} {costs.min().item():.8f}")
slope, value = grad_and_value(lambda f: vmap(cost, (None, 0))(f, starts).mean())(mean)
print(f"{value.item():.8f}", slope[:4], slope.norm())
chunked = vmap(cost, in_dims=(None, 0), chunk_size=2)(mean, starts)
print(torch.allclose(chunked, vmap(cost, (None, 0))(mean, starts)), chunked)

# ---- control by iterated linear-quadratic approximation
target = torch.zeros(4)
stage = torch.diag(torch.tensor([0.1, 0.01, 1.0, 0.01]))
controls = torch.zeros(20)
start = torch.tensor([0.1, 0.0, 0.25, 0.0])


def rollout(u):
    states = [start]
    for f in u:
        states.append(dynamics(states[-1], f))
    return torch.stack(states)


def quadratic(x, u):
    return (x - target) @ stage @ (x - target) + 0.01 * u * u


for iteration in range(5):
    states = rollout(controls)
    A, B = vmap(jacfwd(dynamics, argnums=(0, 1)))(states[:-1], controls)
    lx, lu = vmap(jacrev(quadratic, argnums=(0, 1)))(states[:-1], controls)
    (lxx, _), (_, luu) = vmap(hessian(quadratic, argnums=(0, 1)))(states[:-1], controls)
    V, v = 2 * stage, 2 * stage @ (states[-1] - target)
    gains = []
    for t in reversed(range(20)):
        a, b = A[t], B[t]
        Qu, Quu = lu[t] + b @ v, luu[t] + b @ V @ b
        Qux = b @ V @ a
        k, K = -Qu / Quu, -Qux / Quu
        v = lx[t] + a.T @ v + Qux * k
        V = lxx[t] + a.T @ V @ a + torch.outer(Qux, K)
        gains.append((k, K))
    new, x = [], start
    for t, (k, K) in enumerate(reversed(gains)):
        u = controls[t] + k + K @ (x - states[t])
        new.append(u)
        x = dynamics(x, u)
    controls = torch.stack(new)
    total = vmap(quadratic)(rollout(controls)[:-1], controls).sum()
    print("control", iteration, f"{total.item():.8f}", x)
print(A.shape, B.shape, lxx.shape, luu.shape, controls[:4])

# ---- an ensemble: states stacked, and each trained on its own bootstrap
x = torch.linspace(-2, 2, 24)[:, None]
y = torch.sin(2 * x) + 0.1 * normal(24, 1)


class Regressor(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 12), nn.SiLU(), nn.LayerNorm(12), nn.Linear(12, 1))
        self.register_buffer("offset", torch.tensor(0.1 * k))
        with torch.no_grad():
            for i, (name, p) in enumerate(self.net.named_parameters()):
                if p.dim() > 1:
                    p.copy_(torch.cos(torch.arange(p.numel()) * (1 + i + k)).view_as(p))
                elif name.endswith("bias"):
                    nn.init.constant_(p, 0.01 * i)

    def forward(self, x):
        return self.net(x) + self.offset


models = [Regressor(k) for k in range(4)]
params, buffers = stack_module_state(models)
print({k: tuple(p.shape) for k, p in params.items()}, {k: tuple(b.shape) for k, b in buffers.items()})
base = Regressor(0).to("meta")
drawn = torch.from_numpy(rng.randint(0, 24, (4, 24)))


def loss(params, buffers, x, y):
    return nn.functional.mse_loss(functional_call(base, (params, buffers), (x,)), y)


optimizer = torch.optim.Adam(params.values(), lr=2e-2)
for step in range(60):
    losses = vmap(loss)(params, buffers, x[drawn], y[drawn])
    optimizer.zero_grad()
    losses.sum().backward()
    optimizer.step()
    if step % 20 == 19:
        print("ensemble", step, losses.detach())
with torch.no_grad():
    said = vmap(lambda p, b: functional_call(base, (p, b), (x,)))(params, buffers)
print(said.mean(0).flatten()[:4], said.std(0).flatten()[:4])
one = {k: p[2].detach() for k, p in params.items()}
models[2].load_state_dict({**one, **{k: b[2] for k, b in buffers.items()}})
print(torch.allclose(models[2](x), said[2]))

# ---- gradients of each example: their noise scale, clipped for privacy
each = vmap(
    grad(lambda p, x, y: loss(p, {"offset": buffers["offset"][2]}, x[None], y[None])), in_dims=(None, 0, 0)
)(one, x, y)
norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
print({k: tuple(g.shape) for k, g in each.items()}, norms[:4])
clipped = {
    k: (g * (1.0 / norms).clamp(max=1).view(-1, *[1] * (g.dim() - 1))).mean(0) for k, g in each.items()
}
whole = grad(loss)(one, {"offset": buffers["offset"][2]}, x, y)
print({k: torch.allclose(g.mean(0), whole[k]) for k, g in each.items()}, clipped["net.3.bias"])

# ---- products with derivatives, without the matrices
flat = mean.clone()


def scalar(f):
    return cost(f, starts[0], 3)


direction = torch.cos(torch.arange(flat.numel()) * 1.0)
_, forward_over_reverse = jvp(grad(scalar), (flat,), (direction,))
_, pull = vjp(grad(scalar), flat)
(reverse_over_reverse,) = pull(direction)
output, push = linearize(grad(scalar), flat)
print(
    torch.allclose(forward_over_reverse, reverse_over_reverse),
    torch.allclose(push(direction), forward_over_reverse),
    output.norm(),
)
print(forward_over_reverse[:3], (direction @ forward_over_reverse).item())


# ---- in place inside, and what a batch may not do
def updated(state, k):
    state = state.clone()
    state[k] += 1
    state[0].mul_(2)
    return state


print(
    vmap(updated, in_dims=(0, None), out_dims=1)(torch.ones(2, 3), 1),
    functionalize(updated)(torch.zeros(3), 2),
)
for f in (
    lambda: vmap(lambda t: t if t.sum() > 0 else -t)(torch.ones(3)),
    lambda: vmap(lambda t: t.item())(torch.ones(3)),
    lambda: vmap(lambda a, b: a + b)(torch.ones(3), torch.ones(4)),
    lambda: vmap(torch.sum, in_dims=2)(torch.ones(3)),
    lambda: vmap(lambda t: (t, 1.0))(torch.ones(3)),
    lambda: grad(lambda t: t * 2)(torch.ones(3)),
):
    try:
        print(f())
    except (RuntimeError, ValueError, TypeError) as e:
        print(type(e).__name__)
states = torch.zeros(3, 2)
seeds = (
    vmap(lambda t: t + torch.rand(2), randomness="different")(states),
    vmap(lambda t: t + torch.rand(2), randomness="same")(states),
)
print([len({tuple(r) for r in s.tolist()}) for s in seeds])
print(
    vmap(vmap(torch.linalg.solve), in_dims=(1, None))(torch.eye(2).expand(2, 3, 2, 2), normal(2, 2)).shape,
    math.isclose(1, 1),
)
