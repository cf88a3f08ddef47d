"""Gradients made visible: leaves, retained gradients, graphs walked by their nodes and what these saved, packed tensors, steps in backward."""

import os
import tempfile
import uuid

import numpy as np
import torch
import torch.nn as nn

rng = np.random.RandomState(6)
torch.set_printoptions(precision=4, sci_mode=False)


def tensor(*sizes):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32))


# ---- leaves and others
x, W, y = torch.ones(1, 3), tensor(3, 2).requires_grad_(), torch.ones(1, 2)
z = x @ W
y_pred = torch.relu(z)
loss = torch.nn.functional.mse_loss(y_pred, y)
print(f"{x.is_leaf=}, {W.is_leaf=}, {z.is_leaf=}, {loss.is_leaf=}, {x.requires_grad=}, {z.requires_grad=}")
z.retain_grad()
y_pred.retain_grad()
loss.retain_grad()
loss.backward()
print(W.grad, z.grad, y_pred.grad, loss.grad, z.retains_grad, W.retains_grad)

# ---- a graph as drawing tools walk it


def walk(fn, depth=0, lines=None):
    lines = [] if lines is None else lines
    if fn is None:
        return lines
    if hasattr(fn, "variable"):
        lines.append("  " * depth + f"leaf {tuple(fn.variable.shape)}")
        return lines
    saved = {}
    for name in dir(fn):
        if name.startswith("_saved_"):
            value = getattr(fn, name)
            saved[name[7:]] = tuple(value.shape) if isinstance(value, torch.Tensor) else value
    keys = ("dim", "keepdim", "dims", "dim0", "dim1", "negative_slope", "index")
    lines.append("  " * depth + fn.name() + " " + str({k: saved[k] for k in sorted(saved) if k in keys}))
    for child, _ in fn.next_functions:
        walk(child, depth + 1, lines)
    return lines


a = tensor(3, 4).requires_grad_()
out = torch.nn.functional.leaky_relu(a.transpose(0, 1), 0.2).sum(1, keepdim=True)
print("\n".join(walk(out.grad_fn)))
print("\n".join(walk(torch.cat([a.permute(1, 0), a.t()], 1)[2].exp().softmax(0).grad_fn)))
node = a.pow(2).grad_fn
print(torch.equal(node._saved_self, a), float(node._saved_exponent), a.sum((0, 1)).grad_fn._saved_dim)
r = a.exp()
print(r.grad_fn._saved_result.equal(r), r.grad_fn._saved_result is r)
print(a.sum(1).grad_fn._saved_self_sym_sizes, a.view(-1).grad_fn._saved_self_sym_sizes)

# ---- hooks on layers with and without normalisation


class Deep(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.layers = nn.ModuleList()
        for k in range(5):
            layer = nn.Linear(8, 8)
            layer.weight.data = tensor(8, 8) * 0.2
            layer.bias.data.zero_()
            self.layers.append(layer)
            if norm:
                self.layers.append(nn.BatchNorm1d(8))
            self.layers.append(nn.Sigmoid())

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


data = tensor(16, 8)
for norm in (False, True):
    grads, handles = {}, []
    net = Deep(norm)

    def hook_forward(name):
        def hook(module, args, output):
            output.register_hook(lambda g: grads.__setitem__(name, round(g.abs().mean().item(), 6)))

        return hook

    for name, module in net.named_modules():
        if isinstance(module, nn.Linear):
            handles.append(module.register_forward_hook(hook_forward(name)))
    net(data).backward()
    for h in handles:
        h.remove()
    print(norm, {k: round(v, 4) for k, v in grads.items()})

# ---- saved tensors, packed


class SelfDeletingTempFile:
    def __init__(self):
        self.name = os.path.join(tempfile.gettempdir(), str(uuid.uuid4()))

    def __del__(self):
        os.remove(self.name)


files = []


def pack_hook(tensor):
    if tensor.numel() < 6:
        return tensor
    temp_file = SelfDeletingTempFile()
    files.append(temp_file.name)
    torch.save(tensor, temp_file.name)
    return temp_file


def unpack_hook(packed):
    return torch.load(packed.name) if isinstance(packed, SelfDeletingTempFile) else packed


with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
    p = tensor(4, 4).requires_grad_()
    out = (p * p.exp()).tanh().sum()
print(len(files) > 0, all(os.path.exists(f) for f in files))
out.backward()
want = torch.autograd.grad((p * p.exp()).tanh().sum(), p)[0]
print(torch.allclose(p.grad, want))
del out
print(any(os.path.exists(f) for f in files))
counted = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: counted.append(tuple(t.shape)) or t, lambda t: t):
    b = torch.ones(3, requires_grad=True)
    c = b * torch.full((3,), 2.0)
print(counted, c.grad_fn._saved_other)
with torch.autograd.graph.save_on_cpu(pin_memory=False):
    d = (p @ p).relu().sum()
print(torch.autograd.grad(d, p)[0].sum())
with torch.autograd.graph.saved_tensors_hooks(
    lambda t: (t * 127).round().to(torch.int8), lambda t: t.float() / 127
):
    e = torch.linspace(-1, 1, 5, requires_grad=True)
    e.sin().sum().backward()
print(e.grad)
try:
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
except RuntimeError as err:
    print("no hooks here" in str(err))

# ---- the optimizer's step in backward
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
twin = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
for q in model.parameters():
    q.data = tensor(*q.shape) * 0.3
twin.load_state_dict(model.state_dict())
optimizers = {q: torch.optim.Adam([q], lr=0.01, foreach=False) for q in model.parameters()}


def optimizer_hook(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for q in model.parameters():
    q.register_post_accumulate_grad_hook(optimizer_hook)
usual = torch.optim.Adam(twin.parameters(), lr=0.01)
for _ in range(4):
    model(data).pow(2).mean().backward()
    usual.zero_grad()
    loss = twin(data).pow(2).mean()
    loss.backward()
    usual.step()
print(
    loss,
    all(torch.allclose(q, w, atol=1e-6) for q, w in zip(model.parameters(), twin.parameters())),
    model[0].weight.grad,
)

# ---- gradients of another dtype, double backward, gradcheck
half = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
half.grad_dtype = torch.float32
(half * 3).sum().backward()
(half * 0.001).sum().backward()
print(half.grad, half.grad_dtype)


class Sinh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        expx, expnegx = torch.exp(x), torch.exp(-x)
        ctx.save_for_backward(expx, expnegx)
        return (expx - expnegx) / 2, expx, expnegx

    @staticmethod
    def backward(ctx, grad_out, grad_expx, grad_expnegx):
        expx, expnegx = ctx.saved_tensors
        return grad_out * (expx + expnegx) / 2 + grad_expx * expx - grad_expnegx * expnegx


v = torch.rand(4, requires_grad=True, dtype=torch.double)
print(
    torch.autograd.gradcheck(lambda t: Sinh.apply(t)[0], v),
    torch.autograd.gradgradcheck(lambda t: Sinh.apply(t)[0], v),
)
