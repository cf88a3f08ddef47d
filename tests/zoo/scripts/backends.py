"""Compilation with one's own backends: calls counted, graphs rewritten, breaks, training, options, operators by make_fx."""

import operator

import numpy as np
import torch
import torch._dynamo
import torch.nn as nn
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

rng = np.random.RandomState(3)
torch.set_printoptions(precision=4, sci_mode=False)


def tensor(*sizes):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32))


calls = []


def my_compiler(gm, example_inputs):
    ops = [n for n in gm.graph.nodes if n.op.startswith("call_")]
    calls.append(
        (
            len(ops),
            isinstance(gm, torch.fx.GraphModule),
            all(isinstance(x, torch.Tensor) for x in example_inputs),
        )
    )
    return gm.forward


@torch.compile(backend=my_compiler)
def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


a, b = tensor(5), tensor(5).abs()
print(toy(a, b), len(calls) >= 2, all(c[1] and c[2] for c in calls))
before = len(calls)
print(toy(a + 1, b * 2), "known graphs are not compiled again:", len(calls) == before)
print(toy(a, -b), "the other branch:", len(calls) > before)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)
        self.steps = 0

    def forward(self, x, scale=1.0, *, both=False):
        self.steps += 1
        h = self.body(x).clamp(min=-1)
        y = self.head(F.relu(h)) * scale
        return {"logits": y, "hidden": h} if both else y


def filled(net):
    for p in net.parameters():
        p.data = tensor(*p.shape) * 0.3
    return net


eager = filled(Net())
net = Net()
net.load_state_dict(eager.state_dict())
compiled = torch.compile(net, backend=my_compiler)
x, target = tensor(12, 6), torch.from_numpy(rng.randint(0, 3, 12))
for model in (eager, compiled):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for step in range(6):
        out = model(x, both=step % 2 == 0)
        out = out["logits"] if isinstance(out, dict) else out
        loss = F.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    print(losses)
print(eager.steps, net.steps, compiled.steps, sorted(compiled.state_dict())[0])
print(
    all(
        torch.allclose(p, q, atol=1e-6)
        for p, q in zip(eager.state_dict().values(), net.state_dict().values())
    )
)
compiled.eval()
print(net.training, compiled(x[:2]).softmax(-1))


def swap(gm, example_inputs):
    """What is multiplied is added."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in (operator.mul, torch.mul):
            node.target = torch.add
        elif node.op == "call_method" and node.target == "mul":
            node.target = "add"
    gm.graph.lint()
    gm.recompile()
    return gm


print(torch.compile(lambda u, v: torch.mul(u, v) * 2, backend=swap)(torch.ones(3), torch.full((3,), 5.0)))

log = []


@torch.compile(backend=my_compiler)
def noisy(u):
    log.append("begin")
    v = u.sin()
    log.append(round(v.sum().item(), 4))
    w = v.exp()
    with torch.no_grad():
        log.append(w.requires_grad)
        m = w.mean()
    log.append("end")
    u2 = w - m
    return u2, [m, {"v": v}], len(log)


u = torch.linspace(0, 1, 4, requires_grad=True)
out, (m, d), n = noisy(u)
out.sum().backward()
print(out, m, d["v"], n, log, u.grad)
out, _, n = noisy(u)
print(n, log)


@torch.compile(backend=my_compiler)
def train_step(model, batch):
    loss = model(batch).pow(2).mean()
    loss.backward()
    return loss.detach()


linear = nn.Linear(3, 2)
with torch.no_grad():
    linear.weight.fill_(0.5)
    linear.bias.fill_(0.1)
print(train_step(linear, torch.ones(4, 3)), linear.weight.grad, linear.bias.grad)


@torch.compile(backend=my_compiler)
def in_place(cache, k, value):
    cache[k] = value
    cache.mul_(2)
    return cache.sum()


cache = torch.zeros(4)
print(in_place(cache, 1, torch.tensor(3.0)), cache, in_place(cache, 2, torch.tensor(1.0)), cache)
print(torch.compile(lambda t: t[t > 0], backend=my_compiler)(torch.tensor([-1.0, 2.0, 3.0])))
try:
    torch.compile(lambda t: t @ torch.ones(7), backend=my_compiler)(torch.ones(3))
except RuntimeError:
    print("sizes that do not fit raise")

decorated = torch.compiler.disable(lambda t: t * 3)
print(decorated(torch.ones(2)), torch.compiler.is_compiling())
torch._dynamo.reset()
explained = torch._dynamo.explain(lambda t: t.cos() + 1)(torch.zeros(2))
print(explained.graph_count, explained.graph_break_count)

# ---- operators


def f(x, w):
    return F.linear(x, w).relu().sum()


traced = make_fx(f)(tensor(2, 3), tensor(4, 3))
print(traced.code.strip())
xs, ws = tensor(5, 3), tensor(2, 3)
print(torch.allclose(traced(xs, ws), f(xs, ws)))


def sgd(p, x):
    (g,) = torch.autograd.grad((x @ p).pow(2).mean(), p)
    return p - 0.1 * g


p = tensor(3, 2).requires_grad_()
step = make_fx(sgd)(p, tensor(4, 3))
q = tensor(3, 2).requires_grad_()
data = tensor(4, 3)
print(torch.allclose(step(q, data), sgd(q, data), atol=1e-6))
table = {torch.ops.aten.tanh.default: lambda x: 2 * torch.sigmoid(2 * x) - 1}
print(make_fx(lambda x: x.tanh() + 1, decomposition_table=table)(torch.ones(2)).code.strip())
try:
    make_fx(lambda x: x + 1 if x.sum() > 0 else x)(torch.ones(2))
except RuntimeError as e:
    print(str(e).split(" with ")[0])
