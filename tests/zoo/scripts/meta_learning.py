"""Learning to learn: MAML with functional_call and gradients of gradients, ensembles by vmap, Jacobians of functions."""

import copy
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

rng = np.random.RandomState(0)


def tasks(count, shots=8):
    amplitude, phase = rng.uniform(0.5, 2, (count, 1, 1)), rng.uniform(0, np.pi, (count, 1, 1))
    x = rng.uniform(-3, 3, (count, 2 * shots, 1))
    y = amplitude * np.sin(x + phase)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


def fresh(seed):
    r = np.random.RandomState(seed)
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
    for p in net.parameters():
        p.data = torch.from_numpy(r.randn(*p.shape) * 0.5).float()
    return net


net = fresh(0)
params = {k: v for k, v in net.named_parameters()}


def loss_fn(params, x, y):
    return F.mse_loss(functional_call(net, params, (x,)), y)


def adapt(params, x, y, steps=2, lr=0.05):
    for _ in range(steps):
        grads = grad(loss_fn)(params, x, y)
        params = {k: p - lr * grads[k] for k, p in params.items()}
    return params


def outer(params, xs, ys, xq, yq):
    return loss_fn(adapt(params, xs, ys), xq, yq)


meta = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(12):
    batch = tasks(6)
    losses = vmap(partial(outer, params))(*batch)
    loss = losses.mean()
    meta.zero_grad()
    loss.backward()
    meta.step()
    if step < 4:
        print(
            f"meta {step} loss {loss.item():.4f} norm {sum(p.grad.norm() for p in net.parameters()).item():.4f}"
        )
batch = tasks(4)
with torch.no_grad():
    before = vmap(partial(loss_fn, params))(*batch[2:]).mean()
after = vmap(partial(outer, params))(*batch).mean()
print("adapts", bool(after < before))

# The same by hand, with create_graph.
x, y, xq, yq = (t[0] for t in batch)
names, values = zip(*net.named_parameters())
fast = list(values)
for _ in range(2):
    inner = F.mse_loss(torch.func.functional_call(net, dict(zip(names, fast)), x), y)
    grads = torch.autograd.grad(inner, fast, create_graph=True)
    fast = [w - 0.05 * g for w, g in zip(fast, grads)]
by_hand = torch.autograd.grad(F.mse_loss(functional_call(net, dict(zip(names, fast)), xq), yq), values)
by_func, value = grad_and_value(outer)(dict(net.named_parameters()), x, y, xq, yq)
print("as by hand", all(torch.allclose(a, by_func[n], atol=1e-5) for n, a in zip(names, by_hand)), value.ndim)
first = copy.deepcopy(net)  # Reptile and first order
for p, f in zip(first.parameters(), fast):
    p.data.lerp_(f.detach(), 0.5)
print(
    f"lerp {sum(p.sum() for p in first.parameters()).item() - sum((a + b).sum() / 2 for a, b in zip(values, fast)).item():.4f}"
)

# An ensemble as one model.
models = [fresh(k) for k in range(4)]
stacked, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta")
call = lambda p, b, x: functional_call(base, (p, b), (x,))  # noqa: E731
together = vmap(call, in_dims=(0, 0, None))(stacked, buffers, x)
one_by_one = torch.stack([m(x) for m in models])
print(
    tuple(together.shape),
    bool(torch.allclose(together, one_by_one, atol=1e-6)),
    f"{together.std(0).mean().item():.4f}",
)
own = vmap(call)(stacked, buffers, torch.stack([x, x * 2, x * 3, x * 4]))
print([round(v, 4) for v in own[:, 0, 0].tolist()])

# Gradients for each example, with a norm of each: differential privacy.
each = vmap(grad(loss_fn), in_dims=(None, 0, 0))(params, x, y)
norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
clipped = {k: torch.einsum("n,n...->...", factor, g) / len(x) for k, g in each.items()}
print([round(v, 3) for v in norms.tolist()])
print(f"{sum(g.pow(2).sum() for g in clipped.values()).sqrt().item():.4f}", tuple(each["2.weight"].shape))
drawn = vmap(lambda x: x + torch.randn(3), randomness="different")(torch.zeros(5, 3))
same = vmap(lambda x: x + torch.randn(3), randomness="same")(torch.zeros(5, 3))
print("different", len(drawn[:, 0].unique()), "same", len(same[:, 0].unique()))
try:
    vmap(lambda x: x + torch.randn(3))(torch.zeros(5, 3))
except RuntimeError as error:
    print("refused:", "called random operation while in randomness error mode" in str(error))

# Jacobians, Hessians, products.
f = lambda x: torch.stack([x[0] * x[1].sin(), x[1] ** 2 * x[2], x.prod()])  # noqa: E731
at = torch.tensor([0.5, 1.0, -2.0])
print([[round(v, 4) for v in r] for r in jacrev(f)(at).tolist()])
print(
    torch.allclose(jacrev(f)(at), jacfwd(f)(at)), torch.allclose(jacrev(jacfwd(f))(at), jacfwd(jacrev(f))(at))
)
print([[round(v, 4) for v in r] for r in hessian(lambda x: f(x).sum())(at).tolist()])
out, tangent = jvp(f, (at,), (torch.tensor([1.0, 0.0, 2.0]),))
print([round(v, 4) for v in out.tolist()], [round(v, 4) for v in tangent.tolist()])
out, pull = vjp(f, at)
print([round(v, 4) for v in pull(torch.ones(3))[0].tolist()])
(ja, jb), aux = jacrev(lambda a, b: (a.outer(b).sum(0), {"a": a * 2}), argnums=(0, 1), has_aux=True)(
    at, at + 1
)
print(tuple(ja.shape), jb.diagonal().tolist(), aux["a"].tolist())
linear = torch.func.linearize(f, at)
print([round(v, 4) for v in linear[1](torch.tensor([1.0, 0.0, 2.0])).tolist()])
functional = torch.func.functionalize(lambda x: x.clone().add_(1).mul_(2))
print(
    functional(at).tolist(),
    torch.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))[0].running_mean,
)
