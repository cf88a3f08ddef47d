"""Neural tangent kernels, Jacobians and Hessians in many ways, per-sample gradients, ensembles: torch.func at length."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

rng = np.random.RandomState(0)
torch.set_printoptions(precision=4, sci_mode=False)


def tensor(*sizes, scale=1.0):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32)) * scale


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1))


net = CNN()
for p in net.parameters():
    p.data = tensor(*p.shape, scale=0.2)
params = {k: v.detach() for k, v in net.named_parameters()}
x1, x2 = tensor(3, 1, 8, 8), tensor(2, 1, 8, 8)


def fnet_single(params, x):
    return functional_call(net, params, (x.unsqueeze(0),)).squeeze(0)


def ntk_jacobians(params, x1, x2, compute="full"):
    jac1 = vmap(jacrev(fnet_single), (None, 0))(params, x1)
    jac2 = vmap(jacrev(fnet_single), (None, 0))(params, x2)
    jac1 = [j.flatten(2) for j in jac1.values()]
    jac2 = [j.flatten(2) for j in jac2.values()]
    expr = {"full": "Naf,Mbf->NMab", "trace": "Naf,Maf->NM", "diagonal": "Naf,Maf->NMa"}[compute]
    return torch.stack([torch.einsum(expr, a, b) for a, b in zip(jac1, jac2)]).sum(0)


def ntk_vps(params, x1, x2):
    def get_ntk(x1, x2):
        def func_x1(params):
            return fnet_single(params, x1)

        output, vjp_fn = vjp(func_x1, params)

        def get_slice(vec):
            return jvp(lambda p: fnet_single(p, x2), (params,), vjp_fn(vec))[1]

        return vmap(get_slice)(torch.eye(output.numel()).view(output.numel(), -1))

    return vmap(vmap(get_ntk, (None, 0)), (0, None))(x1, x2)


full = ntk_jacobians(params, x1, x2)
print(full.shape, (full[0, 0].diagonal() * 10).round() / 10)
print(ntk_jacobians(params, x1, x2, "trace"), ntk_jacobians(params, x1, x2, "diagonal").shape)
print(torch.allclose(full, ntk_vps(params, x1, x2), atol=1e-3))

# ---- Jacobians and Hessians
weight, bias, x = tensor(4, 4), tensor(4), tensor(4)


def predict(weight, bias, x):
    return F.linear(x, weight, bias).tanh()


y = predict(weight, bias, x.requires_grad_())
rows = torch.stack([torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(4)])
(batched,) = torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)
rev, fwd = jacrev(predict, argnums=2)(weight, bias, x), jacfwd(predict, argnums=2)(weight, bias, x)
print(torch.allclose(rows, rev), torch.allclose(batched, fwd), torch.allclose(rev, fwd), rev.detach()[0])
both = jacrev(predict, argnums=(0, 1))(weight, bias, x)
print(
    [tuple(j.shape) for j in both],
    torch.allclose(jacrev(predict, argnums=2, chunk_size=2)(weight, bias, x), fwd),
)
h = hessian(predict, argnums=2)(weight, bias, x)
print(h.shape, torch.allclose(h, jacfwd(jacfwd(predict, 2), 2)(weight, bias, x), atol=1e-6), h[1, 1].detach())
batch = tensor(3, 4)
print(vmap(jacrev(predict, argnums=2), (None, None, 0))(weight, bias, batch).sum((1, 2)))
print(vmap(hessian(predict, argnums=2), (None, None, 0))(weight, bias, batch).shape)


def hvp(f, primals, tangents):
    return jvp(torch.func.grad(f), primals, tangents)[1]


print(hvp(lambda x: x.sin().sum(), (batch,), (torch.ones_like(batch),))[0])
value, aux = jacrev(lambda x: (x**2, {"sum": x.sum()}), has_aux=True)(x.detach())
print(value.diagonal(), aux)

# ---- per-sample gradients
images, targets = tensor(6, 1, 8, 8), torch.from_numpy(rng.randint(0, 5, 6))


def loss_of(params, sample, target):
    return F.cross_entropy(functional_call(net, params, (sample.unsqueeze(0),)), target.unsqueeze(0))


each = vmap(torch.func.grad(loss_of), (None, 0, 0))(params, images, targets)
by_hand = [torch.func.grad(loss_of)(params, i, t) for i, t in zip(images, targets)]
print(all(torch.allclose(each[k], torch.stack([g[k] for g in by_hand]), atol=1e-5) for k in each))
norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
print(norms)
clipped = {k: (g / norms.clamp(min=1).view(-1, *[1] * (g.dim() - 1))).mean(0) for k, g in each.items()}
print({k: round(v.norm().item(), 4) for k, v in clipped.items()})

# ---- an ensemble
models = [CNN() for _ in range(4)]
for model in models:
    for p in model.parameters():
        p.data = tensor(*p.shape, scale=0.3)
stacked, buffers = stack_module_state(models)
base = CNN().to("meta")


def fmodel(params, buffers, x):
    return functional_call(base, (params, buffers), (x,))


together = vmap(fmodel, in_dims=(0, 0, None))(stacked, buffers, images)
print(together.shape, torch.allclose(together, torch.stack([m(images) for m in models]), atol=1e-5))
print(
    vmap(fmodel)(stacked, buffers, torch.stack([images[:2] + k for k in range(4)]))
    .sum((1, 2))
    .detach()
    .mul(100)
    .round()
)
print(vmap(lambda x: x + torch.rand(1), randomness="same")(torch.zeros(3, 1)).unique().numel())
