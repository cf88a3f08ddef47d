"""fx.passes on exported and on symbolically traced graphs."""

import operator

import pytest
from facula.export import export
from facula.fx import passes, symbolic_trace
from facula.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from facula.fx.passes.dialect.common.cse_pass import CSEPass
from facula.fx.passes.fake_tensor_prop import FakeTensorProp
from facula.fx.passes.graph_drawer import FxGraphDrawer
from facula.fx.passes.graph_manipulation import get_size_of_all_nodes
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
from facula.fx.passes.split_utils import split_by_tags
from facula.fx.passes.splitter_base import _SplitterBase, _SplitterSettingBase
from facula.fx.passes.tools_common import legalize_graph, stable_topological_sort
from facula.fx.passes.utils.fuser_utils import erase_nodes, fuse_as_graphmodule, insert_subgm

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


# ---- sizes among nodes, tags, sizes in bytes, merged calls


def with_sizes(x):
    y = x + 1
    n = y.size(0)
    return y.reshape(n * 2, -1).relu() * 3


def add_like(names):
    return create_op_support(lambda modules, n: getattr(n.target, "__name__", n.target) in names)


def test_nodes_that_pass_sizes_stay_in_one_part():
    facula.manual_seed(0)
    gm = symbolic_trace(with_sizes)
    every = add_like(["add", "size", "mul", "reshape", "relu"])
    split = _SplitterBase(gm, [X], every, _SplitterSettingBase())
    assert len(split.fusions) == 3 and {len(g) for g in split.fusions.values()} == {3}  # size, mul, reshape
    assert [p.is_acc for p in split.put_nodes_into_subgraphs()] == [True]
    # Where the reshape is not supported, the nodes that compute its sizes are not either.
    some = _SplitterBase(gm, [X], add_like(["add", "size", "mul", "relu"]), _SplitterSettingBase())
    assert {n.name for n in some.acc_nodes} == {"add", "relu", "mul_1"}
    result = some.generate_split_results()
    assert list(result.submodule_inputs) == [n for n, _ in result.split_module.named_children()]
    assert facula.equal(result.split_module(X), gm(X))
    (given,) = result.submodule_inputs["_run_on_acc_0"]
    assert facula.equal(given, X)


def test_nodes_out_of_order_are_sorted_stably():
    gm = symbolic_trace(lambda x: (x + 1) * (x + 2))
    add, add_1, mul = (n for n in gm.graph.nodes if n.op == "call_function")
    mul.append(add)  # behind the node that reads it
    assert [n.name for n in stable_topological_sort(gm).graph.nodes][1:4] == ["add_1", "add", "mul"]
    gm.recompile()
    assert facula.equal(gm(X), (X + 1) * (X + 2))


def test_a_graph_is_split_by_tags():
    gm = symbolic_trace(net())
    for n in gm.graph.nodes:
        if n.op == "call_module":
            n.tag = "low" if int(n.target) < 2 else "high"
    parts, names = split_by_tags(gm, ["low", "high"], return_fqn_mapping=True)
    assert [n for n, _ in parts.named_children()] == ["low", "high"] and names["low.0"] == "0"
    assert facula.equal(parts(X), gm(X))
    with pytest.raises(AssertionError, match="reads _1 of the later part low"):
        split_by_tags(gm, ["high", "low"])


def test_sizes_of_nodes_are_recorded_in_bytes():
    gm = symbolic_trace(net())
    get_size_of_all_nodes(gm, [X])
    sizes = {n.name: n.size_bytes for n in gm.graph.nodes if n.op != "output"}
    assert sizes["x" if "x" in sizes else "input_1"].output_size == 3 * 4 * 4
    assert sizes["_0"] == (3 * 8 * 4, 3 * 8 * 4 + (4 * 8 + 8) * 4)


def test_equal_calls_are_merged_and_random_ones_are_not():
    aten = facula.ops.aten

    def twice(x):
        return aten.sin.default(x) + aten.sin.default(x), aten.rand_like.default(x) - aten.rand_like.default(
            x
        )

    gm = symbolic_trace(twice)
    merged = CSEPass()(gm)
    assert merged.modified
    targets = [str(n.target) for n in merged.graph_module.graph.nodes if n.op == "call_function"]
    assert targets.count("aten.sin.default") == 1 and targets.count("aten.rand_like.default") == 2
    assert facula.equal(merged.graph_module(X)[0], gm(X)[0])
    assert not CSEPass()(merged.graph_module).modified
    module = exported()
    result = CSEPass()(module).graph_module
    assert facula.equal(result(X), module(X))


def test_metadata_is_found_without_computing():
    gm = symbolic_trace(net())
    assert FakeTensorProp(gm).propagate(X).device.type == "meta"
    (last,) = [n for n in gm.graph.nodes if n.name == "_4"]
    assert tuple(last.meta["tensor_meta"].shape) == (3, 2) and last.meta["val"].is_meta


def test_nodes_are_fused_and_the_call_put_in_their_place():
    gm = symbolic_trace(lambda x: ((x + 1).relu(), (x + 1) * 2))
    chosen = [n for n in gm.graph.nodes if n.op in ("call_function", "call_method")]
    fused, inputs, outputs = fuse_as_graphmodule(gm, chosen, "Fused")
    assert [n.name for n in inputs] == ["x"] and len(outputs) == 2
    expected = gm(X)
    insert_subgm(gm, fused, inputs, outputs)
    erase_nodes(gm, chosen)
    gm.graph.lint()
    gm.recompile()
    assert all(facula.equal(a, b) for a, b in zip(gm(X), expected, strict=True))
    assert [n.op for n in gm.graph.nodes].count("call_module") == 1


def test_parts_lose_the_views_at_their_ends():
    gm = symbolic_trace(lambda x: (x.t() + 1).t())
    partitioner = CapabilityBasedPartitioner(
        gm, add_like(["t", "add"]), allows_single_node_partition=True, non_compute_ops=["t"]
    )
    (part,) = partitioner.propose_partitions()
    assert part.size() == 3
    partitioner.remove_bookend_non_compute_ops([part])
    assert [n.name for n in part.nodes] == ["add"]


def test_items_of_annotated_sequences_have_types():
    graph = facula.fx.Graph()
    x = graph.placeholder("x", type_expr=tuple[int, facula.Tensor])
    first, second = (graph.call_function(operator.getitem, (x, k)) for k in range(2))
    graph.output(second)
    annotate_getitem_nodes(graph)
    assert first.type is int and second.type is facula.Tensor
