"""Programs about programs: scripted helpers, traces, symbolic graphs of a CNN rewritten, interpreted, profiled, checkpointed."""

import io
import operator
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.optimization import fuse
from torch.fx.passes.shape_prop import ShapeProp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

rng = np.random.RandomState(17)


@torch.jit.script
def fused_gelu(x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    if bias is not None:
        x = x + bias
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


@torch.jit.script_if_tracing
def sizes(x: Tensor) -> List[int]:
    return [int(s) for s in x.shape]


class Out(NamedTuple):
    value: Tensor
    count: int


class Cell(torch.jit.ScriptModule):
    __constants__ = ["steps"]

    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps
        self.weight = nn.Parameter(torch.eye(3) * 0.5)

    @torch.jit.script_method
    def forward(self, x: Tensor) -> Tuple[Tensor, Dict[str, Tensor]]:
        kept: Dict[str, Tensor] = torch.jit.annotate(Dict[str, Tensor], {})
        for i in range(self.steps):
            x = torch.tanh(x @ self.weight) + i
            kept[str(i)] = x
        return x, kept


class Decoder(nn.Module):
    limit: torch.jit.Final[int]

    def __init__(self):
        super().__init__()
        self.limit = 3
        self.cell = nn.GRUCell(3, 3)

    @torch.jit.export
    def start(self, n: int) -> Tensor:
        return torch.zeros(n, 3)

    @torch.jit.ignore
    def note(self, x: Any) -> None:
        self.noted = x

    @torch.jit.unused
    def never(self):
        raise NotImplementedError

    def forward(self, x: Tensor, lengths: Optional[List[int]] = None) -> Out:
        h = self.start(len(x))
        for _ in range(self.limit):
            h = self.cell(x, h)
        if torch.jit.is_scripting():
            return Out(h, -1)
        self.note("called")
        return Out(h, self.limit if lengths is None else len(lengths))


x = torch.linspace(-1, 1, 6).view(2, 3)
print([round(v, 4) for v in fused_gelu(x, torch.ones(3)).flatten().tolist()], sizes(x))
y, kept = Cell(2)(x)
print([round(v, 4) for v in y[0].tolist()], sorted(kept), torch.jit.isinstance(kept, Dict[str, Tensor]))
decoder = Decoder()
for p in decoder.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype("f"))
scripted = torch.jit.script(decoder)
print(
    [round(v, 4) for v in decoder(x).value[1].tolist()],
    decoder(x, [1, 2]).count,
    tuple(scripted.start(2).shape),
)
traced = torch.jit.trace(lambda a, b: (a * b).sum(-1), (x, x))
print([round(v, 4) for v in traced(x, x + 1).tolist()])
future = torch.jit.fork(torch.add, x, 1)
print(torch.equal(torch.jit.wait(future), x + 1))


@fx.wrap
def helper(x, factor):
    return x * factor if x.ndim > 3 else x


class Block(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out)

    def forward(self, x, scale: float = 1.0):
        return F.relu(self.bn(self.conv(x)) * scale)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(1, 4), Block(4, 4)])
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.head = nn.Linear(4, 3)

    def forward(self, x, mask=None):
        for block in self.blocks:
            x = x.add(block(x)) if x.shape[1] == 4 else block(x)
        x = helper(x, 2)
        x = torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
        left, right = torch.chunk(self.head(x) / self.temperature, 2, dim=1)
        return {"logits": torch.cat([left, right.neg()], 1), "size": x.size(0)}


class Tracer(fx.Tracer):
    def is_leaf_module(self, m, qualname):
        return isinstance(m, nn.BatchNorm2d) or super().is_leaf_module(m, qualname)


plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
for p in plain.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype("f"))
image = torch.from_numpy(rng.randn(2, 1, 6, 6).astype("f"))
graph = fx.symbolic_trace(plain)
print(graph.code)
ShapeProp(graph).propagate(image)
print(
    [(n.name, n.op, tuple(n.meta["tensor_meta"].shape)) for n in graph.graph.nodes if "tensor_meta" in n.meta]
)
plain.eval()
fused = fuse(plain)
print(
    "fused",
    torch.allclose(fused(image), plain(image), atol=1e-4),
    [type(m).__name__ for m in fused.children()],
)

for node in graph.graph.nodes:
    if node.op == "call_module" and isinstance(graph.get_submodule(node.target), nn.ReLU):
        with graph.graph.inserting_after(node):
            new = graph.graph.call_function(F.hardswish, (node.args[0],), {"inplace": False})
            node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
graph.delete_all_unused_submodules()
graph.graph.lint()
graph.recompile()
print(graph.graph)
expected = plain[4](F.hardswish(plain[:2](image)).flatten(1))
print("rewritten", torch.allclose(graph.eval()(image), expected, atol=1e-5))


class Counting(fx.Interpreter):
    def __init__(self, module):
        super().__init__(module)
        self.counts: Dict[str, int] = {}

    def run_node(self, n):
        self.counts[n.op] = self.counts.get(n.op, 0) + 1
        return super().run_node(n)

    def call_function(self, target, args, kwargs):
        if target is F.hardswish:
            return torch.relu(args[0])
        return super().call_function(target, args, kwargs)


counting = Counting(graph)
print("interpreted", torch.allclose(counting.run(image), plain(image), atol=1e-5), counting.counts)


def pattern(a, b):
    return torch.add(a, b).relu()


def replacement(a, b):
    return torch.maximum(torch.add(a, b), torch.zeros(()))


rewritten = fx.symbolic_trace(lambda a, b: torch.add(a, b).relu() + torch.add(b, a).relu())
print(len(fx.replace_pattern(rewritten, pattern, replacement)), [n.name for n in rewritten.graph.nodes])
try:
    fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
except torch.fx.proxy.TraceError as error:
    print("refused:", str(error)[:60])
cnn = CNN().eval()
try:
    fx.symbolic_trace(cnn)
except TypeError as error:
    print("refused:", str(error)[:60])
except torch.fx.proxy.TraceError as error:
    print("refused:", str(error)[:60])
small = Tracer().trace(Block(1, 2))
print([str(n) for n in small.nodes], tuple(cnn(image)["logits"].shape))
concrete = fx.symbolic_trace(Block(1, 2), concrete_args={"scale": 2.0})
print([n.target if isinstance(n.target, str) else n.target.__name__ for n in concrete.graph.nodes])
again = io.BytesIO()
torch.save(graph.state_dict(), again)
print(sorted(graph.state_dict())[:3])

# Memory for time.
seen: List[str] = []


def piece(v, w):
    seen.append("run")
    return torch.sin(v @ w).cos()


w = torch.from_numpy(rng.randn(3, 3)).requires_grad_()
v = torch.from_numpy(rng.randn(2, 3))
a = checkpoint(piece, v, w, use_reentrant=False).sum()
a.backward()
first = w.grad.clone()
w.grad = None
piece(v, w).sum().backward()
print("checkpointed", torch.equal(first, w.grad), len(seen))
deep = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(4)])
for p in deep.parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype("f"))
out = checkpoint_sequential(deep, 2, x.requires_grad_(), use_reentrant=False)
out.sum().backward()
grad = deep[0][0].weight.grad.clone()
deep.zero_grad()
deep(x).sum().backward()
print("in segments", torch.allclose(grad, deep[0][0].weight.grad))
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
    with torch.profiler.record_function("forward"):
        deep(x)
print("forward" in {e.key for e in prof.key_averages()}, len(prof.key_averages()) > 2)
print(operator.attrgetter("weight")(deep[0][0]).shape)
