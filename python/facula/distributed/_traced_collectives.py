"""The collectives that write their arguments, for functions that are traced or captured. Each calls the
operator that returns a new tensor, and copies the result to the argument, so that a program holds the
communication, in order, and the write.
"""

from __future__ import annotations

from typing import Any

from .. import _C
from . import _functional_collectives as functional
from ._constants import ReduceOp
from ._groups import _get_process_group_name, _rank_not_in_group, _resolve, _root
from ._process_group import Work

Tensor = _C.Tensor


def _reduction(op: Any) -> str:
    kind = op.op if isinstance(op, ReduceOp) and hasattr(op, "op") else op
    if kind == ReduceOp.PREMUL_SUM:
        raise RuntimeError("a program cannot hold a collective with PREMUL_SUM: multiply before a SUM")
    return str(kind.name).lower()


def _write(tensor: Tensor, result: Tensor) -> None:
    with _C.GradMode(False):
        tensor.copy_(result)


def _ended(async_op: bool) -> Work | None:
    """In a program the calls behind a collective wait for it."""
    return Work() if async_op else None


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    if _rank_not_in_group(group):
        return None
    name = _get_process_group_name(_resolve(group))
    _write(tensor, functional._ops().all_reduce(tensor.detach(), _reduction(op), name))
    return _ended(async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    if _rank_not_in_group(group):
        return None
    for tensor in [tensors] if isinstance(tensors, Tensor) else tensors:
        all_reduce(tensor, op, group)
    return _ended(async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    if _rank_not_in_group(group):
        return None
    root = _root("broadcast", group, src, group_src)
    name = _get_process_group_name(_resolve(group))
    _write(tensor, functional._ops().broadcast(tensor.detach(), root, name))
    return _ended(async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Any:
    if _rank_not_in_group(group):
        return None
    pg = _resolve(group)
    everyone = functional._ops().all_gather_into_tensor(
        input_tensor.detach().contiguous(), pg.size(), _get_process_group_name(pg)
    )
    _write(output_tensor, everyone.view(output_tensor.shape))
    return _ended(async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    if _rank_not_in_group(group):
        return None
    pg = _resolve(group)
    own = tensor.detach().contiguous().view((1, *tensor.shape))
    everyone = functional._ops().all_gather_into_tensor(own, pg.size(), _get_process_group_name(pg))
    for k in range(pg.size()):
        _write(tensor_list[k], everyone[k])
    return _ended(async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    if _rank_not_in_group(group):
        return None
    pg = _resolve(group)
    parts = input.detach().contiguous().view((pg.size() * output.numel(),))
    own = functional._ops().reduce_scatter_tensor(
        parts, _reduction(op), pg.size(), _get_process_group_name(pg)
    )
    _write(output, own.view(output.shape))
    return _ended(async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    if _rank_not_in_group(group):
        return None
    return reduce_scatter_tensor(output, _C.functions.stack(input_list), op, group, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    if _rank_not_in_group(group):
        return None
    pg = _resolve(group)
    sizes = [
        list(split) if split else [tensor.shape[0] // pg.size()] * pg.size()
        for split, tensor in ((output_split_sizes, output), (input_split_sizes, input))
    ]
    result = functional._ops().all_to_all_single(
        input.detach().contiguous(), sizes[0], sizes[1], _get_process_group_name(pg)
    )
    _write(output, result.view(output.shape))
    return _ended(async_op)


# By the names of the functions of facula.distributed.
REPLACEMENTS = {
    f.__name__: f
    for f in (
        all_gather,
        all_gather_into_tensor,
        all_reduce,
        all_reduce_coalesced,
        all_to_all_single,
        broadcast,
        reduce_scatter,
        reduce_scatter_tensor,
    )
}
