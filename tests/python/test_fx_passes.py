"""fx.passes on exported and on symbolically traced graphs."""

import operator

import pytest
from facula.export import export
from facula.fx import passes, symbolic_trace
from facula.fx.passes.graph_drawer import FxGraphDrawer
from facula.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from facula.fx.passes.infra.pass_base import PassBase, PassResult
from facula.fx.passes.infra.pass_manager import (
    PassManager,
    pass_result_wrapper,
    this_before_that_pass_constraint,
)
from facula.fx.passes.net_min_base import _MinimizerBase, _MinimizerSettingBase
from facula.fx.passes.operator_support import OperatorSupport, any_chain, chain, create_op_support
from facula.fx.passes.shape_prop import ShapeProp
from facula.fx.passes.split_module import split_module
from facula.fx.passes.splitter_base import _SplitterBase
from facula.fx.passes.tools_common import legalize_graph

import facula
from facula import nn


def net():
    facula.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def exported():
    return export(net(), (facula.rand(3, 4),)).module()


X = facula.rand(3, 4)
RELU, TANH = facula.ops.aten.relu.default, facula.ops.aten.tanh.default
IS_LINEAR = create_op_support(lambda modules, n: "linear" in str(n.target))


def test_shapes_are_propagated_through_exported_graphs():
    module = exported()
    ShapeProp(module).propagate(X)
    shapes = {n.name: tuple(n.meta["tensor_meta"].shape) for n in module.graph.nodes if "linear" in n.name}
    assert list(shapes.values()) == [(3, 8), (3, 8), (3, 2)]


def test_a_graph_is_split_and_computes_the_same():
    gm = symbolic_trace(net())
    parts = split_module(gm, gm, lambda n: 0 if n.name in ("_0", "_1") else 1)
    assert [n for n, _ in parts.named_children()] == ["submod_0", "submod_1"]
    assert facula.equal(parts(X), gm(X))
    module = exported()
    flat = facula.fx.GraphModule(module, module.graph)  # without the checks of arguments
    calls = [n for n in flat.graph.nodes if n.op == "call_function"]
    parts = split_module(flat, flat, lambda n: int(calls.index(n) > 1))
    assert [n for n, _ in parts.named_children()] == ["submod_0", "submod_1"]
    with pytest.raises(RuntimeError, match="cycle"):
        split_module(flat, flat, lambda n: int("linear" in n.name))


@pytest.mark.parametrize("make", [lambda: symbolic_trace(net()), exported])
def test_the_drawing_has_every_node(make):
    module = make()
    text = FxGraphDrawer(module, "net").get_dot_graph().to_string()
    assert text.startswith('digraph "net" {') and text.rstrip().endswith("}")
    for n in module.graph.nodes:
        assert f'"{n.name}" [' in text


def test_supported_nodes_are_fused_into_submodules():
    gm = symbolic_trace(lambda x: ((x + 1).relu() * 2).sin() + (x + 3).relu())
    support = create_op_support(
        lambda modules, n: (
            n.op == "call_function" and n.target in (operator.add, operator.mul) or n.target == "relu"
        )
    )
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    parts = partitioner.propose_partitions()
    assert sum(p.size() for p in parts) == 6  # all but the sine
    fused = partitioner.fuse_partitions(parts)
    assert facula.equal(fused(X), gm(X))
    assert [n.name for n in fused.graph.nodes if n.op == "call_method"] == ["sin"]


def test_no_partition_depends_on_itself():
    def f(x):
        a = x + 1
        b = a.sin()  # between two supported nodes
        return a + b

    gm = symbolic_trace(f)
    support = OperatorSupport({"_operator.add": None})
    parts = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True).propose_partitions()
    assert len(parts) == 2
    fused = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True).partition_and_fuse()
    assert facula.equal(fused(X), f(X))


