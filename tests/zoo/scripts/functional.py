"""Functions of modules: functorch as it was, and torch.func that took its place; gradients checked."""

import warnings

import functorch
import numpy as np
import torch
from torch import nn
from torch.autograd import Function, gradcheck
from torch.func import functional_call, grad, stack_module_state, vmap

rng = np.random.RandomState(0)


def seeded(module, seed):
    fill = np.random.RandomState(seed)
    for t in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
        t.data.copy_(torch.from_numpy(fill.rand(*t.shape)))
    return module


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    print([(w.category.__name__, str(w.message)[:150]) for w in caught if w.category is FutureWarning])
    return result


x = torch.from_numpy(rng.randn(5, 3).astype("f"))
y = torch.from_numpy(rng.randn(5, 1).astype("f"))
linear = seeded(nn.Linear(3, 1), 1)
func, params = told(lambda: functorch.make_functional(linear))
print(func, params)
print(torch.equal(func(params, x), linear(x)), params[0] is linear.weight, func.stateless_model.weight.device)


def loss(params, x, y):
    return ((func(params, x) - y) ** 2).mean()


print([g.detach() for g in told(lambda: functorch.grad(loss))(params, x, y)])
print([g.shape for g in vmap(grad(loss), (None, 0, 0))(params, x, y)])
loss(params, x, y).backward()
print(params[0].grad.shape, linear.weight.grad)
print(functorch.make_functional(linear, disable_autograd_tracking=True)[1][0].requires_grad)

tied = seeded(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), 2)
tied[2].weight = tied[0].weight
func2, params2 = functorch.make_functional(tied)
print(len(params2), torch.allclose(func2(params2, x), tied(x)))

net = seeded(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), 3)
try:
    functorch.make_functional(net)
except RuntimeError as e:
    print(e)
f, p, b = told(lambda: functorch.make_functional_with_buffers(net))
print(f, [t.shape for t in p], [t.shape for t in b])
out = f(p, b, x)
print(torch.allclose(out, net(x), atol=1e-6), [torch.allclose(t, u) for t, u in zip(b, net.buffers())])

models = [seeded(nn.Linear(3, 1), k) for k in range(4)]
fmodel, stacked, buffers = told(lambda: functorch.combine_state_for_ensemble(models))
print([t.shape for t in stacked], buffers, vmap(fmodel, (0, 0, None))(stacked, buffers, x).shape)
params3, buffers3 = stack_module_state(models)
meta = nn.Linear(3, 1, device="meta")
ensemble = vmap(lambda p, b, x: functional_call(meta, (p, b), (x,)), (0, 0, None))(params3, buffers3, x)
print(torch.allclose(ensemble, torch.stack([m(x) for m in models]), atol=1e-6))
for wrong in (
    lambda: functorch.combine_state_for_ensemble([]),
    lambda: functorch.combine_state_for_ensemble([linear, net]),
    lambda: functorch.combine_state_for_ensemble([nn.Linear(1, 1).eval(), nn.Linear(1, 1)]),
):
    try:
        print(wrong())
    except RuntimeError as e:
        print(e)
print(
    told(lambda: functorch.vmap(torch.dot))(x, x).shape, told(lambda: functorch.jacrev(torch.sin))(x[0]).shape
)
print(functorch.hessian(lambda v: (v**3).sum())(x[0]).diagonal() / 6 - x[0])


class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None if g is None else g * 2


class Strict(Double):
    @staticmethod
    def backward(ctx, g):
        if g is None:
            raise RuntimeError("no gradient")
        return g * 2


class Biased(Double):
    @staticmethod
    def backward(ctx, g):
        return torch.ones(2, dtype=torch.float64) if g is None else g * 2


v = torch.ones(2, dtype=torch.float64, requires_grad=True)
warnings.simplefilter("ignore")
for F in (Double, Strict, Biased):
    print(
        F.__name__,
        gradcheck(F.apply, v, raise_exception=False),
        gradcheck(F.apply, v, check_undefined_grad=False),
    )
