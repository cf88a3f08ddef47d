"""The collectives of a group that write their arguments, for functions that are traced or captured. Each
calls the operator that returns a new tensor, and copies the result to the argument, so that a program holds
the communication, in order, and the write.
"""

from __future__ import annotations

from typing import Any

from .. import _C
from . import _functional_collectives as functional
from ._constants import ReduceOp
from ._groups import _get_process_group_name
from ._process_group import ProcessGroup

Tensor = _C.Tensor


def _reduction(opts: Any) -> str:
    op = opts.reduceOp
    kind = op.op if isinstance(op, ReduceOp) and hasattr(op, "op") else op
    if kind == ReduceOp.PREMUL_SUM:
        raise RuntimeError("a program cannot hold a collective with PREMUL_SUM: multiply before a SUM")
    return str(kind.name).lower()


def _write(tensor: Tensor, result: Tensor) -> None:
    with _C.GradMode(False):
        tensor.copy_(result if result.shape == tensor.shape else result.view(tensor.shape))


def allreduce(pg: ProcessGroup, tensors: list[Tensor], opts: Any) -> None:
    for tensor in tensors:
        total = functional._ops().all_reduce(tensor.detach(), _reduction(opts), _get_process_group_name(pg))
        _write(tensor, total)


def broadcast(pg: ProcessGroup, tensors: list[Tensor], opts: Any) -> None:
    for tensor in tensors:
        of_root = functional._ops().broadcast(tensor.detach(), opts.rootRank, _get_process_group_name(pg))
        _write(tensor, of_root)


def _gathered(pg: ProcessGroup, input: Tensor) -> Tensor:
    own = input.detach().contiguous()
    return functional._ops().all_gather_into_tensor(own, pg.size(), _get_process_group_name(pg))


def _allgather_base(pg: ProcessGroup, output: Tensor, input: Tensor, opts: Any) -> None:
    _write(output, _gathered(pg, input))


def allgather(pg: ProcessGroup, output_lists: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> None:
    (outputs,), (input,) = output_lists, inputs
    everyone = _gathered(pg, input.unsqueeze(0))
    for k in range(pg.size()):
        _write(outputs[k], everyone[k])


def _reduce_scatter_base(pg: ProcessGroup, output: Tensor, input: Tensor, opts: Any) -> None:
    parts = input.detach().contiguous().view((pg.size() * output.numel(),))
    own = functional._ops().reduce_scatter_tensor(
        parts, _reduction(opts), pg.size(), _get_process_group_name(pg)
    )
    _write(output, own)


def reduce_scatter(
    pg: ProcessGroup, outputs: list[Tensor], input_lists: list[list[Tensor]], opts: Any
) -> None:
    (output,), (inputs,) = outputs, input_lists
    _reduce_scatter_base(pg, output, _C.functions.stack(inputs), opts)


def alltoall_base(
    pg: ProcessGroup,
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any,
    input_split_sizes: Any,
    opts: Any,
) -> None:
    sizes = [
        list(split) if split else [tensor.shape[0] // pg.size()] * pg.size()
        for split, tensor in ((output_split_sizes, output), (input_split_sizes, input))
    ]
    result = functional._ops().all_to_all_single(
        input.detach().contiguous(), sizes[0], sizes[1], _get_process_group_name(pg)
    )
    _write(output, result)


# By the names of the methods of ProcessGroup.
RECORDED = {
    "allreduce_coalesced": allreduce,
    **{
        f.__name__: f
        for f in (
            _allgather_base,
            _reduce_scatter_base,
            allgather,
            allreduce,
            alltoall_base,
            broadcast,
            reduce_scatter,
        )
    },
}
