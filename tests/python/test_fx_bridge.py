"""The bridge between programs and fx: a program's graph becomes nodes, whose trace is the program again."""

import re

import facula._C as C
import pytest
from facula.fx import Graph, GraphModule, Interpreter
from facula.fx._bridge import graph_of, module_of
from facula.program import trace
from support import operators
from support.operators import arguments, usual_dtype

import facula
from facula import nn

CASES = [c for c in operators.cases() if not c.writes and c.samples]


def flat(results):
    if isinstance(results, (tuple, list)):
        return [t for r in results for t in flat(r)]
    return [results] if isinstance(results, facula.Tensor) else []


def same(a, b):
    a, b = (t.detach().to(facula.complex128 if t.is_complex() else t.dtype) for t in (a, b))
    assert a.dtype == b.dtype and a.shape == b.shape
    assert facula.equal(a, b) or facula.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6, equal_nan=True)


def reads_elements(error):
    return isinstance(error, (NotImplementedError, RuntimeError)) and re.search(
        "device|elements|data|symbol|size|no program|graph|generator|sparse|traced", str(error)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_operator_goes_to_fx_and_back(case):
    compared = 0
    for number in range(min(len(case.samples), 3)):
        args = arguments(case, number, usual_dtype(case))
        tensors = {k: v for k, v in args.items() if isinstance(v, facula.Tensor)}
        rest = {k: v for k, v in args.items() if k not in tensors}

        def call(*given, names=tuple(tensors), rest=rest):
            return getattr(C.ops, case.base)(**dict(zip(names, given)), **rest)

        try:
            facula.manual_seed(5)
            program = trace(call, *tensors.values())
        except Exception as e:
            if reads_elements(e):
                continue  # no program has this call, so neither has fx
            raise
        module = module_of(program)
        module.graph.lint()
        given = [*tensors.values(), *program.captured]
        again = trace(module, *given)
        assert str(again) == str(trace(module_of(again), *given))  # the second round changes nothing
        facula.manual_seed(5)
        expected = flat(program(*tensors.values()))
        for run in (module, again, Interpreter(module).run):
            facula.manual_seed(5)
            got = flat(run(*given))[: len(expected)]
            if not case.random and case.base not in operators.UNDEFINED:
                for a, b in zip(got, expected, strict=True):
                    same(a, b)
        compared += 1
    if not compared:
        pytest.skip("no program can contain the operator's samples")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        y = y + self.attend(y, y, y, need_weights=False)[0]
        return self.last(self.rnn(y)[0]).log_softmax(-1)


def test_a_model_with_symbolic_sizes_goes_to_fx_and_back():
    facula.manual_seed(0)
    net = Block().eval()
    x = facula.rand(3, 2, 5, 4)
    program = trace(net, x)
    module = module_of(program)
    again = trace(module, x, *program.captured)
    same(again(x, *program.captured)[0], net(x))

    sizes = trace(lambda t: t.view(t.size(0), -1).repeat(2, 1) * t.shape[2], x, dynamic=True)
    module = module_of(sizes)
    assert "sym_size" in module.code
    y = facula.rand(6, 2, 7, 8)
    for run in (module, trace(module, x, dynamic=True)):
        same(run(y)[0], y.view(6, -1).repeat(2, 1) * 7)


def test_gradients_of_a_training_step_are_nodes():
    w = facula.randn(3, 2, requires_grad=True)

    def step(x):
        (g,) = facula.autograd.grad((x @ w).tanh().sum(), w)
        return g

    program = trace(step, facula.rand(4, 3))
    module = module_of(program)
    assert any("backward" in str(n.target) for n in module.graph.nodes)
    x = facula.rand(4, 3)
    same(module(x, w)[0], program(x))


def test_nodes_have_atens_names_and_overloads_and_metadata():
    lowered = graph_of(trace(lambda x, y: ((x + y) * 2).sum(1).max(0), facula.ones(2, 3), facula.ones(3)))
    targets = [str(n.target) for n in lowered.graph.nodes if n.op == "call_function"]
    assert targets[:4] == ["aten.add.Tensor", "aten.mul.Tensor", "aten.sum.dim_IntList", "aten.max.dim"]
    node = next(n for n in lowered.graph.nodes if n.name == "sum_1")
    assert node.meta["val"].shape == (2,) and node.meta["val"].dtype == facula.float32


def test_a_graph_that_users_write_is_traced():
    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(facula.ops.aten.mul.Tensor, (x, graph.call_method("relu", (x,)))))
    program = trace(GraphModule({}, graph), facula.ones(2))
    assert "relu" in str(program) and "mul" in str(program)
    assert program(facula.tensor([-2.0, 3.0])).tolist() == [-0.0, 9.0]