def test_support_is_combined():
    gm = symbolic_trace(lambda x: facula.relu(x) + 1)
    relu, add = (n for n in gm.graph.nodes if n.op == "call_function")
    is_relu = create_op_support(lambda modules, n: n.target is facula.relu)
    assert any_chain(is_relu, IS_LINEAR).is_node_supported({}, relu)
    assert not chain(is_relu, IS_LINEAR).is_node_supported({}, relu)
    assert not is_relu.is_node_supported({}, add)


class ToTanh(PassBase):
    def call(self, graph_module):
        found = [n for n in graph_module.graph.nodes if n.target is RELU]
        for n in found:
            n.target = TANH
        return PassResult(graph_module, bool(found))


def test_passes_run_until_nothing_changes():
    module, counted = exported(), []

    def count(gm):
        counted.append(1)
        return PassResult(gm, False)

    result = PassManager([ToTanh(), count], steps=5)(module)
    assert result.modified and len(counted) == 2
    assert RELU not in {n.target for n in result.graph_module.graph.nodes}
    assert result.graph_module(X).shape == (3, 2)


def test_constraints_order_passes():
    def first(gm):
        order.append("first")

    def second(gm):
        order.append("second")

    order: list = []
    a, b = pass_result_wrapper(first), pass_result_wrapper(second)
    PassManager([b, a], constraints=[this_before_that_pass_constraint(a, b)])(symbolic_trace(net()))
    assert order == ["first", "second"]
    old = passes.pass_manager.PassManager([passes.pass_manager.inplace_wrapper(first)])
    assert isinstance(old(symbolic_trace(net())), facula.fx.GraphModule)
    with pytest.raises(Exception, match="'broken' pass"):
        PassManager([lambda_named_broken()])(symbolic_trace(net()))


def lambda_named_broken():
    def broken(gm):
        raise ValueError("no")

    return broken


def test_a_graph_is_put_in_order():
    gm = symbolic_trace(lambda x: x.sin().cos())
    sin, cos = (n for n in gm.graph.nodes if n.op == "call_method")
    cos.append(sin)  # after its user
    assert [n.name for n in legalize_graph(gm).graph.nodes] == ["x", "sin", "cos", "output"]


def test_a_module_is_split_by_support():
    gm = symbolic_trace(net())
    support = create_op_support(
        lambda modules, n: n.op == "call_module" and isinstance(modules[n.target], nn.Linear)
    )
    splitter = _SplitterBase(gm, (X,), support)
    assert "facula.nn.modules.linear.Linear: 3 node(s)" in splitter.node_support_preview()
    split = splitter()
    assert [n.target for n in split.graph.nodes if n.op == "call_module"] == [
        "_run_on_acc_1", "_run_on_cpu_2", "_run_on_acc_3", "_run_on_cpu_4", "_run_on_acc_5",
    ] or [n.target.rpartition("_")[0] for n in split.graph.nodes if n.op == "call_module"] == [
        "_run_on_acc", "_run_on_cpu", "_run_on_acc", "_run_on_cpu", "_run_on_acc",
    ]  # fmt: skip
    assert facula.equal(split(X), gm(X))


class Faulty(_MinimizerBase):
    def run_a(self, mod, inputs, report_idx=-1):
        return mod(*inputs)

    def run_b(self, mod, inputs, report_idx=-1):
        wrong = any(n.target is TANH for n in mod.graph.nodes)
        return tuple(t + wrong for t in mod(*inputs))


@pytest.mark.parametrize("method", ["sequential", "block", "accumulate"])
def test_the_node_that_differs_is_found(method):
    module = exported()
    flat = facula.fx.GraphModule(module, module.graph)
    flat.graph._codegen = facula.fx.graph.CodeGen()

    def compare(a, b, names):
        worst = max(float((x - y).detach().abs().max()) for x, y in zip(a, b))
        return worst, worst < 1e-3

    minimizer = Faulty(flat, (X,), compare, _MinimizerSettingBase(traverse_method=method))
    assert [n.name for n in minimizer.minimize()] == ["tanh"]
