"""Control flow as functions, scripts with control flow of their own, functional data pipes, futures, sharing, defaults."""

import numpy as np
import torch
import torch.nn as nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

torch.set_printoptions(precision=4, sci_mode=False)


class DynamicShapeCond(nn.Module):
    def forward(self, x):
        return torch.cond(x.shape[0] > 4, lambda t: t.cos(), lambda t: t.sin(), (x,))


class DataCond(nn.Module):
    def forward(self, x, w):
        return torch.cond(x.sum() > 0, lambda a, b: (a @ b).relu(), lambda a, b: (a @ b).tanh(), (x, w))


print(DynamicShapeCond()(torch.arange(3.0)), DynamicShapeCond()(torch.arange(5.0)))
w = torch.full((2, 2), 0.5, requires_grad=True)
for sign in (1, -1):
    y = DataCond()(sign * torch.ones(3, 2), w)
    print(y.detach(), torch.autograd.grad(y.sum(), w)[0])
print(while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), torch.ones(2))))
carry, ys = scan(lambda c, x: (c * 0.5 + x, c * x), torch.zeros(2), torch.arange(8.0).reshape(4, 2))
print(carry, ys)
print(associative_scan(lambda a, b: a * b, torch.arange(1.0, 5.0), 0, combine_mode="generic"))
try:
    torch.cond(torch.tensor([True, False]), lambda: 1, lambda: 2)
except RuntimeError as e:
    print(str(e)[:50])


@torch.jit.script
def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


class MyDecisionGate(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class MyCell(nn.Module):
    def __init__(self, dg):
        super().__init__()
        self.dg = dg
        self.linear = nn.Linear(4, 4)

    def forward(self, x, h):
        new_h = torch.tanh(self.dg(self.linear(x)) + h)
        return new_h, new_h


class MyRNNLoop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.jit.script(MyCell(torch.jit.script(MyDecisionGate())))

    def forward(self, xs: torch.Tensor):
        h, y = torch.zeros(3, 4), torch.zeros(3, 4)
        for i in range(xs.size(0)):
            y, h = self.cell(xs[i], h)
        return y, h


loop = MyRNNLoop()
for p in loop.parameters():
    p.data = torch.linspace(-0.5, 0.5, p.numel()).reshape(p.shape)
scripted = torch.jit.script(loop)
xs = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
with open("pipe.txt", "w") as file:
    file.write("one two")
print(collatz(27), torch.allclose(scripted(xs)[0], loop(xs)[0]), loop(xs)[1].sum())
traced = torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Identity()), xs)
print(traced(xs).shape, torch.jit.is_tracing())

# ---- data pipes
pipe = IterableWrapper(range(10)).filter(lambda x: x % 2 == 0).map(lambda x: x * x)
print(list(pipe), list(pipe.batch(2)), list(IterableWrapper("ab").zip(IterableWrapper([1, 2]))))
one, two = IterableWrapper(range(6)).fork(2)
print(list(one.concat(two)), list(IterableWrapper(range(6)).sharding_filter()))
evens, odds = IterableWrapper(range(6)).demux(2, lambda x: x % 2)
mapped = SequenceWrapper(range(5)).map(lambda x: x * 2)
print(
    list(mapped.batch(2)),
    mapped.zip(SequenceWrapper("abcde"))[1],
    len(mapped.concat(mapped)),
    sorted(mapped.shuffle()),
)
for path, stream in IterableWrapper(["pipe.txt"]).open_files(mode="t"):
    print(path, stream.read())
    stream.close()
print(
    list(IterableWrapper(["."]).list_files("pipe*")),
    list(IterableWrapper(range(9)).groupby(lambda x: x % 3, group_size=2, keep_key=True)),
)
print(
    list(evens),
    list(odds),
    list(IterableWrapper([[1, 2], [3]]).unbatch()),
    list(IterableWrapper(range(7)).batch(3, drop_last=True)),
)
print(
    list(IterableWrapper(["a1", "b1", "a2"]).groupby(lambda s: s[0])),
    list(IterableWrapper([1, 2]).mux(IterableWrapper([10, 20]))),
)


class Stream(IterableDataset):
    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return iter(range(self.start, self.end))
        per = -(-(self.end - self.start) // info.num_workers)
        first = self.start + info.id * per
        return iter(range(first, min(first + per, self.end)))


print(sorted(torch.cat(list(DataLoader(Stream(3, 10), num_workers=2, batch_size=2))).tolist()))
print([b.tolist() for b in DataLoader(Stream(0, 5), batch_size=2)])

# ---- futures, threads of a graph, defaults
fut = torch.futures.Future()
done = fut.then(lambda f: f.value() + 1)
fut.set_result(torch.tensor(1))
print(done.wait(), torch.futures.wait_all([fut, done]))
waited = torch.jit.fork(lambda a: a * 2, torch.ones(2))
print(torch.jit.wait(waited))
with torch.device("meta"):
    print(torch.ones(2).device, nn.Linear(2, 2).weight.device)
torch.set_default_device("cpu")
torch.set_default_dtype(torch.float64)
print(
    torch.ones(1).dtype,
    torch.tensor(1.5).dtype,
    nn.Linear(1, 1).weight.dtype,
    torch.complex(torch.ones(1), torch.ones(1)).dtype,
)
torch.set_default_dtype(torch.float32)
print(
    torch.get_default_dtype(),
    torch.promote_types(torch.int8, torch.uint8),
    torch.result_type(torch.ones(1, dtype=torch.int32), 1.5),
    torch.can_cast(torch.float, torch.int),
)
for name in ("bfloat16", "float16"):
    info = torch.finfo(getattr(torch, name))
    print(name, info.max, info.eps, info.tiny, info.bits)
with torch.inference_mode():
    z = torch.ones(2) * 2
print(z.is_inference(), torch.is_grad_enabled())
try:
    z.requires_grad_()
except RuntimeError as e:
    print("on inference tensor" in str(e))
with torch.autograd.set_grad_enabled(False), torch.random.fork_rng():
    torch.manual_seed(3)
    print((torch.ones(1, requires_grad=True) * 2).requires_grad)
shared = torch.zeros(2).share_memory_()
print(shared.is_shared(), np.asarray(shared), torch.from_dlpack(shared), memoryview(shared.numpy()).shape)
