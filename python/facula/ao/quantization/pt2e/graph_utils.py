"""Queries of exported graphs: kinds of calls, chains of calls, arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from .... import _C, nn
from ...._ops import ops
from ....fx import GraphModule, Node
from ....nn import functional as F

_f = _C.functions
_aten = ops.aten

CONVOLUTIONS = (_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default)
TRANSPOSED = (
    _aten.conv_transpose1d.default,
    _aten.conv_transpose2d.default,
    _aten.conv_transpose3d.default,
)
LINEAR = (_aten.linear.default,)
NORMS = (_aten.batch_norm.default,)
ADDITIONS = (_aten.add.Tensor,)
PRODUCTS = (_aten.mul.Tensor,)
RELUS = (_aten.relu.default,)

# The functions and modules of users that become a call of an operator.
SOURCES: dict[Any, tuple[Any, ...]] = {
    _aten.linear.default: (nn.Linear, F.linear),
    _aten.conv1d.default: (nn.Conv1d, F.conv1d),
    _aten.conv2d.default: (nn.Conv2d, F.conv2d),
    _aten.conv3d.default: (nn.Conv3d, F.conv3d),
    _aten.conv_transpose1d.default: (nn.ConvTranspose1d, F.conv_transpose1d),
    _aten.conv_transpose2d.default: (nn.ConvTranspose2d, F.conv_transpose2d),
    _aten.conv_transpose3d.default: (nn.ConvTranspose3d, F.conv_transpose3d),
    _aten.batch_norm.default: (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, F.batch_norm),
    _aten.relu.default: (nn.ReLU, F.relu, _f.relu),
    _aten.hardtanh.default: (nn.Hardtanh, nn.ReLU6, F.hardtanh, F.relu6),
    _aten.hardswish.default: (nn.Hardswish, F.hardswish),
    _aten.silu.default: (nn.SiLU, F.silu),
    _aten.gelu.default: (nn.GELU, F.gelu),
    _aten.leaky_relu.default: (nn.LeakyReLU, F.leaky_relu),
    _aten.tanh.default: (nn.Tanh, _f.tanh),
    _aten.sigmoid.default: (nn.Sigmoid, _f.sigmoid),
    _aten.add.Tensor: (operator.add, operator.iadd, _f.add, "add", "add_"),
    _aten.mul.Tensor: (operator.mul, operator.imul, _f.mul, "mul", "mul_"),
    _aten.cat.default: (_f.cat,),
    _aten.matmul.default: (_f.matmul, operator.matmul),
    _aten.max_pool2d.default: (nn.MaxPool2d, F.max_pool2d),
    _aten.avg_pool2d.default: (nn.AvgPool2d, F.avg_pool2d),
    _aten.adaptive_avg_pool2d.default: (nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d),
    _aten.embedding.default: (nn.Embedding, F.embedding),
    _aten.dropout.default: (nn.Dropout, F.dropout),
}


def is_call(node: Any, targets: Iterable[Any]) -> bool:
    """Returns whether a node calls one of these operators."""
    return isinstance(node, Node) and node.op == "call_function" and node.target in targets


def calls(model: GraphModule, targets: Iterable[Any]) -> list[Node]:
    """Returns the calls of these operators, in order."""
    return [n for n in model.graph.nodes if is_call(n, targets)]


def chain_to(last: Node, kinds: list[tuple]) -> list[Node] | None:
    """Returns the calls of operators of these kinds that end in ``last``, or None.

    Nothing but the next call reads the result of a call.
    """
    if not is_call(last, kinds[-1]):
        return None
    if len(kinds) == 1:
        return [last]
    both = last.target in ADDITIONS + PRODUCTS
    for source in last.args[: 2 if both else 1]:
        if is_call(source, kinds[-2]) and len(source.users) == 1:
            front = chain_to(source, kinds[:-1])
            if front is not None:
                return [*front, last]
    return None


def chains(model: GraphModule, kinds: list[tuple]) -> list[list[Node]]:
    """Returns all chains of calls of these kinds."""
    candidates = (chain_to(n, kinds) for n in model.graph.nodes)
    return [c for c in candidates if c is not None]


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Returns an argument by position or name."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def attribute(model: nn.Module, path: str) -> Any:
    """Returns a member of a module by its path."""
    owner, _, name = path.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def find_sequential_partitions(
    gm: GraphModule,
    partition_types: list[Any],
    include_functional_equivalent: bool = True,
    filter_fn: Callable[[Node], bool] | None = None,
) -> list[tuple]:
    """Returns the partitions of calls that follow each other, given as modules or functions."""
    from ....fx.passes.utils.source_matcher_utils import partition_of

    kinds = [tuple(t for t, sources in SOURCES.items() if kind in sources) for kind in partition_types]
    if not all(kinds):
        unknown = partition_types[kinds.index(())]
        raise ValueError(f"find_sequential_partitions: no operator is known for {unknown}")
    matches = chains(gm, kinds)
    if filter_fn is not None:
        matches = [c for c in matches if all(map(filter_fn, c))]
    return [tuple(partition_of(n, kind) for n, kind in zip(c, partition_types)) for c in matches]
