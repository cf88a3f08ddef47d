"""Looking into autograd: hooks of tensors, modules and nodes, saved tensors, anomalies, edges, custom functions, checkpoints, transforms."""

import contextlib
import copy
import gc
import io
import weakref
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint as cp
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.autograd.graph import (
    Node,
    get_gradient_edge,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.func import (
    functional_call,
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
from torch.utils._pytree import tree_flatten, tree_map

torch.set_printoptions(precision=4, sci_mode=False)
rng = np.random.RandomState(9)
r = lambda *s: torch.from_numpy(rng.randn(*s).astype("f"))  # noqa: E731

x, w = r(3, 4).requires_grad_(), r(4, 2).requires_grad_()
seen = []
h = (x @ w).tanh()
h.retain_grad()
h.register_hook(lambda g: seen.append(("h", tuple(g.shape))))
handle = w.register_hook(lambda g: g * 2)
w.register_post_accumulate_grad_hook(lambda p: seen.append(("accumulated", p.grad.norm() > 0)))
multi = register_multi_grad_hook([x, w], lambda gs: seen.append(("multi", [g is not None for g in gs])))
(h**2).sum().backward()
print(seen, h.grad.shape, x.grad.norm(), w.grad.norm())
handle.remove(), multi.remove()
print(x.retains_grad, h.retains_grad, h.is_leaf, h._version, h.output_nr)


def walk(fn, depth=0, seen=None):
    seen = Counter() if seen is None else seen
    if fn is None:
        return seen
    seen["  " * depth + fn.name()] += 1
    for next_fn, _ in fn.next_functions:
        walk(next_fn, depth + 1, seen)
    return seen


y = F.relu(x * 2 + 1).mean()
print(dict(walk(y.grad_fn)))
print(isinstance(y.grad_fn, Node), y.grad_fn.next_functions[0][0]._sequence_nr() < y.grad_fn._sequence_nr())
pre = y.grad_fn.next_functions[0][0].register_prehook(lambda gs: print("prehook", gs[0].shape))
post = y.grad_fn.register_hook(lambda gi, go: print("hook", gi[0].shape, go[0]))
print(torch.autograd.grad(y, x)[0].sum())
edge = get_gradient_edge(h)
print(type(edge).__name__, edge.node.name(), edge.output_nr)

packed = []
with saved_tensors_hooks(
    lambda t: packed.append(tuple(t.shape)) or t.numpy(force=True), lambda a: torch.from_numpy(a)
):
    z = (x.exp() * w.sum()).sin().sum()
z.backward()
print(sorted(packed), x.grad.norm())
with save_on_cpu():
    (x * x).sum().backward()
with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
    try:
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
    except RuntimeError as error:
        print("refused", "not here" in str(error))
with torch.autograd.graph.allow_mutation_on_saved_tensors():
    a = torch.ones(2, requires_grad=True)
    b = a.clone()
    c = (b**2).sum()
    b.mul_(5)
    c.backward()
    print(a.grad)
try:
    with torch.autograd.detect_anomaly(check_nan=True):
        torch.sqrt(torch.zeros(1, requires_grad=True) * -1).backward()
        t = torch.zeros(1, requires_grad=True)
        (torch.sqrt(t) * 0).backward()
except RuntimeError as error:
    print("anomaly", "SqrtBackward0' returned nan values in its 0th output" in str(error))


class Clamp(Function):
    @staticmethod
    def forward(ctx, input, low, high):
        ctx.save_for_backward(input)
        ctx.low, ctx.high = low, high
        ctx.set_materialize_grads(False)
        return input.clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None, None
        (input,) = ctx.saved_tensors
        return grad_output * ((input > ctx.low) & (input < ctx.high)), None, None


class Polynomial(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, k):
        return x**3 * k, x.square()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
        ctx.k = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        return 3 * ctx.saved_tensors[0] ** 2 * ctx.k * g, None

    @staticmethod
    def jvp(ctx, t, _):
        return 3 * ctx.saved_tensors[0] ** 2 * ctx.k * t, None


out = Clamp.apply(x, -0.5, 0.5)
print(out.grad_fn.name(), type(out.grad_fn).__name__, out.sum())
g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
try:
    g.sum().backward()
except RuntimeError as error:
    print("once", "element 0 of tensors does not require grad" in str(error))
v = torch.tensor([1.0, -2.0], requires_grad=True)
p, s = Polynomial.apply(v, 2.0)
print(
    p,
    s.requires_grad,
    torch.autograd.grad(p.sum(), v),
    vmap(lambda q: Polynomial.apply(q, 2.0)[0])(v.detach()),
    jvp(lambda q: Polynomial.apply(q, 2.0)[0], (v.detach(),), (torch.ones(2),)),
)
print(
    torch.autograd.gradcheck(
        lambda q: Polynomial.apply(q, 2.0)[0], v.detach().double().requires_grad_(), check_forward_ad=True
    )
)

calls = Counter()


class Block(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.i, self.lin = i, nn.Linear(4, 4)
        self.lin.weight.data, self.lin.bias.data = r(4, 4) * 0.5, torch.zeros(4)

    def forward(self, x):
        calls[self.i] += 1
        return x + torch.tanh(self.lin(x))


blocks = nn.Sequential(*(Block(i) for i in range(4)))
grads = []
for mode in ("plain", "checkpoint", "sequential"):
    calls.clear()
    blocks.zero_grad()
    inp = torch.ones(2, 4, requires_grad=True)
    if mode == "plain":
        o = blocks(inp)
    elif mode == "checkpoint":
        o = inp
        for m in blocks:
            o = cp.checkpoint(m, o, use_reentrant=False)
    else:
        o = cp.checkpoint_sequential(blocks, 2, inp, use_reentrant=False)
    o.square().sum().backward()
    grads.append(torch.cat([p.grad.flatten() for p in blocks.parameters()]))
    print(mode, dict(calls), [torch.allclose(g, grads[0]) for g in grads])
print({k: tuple(v.shape) for k, v in list(blocks.state_dict().items())[:2]}, calls.total())

order = []
for name, m in blocks.named_modules():
    m.register_forward_pre_hook(lambda m, a, n=name: order.append("<" + n))
    m.register_forward_hook(lambda m, a, o, n=name: order.append(n + ">"))
    m.register_full_backward_hook(lambda m, gi, go, n=name: order.append("back " + n))
blocks(torch.ones(1, 4, requires_grad=True)).sum().backward()
print(order[:6], order[-3:], len(order))

f = lambda q: (q**3).sum()  # noqa: E731
q = torch.tensor([1.0, 2.0, 3.0])
print(
    grad(f)(q),
    hessian(f)(q),
    jacrev(torch.sin)(q).diagonal(),
    jacfwd(torch.exp)(q).diag(),
    grad_and_value(f)(q),
    sep="\n",
)
value, pull = vjp(torch.outer, q, q)
print(pull(torch.eye(3)), linearize(f, q)[1](torch.ones(3)), jvp(f, (q,), (torch.ones(3),)), sep="\n")
print(
    vmap(grad(lambda a, b: (a * b.sin()).sum()), in_dims=(0, None))(torch.eye(3), q),
    vmap(torch.dot, in_dims=(1, 0), out_dims=0)(torch.ones(3, 2), torch.ones(2, 3)),
    vmap(vmap(lambda a, b: a - b, (None, 0)), (0, None))(q, q),
    sep="\n",
)
models = [nn.Linear(3, 2) for _ in range(4)]
for m in models:
    m.weight.data, m.bias.data = r(2, 3), r(2)
params, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta")
ensemble = vmap(lambda p, b, inp: functional_call(base, (p, b), (inp,)), (0, 0, None))(params, buffers, q)
print(
    ensemble.shape,
    torch.allclose(ensemble[2], models[2](q)),
    base.weight.device,
    base.weight.shape,
    tree_map(lambda t: tuple(t.shape), params),
)
sample = vmap(grad(lambda p, a, t: F.mse_loss(functional_call(models[0], p, (a,)), t)), in_dims=(None, 0, 0))(
    dict(models[0].named_parameters()), r(5, 3), r(5, 2)
)
print({k: tuple(v.shape) for k, v in sample.items()}, tree_flatten({"a": [1, (2, 3)], "b": None})[0])
print(
    vmap(lambda k: k.cumsum(0), chunk_size=2)(torch.ones(5, 3))[-1],
    vmap(lambda a: torch.randn(2) + a, randomness="same")(torch.zeros(3)).std(0).sum() == 0,
)
try:
    vmap(lambda a: a.item())(q)
except RuntimeError as error:
    print("item", "vmap" in str(error))
with contextlib.redirect_stdout(io.StringIO()) as text:
    print(torch.ones(1))
print(text.getvalue().strip())
node = (x * 2).sum()
ref = weakref.ref(node)
del node
gc.collect()
print("freed", ref() is None, torch.is_grad_enabled(), torch.autograd.forward_ad.unpack_dual(q).tangent)
