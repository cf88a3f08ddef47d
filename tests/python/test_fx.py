"""Programs traced into graphs look, change and run as PyTorch's do: tests/golden/fx.txt has its texts."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from support import fx_programs

import facula
from facula import fx, nn

RECORDED = Path(__file__).parents[1] / "golden" / "fx.txt"
GOLDEN = dict(map(json.loads, RECORDED.read_text().splitlines()))


@pytest.fixture(scope="session")
def ours():
    return {k: v.replace("facula", "torch") for k, v in fx_programs.answers(facula).items()}


def test_the_same_programs_are_recorded(ours):
    assert list(ours) == list(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_graphs_are_those_of_pytorch(ours, name):
    assert ours[name] == GOLDEN[name]


@pytest.mark.parametrize("name", [k for k, v in fx_programs.tracked(facula).items() if v[2]])
def test_traced_programs_compute_what_they_did(name):
    root, concrete, arguments = fx_programs.tracked(facula)[name]
    expected = root(*copy.deepcopy(arguments))
    traced = fx.symbolic_trace(root, concrete or None)
    for program in (traced, copy.deepcopy(traced), copy.copy(traced)):
        assert facula.equal(program(*copy.deepcopy(arguments)), expected)
    result = fx.Interpreter(traced).run(*copy.deepcopy(arguments))
    assert facula.equal(result, expected)


def test_parameters_are_shared_and_trained():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    traced = fx.symbolic_trace(model)
    assert [p is q for p, q in zip(model.parameters(), traced.parameters())] == [True] * 4
    x = facula.ones(3, 2)
    traced(x).sum().backward()
    assert model[0].weight.grad is not None
    copied = copy.deepcopy(traced)
    assert not any(p is q for p, q in zip(copied.parameters(), traced.parameters()))
    assert facula.equal(pickle.loads(pickle.dumps(traced))(x), model(x))


def test_modules_are_fast_again_after_tracing():
    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("stop")

    model = nn.Linear(1, 1)
    with pytest.raises(KeyError):
        fx.symbolic_trace(Failing())
    assert not fx._symbolic_trace.is_fx_tracing()
    assert not {"__call__", "__getattr__", "__getattribute__"} & set(vars(nn.Module))
    assert isinstance(model.weight, nn.Parameter) and model(facula.ones(1, 1)).shape == (1, 1)


def test_code_is_written_to_a_folder(tmp_path, monkeypatch):
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    traced.to_folder(tmp_path / "written", "Written")
    monkeypatch.syspath_prepend(str(tmp_path))
    from written import Written

    x = facula.randn(3, 2)
    assert facula.equal(Written()(x), traced(x))


def test_classes_that_ask_for_it_are_made_in_the_graph():
    class Pair(metaclass=fx.ProxyableClassMeta):
        def __init__(self, left, right):
            self.left, self.right = left, right

        def sum(self):
            return self.left + self.right

    def program(x, y):
        return Pair(x, y).sum() * x

    traced = fx.symbolic_trace(program)
    assert [n.op for n in traced.graph.nodes].count("call_method") == 1
    assert traced(facula.tensor(2.0), facula.tensor(3.0)).item() == 10


def test_filters_and_callbacks_choose_replacements():
    from facula.fx.subgraph_rewriter import replace_pattern_with_filters

    def program(x):
        return facula.add(x, 1) * facula.add(x, 2)

    def pattern(x):
        return facula.add(x, 1)

    def is_two(match, graph, pattern):
        return next(n for n in match.nodes_map.values() if n.op == "call_function").args[1] == 2

    traced = fx.symbolic_trace(program)
    found = replace_pattern_with_filters(
        traced, pattern, lambda x: x.neg(), match_filters=[is_two], ignore_literals=True
    )
    assert len(found) == 1 and [n.target for n in found[0].replacements] == ["neg"]
    assert traced(facula.tensor(3.0)).item() == -12
    found = replace_pattern_with_filters(
        traced, pattern, replacement_callback=lambda *_: fx.symbolic_trace(lambda x: x.exp()).graph
    )
    assert len(found) == 1 and traced(facula.tensor(0.0)).item() == 0


def test_stack_traces_are_recorded_where_asked():
    class Recording(fx.Tracer):
        record_stack_traces = True

    graph = Recording().trace(lambda x: x.relu() + 1)
    assert all("test_fx.py" in n.stack_trace for n in graph.nodes if n.op.startswith("call"))


def test_norms_are_folded_into_the_layer_before_and_dropouts_removed():
    from facula.fx.experimental.optimization import fuse, remove_dropout

    nn = facula.nn
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.BatchNorm1d(4),
    )
    x = facula.randn(5, 1, 4, 4)
    model(x)  # running statistics of its own
    model.eval()
    fused = fuse(model)
    assert [type(m).__name__ for m in fused.children()] == ["Conv2d", "Dropout", "Flatten", "Linear"]
    assert facula.allclose(fused(x), model(x), atol=1e-6) and len(model) == 6
    assert [n for n, _ in remove_dropout(model).named_children()] == ["0", "1", "3", "4", "5"]


def test_asking_whether_something_is_a_proxy_loads_no_tracer():
    program = "import sys, facula.fx as fx; assert not isinstance(1, fx.Proxy); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "facula.fx.proxy" in loaded.stdout.split()
    assert not {"facula.fx." + m for m in ("_symbolic_trace", "interpreter")} & set(loaded.stdout.split())
    assert {"Tracer", "GraphModule", "passes", "replace_pattern"} <= set(dir(fx))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fx.nothing  # noqa: B018


def recorded(f, *concrete):
    """What tracing ``f(x, y)`` records between its inputs and the output."""
    traced = fx.symbolic_trace(f)
    return traced, [n for n in traced.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]


# A value of the traced program in the place of a size, a number, a dtype, a device, an item of a list.
WITH_VALUES = {
    "size of a reshape": lambda x, y: facula.reshape(y, (y.shape[0], 12)),
    "size by keyword": lambda x, y: facula.reshape(y, shape=(y.shape[0], 12)),
    "sizes one by one": lambda x, y: facula.zeros(2, y.shape[0]),
    "first of sizes one by one": lambda x, y: facula.zeros(y.shape[0], 2),
    "all sizes": lambda x, y: facula.zeros(y.shape),
    "dtype": lambda x, y: facula.zeros(2, dtype=y.dtype),
    "device": lambda x, y: facula.zeros(2, device=y.device),
    "layout": lambda x, y: facula.zeros(2, layout=y.layout),
    "memory of a result": lambda x, y: facula.add(facula.ones(2), 1, out=x),
    "requires_grad": lambda x, y: facula.zeros(2, requires_grad=y.requires_grad),
    "filling number": lambda x, y: facula.full((2,), y.shape[0]),
    "bound": lambda x, y: facula.arange(y.shape[0], device=y.device),
    "length": lambda x, y: facula.narrow(y, 0, 0, y.shape[0]),
    "split": lambda x, y: facula.split(y, [y.shape[0] - 1, 1])[0],
    "padding": lambda x, y: nn.functional.pad(y, (y.shape[0], 1)),
    "shift": lambda x, y: facula.roll(y, y.shape[0]),
    "normalized shape": lambda x, y: nn.functional.layer_norm(y, (y.shape[-1],)),
    "k": lambda x, y: facula.topk(y, y.shape[0])[0],
    "number of a plain tensor": lambda x, y: facula.clamp(facula.ones(2), y.shape[0], y.shape[1]),
    "alpha": lambda x, y: facula.add(facula.ones(2), facula.ones(2), alpha=y.shape[0]),
    "flag": lambda x, y: facula.sum(facula.ones(2), 0, keepdim=y.is_floating_point()),
    "kernel": lambda x, y: nn.functional.max_pool2d(facula.ones(1, 1, 4, 4), y.shape[0]),
    "list in a list": lambda x, y: facula.tensordot(
        facula.ones(2, 2), facula.ones(2, 2), ([y.shape[0] - 2], [0])
    ),
    "size of a method": lambda x, y: facula.ones(4).reshape(y.shape[0], -1),
    "expansion": lambda x, y: facula.ones(1).expand(3, y.shape[0]),
    "dtype of a method": lambda x, y: facula.ones(3).to(y.dtype),
    "dimension of a method": lambda x, y: facula.ones(3, 2).size(y.shape[0] - 2),
    "new zeros": lambda x, y: facula.ones(3).new_zeros(y.shape[0]),
    "data type of data": lambda x, y: facula.tensor([1, 2], dtype=y.dtype),
    "index": lambda x, y: facula.arange(9)[y.shape[0]],
    "one of several indices": lambda x, y: facula.ones(3, 4)[:, y.shape[0]],
    "promotion": lambda x, y: facula.zeros(2, dtype=facula.promote_types(y.dtype, facula.int64)),
    "device by name": lambda x, y: facula.zeros(2, device=facula.device(y.device)),
    "operator by name": lambda x, y: facula.ops.aten.reshape(facula.ones(4), [y.shape[0], 2]),
    "operands in a list": lambda x, y: facula.einsum("ij,ik->jk", [y, y]),
    "operands in turn": lambda x, y: facula.einsum("ij,ik->jk", y, y),
}


@pytest.mark.parametrize("what", WITH_VALUES)
def test_a_proxy_may_stand_for_an_argument_of_any_kind(what):
    f = WITH_VALUES[what]
    x, y = facula.ones(2), facula.arange(24.0).view(2, 12)
    traced, nodes = recorded(f)
    assert nodes
    assert str(traced(x, y)) == str(f(x, y))


def test_einsum_records_its_operands_one_by_one():
    for f in (lambda x, y: facula.einsum("ij,jk", [x, y]), lambda x, y: facula.einsum("ij,jk", x, y)):
        (node,) = recorded(f)[1]
        assert [str(a) for a in node.args] == ["ij,jk", "x", "y"] and node.target is facula.functional.einsum


def test_assertions_are_recorded():
    def f(x, y):
        facula._assert(y.shape[0] == 2, "two rows")
        return y

    traced, nodes = recorded(f)
    assert nodes[-1].target is facula._assert
    assert traced(None, facula.ones(2)).sum() == 2
    with pytest.raises(AssertionError, match="two rows"):
        traced(None, facula.ones(3))


def test_parameters_of_modules_with_a_getattr_of_their_own_are_recorded():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(facula.tensor([2.0]))

        def __getattr__(self, name):
            return super().__getattr__("scale" if name == "factor" else name)

        def forward(self, x):
            return x * self.factor + self.scale

    traced = fx.symbolic_trace(Renamed())
    assert [n.target for n in traced.graph.nodes if n.op == "get_attr"] == ["scale"]
    assert traced(facula.ones(1)).item() == 4


def test_gradients_are_recorded():
    (node,) = recorded(lambda x, y: facula.autograd.grad(y, [x]))[1]
    assert node.target is facula.autograd.grad and [str(a) for a in node.args[0] + node.args[1]] == ["y", "x"]


def test_operators_of_namespaces_are_recorded_as_such(tmp_path):
    @facula.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: facula.Tensor, by: int) -> facula.Tensor:
        return x * by

    ops = facula.ops
    for f, target, text in (
        (lambda x, y: ops.tests.scaled(x, 2), ops.tests.scaled, "facula.ops.tests.scaled(x, 2)"),
        (
            lambda x, y: ops.tests.scaled.default(x, 2),
            ops.tests.scaled.default,
            "facula.ops.tests.scaled.default(x, 2)",
        ),
        (lambda x, y: scaled(x, 2), ops.tests.scaled.default, "facula.ops.tests.scaled.default(x, 2)"),
        (lambda x, y: ops.aten.mul.Tensor(x, 2), ops.aten.mul.Tensor, "facula.ops.aten.mul.Tensor(x, 2)"),
        (lambda x, y: ops.aten.add_(x, x), ops.aten.add_, "facula.ops.aten.add_(x, x)"),
    ):
        traced, (node,) = recorded(f)
        assert node.target is target and text in traced.code
        assert traced(facula.ones(2), None).tolist() == [2, 2]
        traced.to_folder(tmp_path / node.name, "Traced")
        assert text in (tmp_path / node.name / "module.py").read_text()


def test_a_graph_is_printed_as_the_table_that_pytorch_prints(capsys):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(x)

    fx.Tracer().trace(Root()).print_tabular()
    assert capsys.readouterr().out.splitlines() == [
        "opcode       name    target    args     kwargs",
        "-----------  ------  --------  -------  --------",
        "placeholder  x       x         ()       {}",
        "call_module  relu    relu      (x,)     {}",
        "output       output  output    (relu,)  {}",
    ]


def test_a_tracer_of_another_package_patches_modules_under_pytorch_names():
    """As graph libraries do, which write their own ``trace`` with the parts of this module."""
    from facula.fx import _symbolic_trace as parts

    class Leaves(fx.Tracer):
        @parts.compatibility(is_backward_compatible=True)
        def trace(self, root, concrete_args=None):
            self.root, self.graph, self.tensor_attrs = root, fx.Graph(tracer_cls=type(self)), {}
            self.submodule_paths = {m: name for name, m in root.named_modules()}
            fn, args = self.create_args_for_root(type(root).forward, True, concrete_args)

            def call(module, *args, **kwargs):
                return self.call_module(
                    module, lambda *a, **k: parts._orig_module_call(module, *a, **k), args, kwargs
                )

            def attribute(module, name):
                return self.getattr(name, parts._orig_module_getattr(module, name), {})

            with parts._Patcher() as patcher:
                patcher.patch_method(nn.Module, "__getattr__", attribute, deduplicate=False)
                patcher.patch_method(nn.Module, "__call__", call, deduplicate=False)
                parts._patch_wrapped_functions(patcher)
                parts._autowrap_check(patcher, {}, self._autowrap_function_ids)
                self.create_node("output", "output", (self.create_arg(fn(*args)),), {}, type_expr=None)
            return self.graph

    m = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    traced = fx.GraphModule(m, Leaves().trace(m))
    assert [n.op for n in traced.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    x = facula.randn(4, 2)
    assert facula.equal(traced(x), m(x)) and nn.Module.__call__ is parts._orig_module_call
