"""Differentiable collective operations: copies, for one process."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import ReduceOp, _check_reduction, _member, _only, _root

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


def _copy(tensor: Tensor, group: Any) -> Tensor:
    _member(group, tensor)
    return _C.functions.clone(tensor)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Returns the reduction ``op`` of the tensors of all processes; gradients go to all of them."""
    _check_reduction("all_reduce", op, tensor)
    return _copy(tensor, group)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    _root("reduce", dst)
    return all_reduce(tensor, op, group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    _root("broadcast", src)
    return _copy(tensor, group)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Returns the tensors of all processes; the gradient of each goes to its own process."""
    return (_copy(tensor, group),)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    _root("gather", dst)
    return all_gather(tensor, group)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Tensor:
    _root("scatter", src)
    return _copy(_only("scatter", "tensors", list(tensors)), group)


def reduce_scatter(output: Tensor, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    return all_reduce(_only("reduce_scatter", "input_list", list(input_list)), op, group)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> tuple[Tensor, ...]:
    return (_copy(_only("all_to_all", "input_tensor_list", list(input_tensor_list)), group),)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
) -> Tensor:
    return _copy(input, group)
