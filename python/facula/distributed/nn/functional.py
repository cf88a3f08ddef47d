"""Collectives with gradients. The gradient of a collective is a collective as well: every rank that runs the
forward operation has to run backward.
"""

from __future__ import annotations

from typing import Any

from ... import _C
from ...autograd import Function
from .. import _collectives as collective
from .._collectives import _check_reduction, _check_tensor_list
from .._constants import ReduceOp
from .._groups import _outside, _resolve, _root

Tensor = _C.Tensor

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=_C.contiguous_format)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: Any, group: Any) -> Tensor:
        ctx.op, ctx.group = op, group
        result = _copy(tensor)
        collective.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _AllReduce.apply(grad, ctx.op, ctx.group), None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, group: Any) -> Tensor:
        ctx.root, ctx.group = root, group
        result = _copy(tensor)
        collective.broadcast(result, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = _Reduce.apply(grad, ctx.root, ReduceOp.SUM, ctx.group)
        is_root = _resolve(ctx.group).rank() == ctx.root
        return total if is_root else total * 0, None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, op: Any, group: Any) -> Tensor:
        ctx.root, ctx.group = root, group
        result = _copy(tensor)
        collective.reduce(result, op=op, group=group, group_dst=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Broadcast.apply(grad, ctx.root, ctx.group), None, None, None


class _Gather(Function):
    """The results on other ranks than the root are undefined: they are zeros."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, group: Any) -> tuple[Tensor, ...]:
        ctx.root, ctx.group = root, group
        pg = _resolve(group)
        results = [_C.functions.zeros_like(tensor) for _ in range(pg.size())]
        into = results if pg.rank() == root else None
        collective.gather(_copy(tensor), into, group=group, group_dst=root)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Scatter.apply(ctx.root, ctx.group, *grads), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, root: int, group: Any, *tensors: Tensor) -> Tensor:
        ctx.root, ctx.group = root, group
        result = _C.functions.zeros_like(tensors[0])
        parts = [_copy(t) for t in tensors] if _resolve(group).rank() == root else None
        collective.scatter(result, parts, group=group, group_src=root)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, None, *_Gather.apply(grad, ctx.root, ctx.group))


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, output: Tensor, *tensors: Tensor) -> Tensor:
        ctx.group = group
        result = _copy(output)
        collective.reduce_scatter(result, [_copy(t) for t in tensors], op, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return (None, None, None, *_AllGather.apply(grad, ctx.group))


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> tuple[Tensor, ...]:
        ctx.group = group
        results = [_C.functions.empty_like(tensor) for _ in range(_resolve(group).size())]
        collective.all_gather(results, _copy(tensor), group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        own = grads[_resolve(ctx.group).rank()]
        return _ReduceScatter.apply(ReduceOp.SUM, ctx.group, own, *grads), None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        ctx.shapes = [t.shape for t in tensors]
        results = [_C.functions.empty_like(t) for t in outputs]
        collective.all_to_all(results, [_copy(t) for t in tensors], group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        into = [_C.functions.empty(s, dtype=grads[0].dtype) for s in ctx.shapes]
        return (None, None, *_AllToAll.apply(ctx.group, into, *grads))


class _AllToAllSingle(Function):
    @staticmethod
    def forward(
        ctx: Any, group: Any, output: Tensor, out_splits: Any, in_splits: Any, input: Tensor
    ) -> Tensor:
        ctx.group, ctx.shape, ctx.splits = group, input.shape, (out_splits, in_splits)
        result = _C.functions.empty_like(output)
        collective.all_to_all_single(result, _copy(input), out_splits, in_splits, group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        into = _C.functions.empty(ctx.shape, dtype=grad.dtype)
        out_splits, in_splits = ctx.splits
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, into, in_splits, out_splits, grad)


def _check(name: str, op: Any, tensor: Tensor) -> None:
    _outside(name, None)
    _check_reduction(name, op, tensor)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction ``op`` of the tensors of all ranks; gradients go to all of them."""
    _check("all_reduce", op, tensor)
    return _AllReduce.apply(tensor, op, group)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction on one rank."""
    _check("reduce", op, tensor)
    return _Reduce.apply(tensor, _root("reduce", group, dst, None), op, group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Returns the tensor of one rank, to which the gradients of all go."""
    return _Broadcast.apply(tensor, _root("broadcast", group, src, None), group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks; the gradient of each goes to its own rank."""
    return _AllGather.apply(tensor, group)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all ranks on one rank."""
    return _Gather.apply(tensor, _root("gather", group, dst, None), group)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Tensor:
    """Returns this rank's element of the tensors of one rank."""
    tensors = list(tensors)
    _check_tensor_list(tensors, "tensors")
    if len(tensors) != _resolve(group).size():
        raise RuntimeError(
            f"scatter: tensors must have an element for each of {_resolve(group).size()} ranks, got "
            f"{len(tensors)}"
        )
    return _Scatter.apply(_root("scatter", group, src, None), group, *tensors)


def reduce_scatter(output: Tensor, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction of this rank's element of the lists of all ranks."""
    _check("reduce_scatter", op, output)
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors that all ranks have for this one."""
    return _AllToAll.apply(group, list(output_tensor_list), *input_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
) -> Tensor:
    """The same for parts of one tensor along dimension 0."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)
