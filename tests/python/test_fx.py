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


@pytest.fixture(scope="module")
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
    assert "__call__" not in vars(nn.Module) and "__getattribute__" not in vars(nn.Module)
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
