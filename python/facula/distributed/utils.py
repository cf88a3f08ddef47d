"""Agreement of modules between ranks: the same parameters, and the values of one rank."""

from __future__ import annotations

from typing import Any

from .. import _C
from ._collectives import broadcast
from ._objects import all_gather_object

__all__ = ["_sync_module_states", "_verify_param_shape_across_processes"]

Tensor = _C.Tensor
COALESCED = 250 * 1024 * 1024  # bytes that are broadcast as one tensor


def _broadcast_coalesced(group: Any, tensors: list[Tensor], size: int = COALESCED, root: int = 0) -> None:
    """Replaces the tensors of all ranks by those of one, several in one message."""
    with _C.GradMode(False):
        left = [t.detach() for t in tensors]
        while left:
            some, others, total = [], [], 0
            for t in left:
                if t.dtype == left[0].dtype and (not some or total + t.numel() * t.itemsize <= size):
                    some.append(t)
                    total += t.numel() * t.itemsize
                else:
                    others.append(t)
            flat = some[0].contiguous() if len(some) == 1 else _C.functions.cat([t.reshape(-1) for t in some])
            broadcast(flat, group=group, group_src=root)
            begin = 0
            for t in some:
                t.copy_(flat.reshape(-1)[begin : begin + t.numel()].reshape(t.shape))
                begin += t.numel()
            left = others


def _sync_module_states(
    module: Any,
    process_group: Any,
    broadcast_bucket_size: int = COALESCED,
    src: int = 0,
    params_and_buffers_to_ignore: Any = (),
    broadcast_buffers: bool = True,
) -> None:
    """Replaces the parameters and buffers of all ranks by those of the rank ``src`` of the group."""
    named = list(module.named_parameters()) + (list(module.named_buffers()) if broadcast_buffers else [])
    tensors = [t.detach() for name, t in named if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, tensors, broadcast_bucket_size, src)


def _sync_params_and_buffers(process_group: Any, tensors: list[Tensor], size: int, src: int) -> None:
    if tensors:
        _broadcast_coalesced(process_group, tensors, size, src)


def _verify_param_shape_across_processes(
    process_group: Any, tensors: list[Tensor], logger: Any = None
) -> None:
    """Raises on every rank if the ranks have different parameters, naming the first difference."""
    own = [(tuple(t.shape), str(t.dtype), tuple(t.stride())) for t in tensors]
    everyone: list[Any] = [None] * process_group.size()
    all_gather_object(everyone, own, process_group)
    for rank, other in enumerate(everyone):
        if len(other) != len(everyone[0]):
            raise RuntimeError(
                f"DDP expects same model across all ranks, but Rank 0 has {len(everyone[0])} params, while "
                f"rank {rank} "
                f"has inconsistent {len(other)} params."
            )
        for k, (mine, first) in enumerate(zip(other, everyone[0])):
            if mine != first:
                raise RuntimeError(
                    f"DDP expects same model across all ranks: params[{k}] in process {rank} with sizes "
                    f"{list(mine[0])}, "
                    f"dtype {mine[1]} and strides {list(mine[2])} appears not to match sizes of the same "
                    "param in "
                    f"process 0: {list(first[0])}, {first[1]}, {list(first[2])}."
                )
