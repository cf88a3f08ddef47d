"""Collectives of Python objects: they are pickled, and their bytes travel as tensors."""

from __future__ import annotations

import io
import pickle
from typing import Any

from .. import _C
from ._collectives import _check_list_of_root, all_gather, broadcast, gather, recv, scatter, send
from ._groups import _outside, _resolve, _root, get_rank, get_world_size

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]

Tensor = _C.Tensor


def _object_to_tensor(obj: Any, device: Any = None, group: Any = None) -> tuple[Tensor, Tensor]:
    """Returns the bytes of the pickled object, and their number."""
    file = io.BytesIO()
    pickle.Pickler(file).dump(obj)
    data = _C.frombuffer(bytearray(file.getvalue()), dtype=_C.uint8)
    return data, _C.tensor([data.numel()], dtype=_C.int64)


def _tensor_to_object(tensor: Tensor, size: Any, group: Any = None) -> Any:
    return pickle.Unpickler(io.BytesIO(bytes(tensor[: int(size)].numpy()))).load()


def _padded(data: Tensor, size: int) -> Tensor:
    result = _C.functions.zeros(size, dtype=_C.uint8)
    result[: data.numel()] = data
    return result


def _exchanged(data: Tensor, length: Tensor, group: Any) -> tuple[list[int], int]:
    """Returns the sizes of the objects of all ranks, and the largest."""
    sizes = [_C.functions.zeros(1, dtype=_C.int64) for _ in range(get_world_size(group))]
    all_gather(sizes, length, group)
    lengths = [int(s) for s in sizes]
    return lengths, max(lengths)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Writes the objects of all ranks to ``object_list``."""
    if _outside("all_gather_object", group):
        return
    data, length = _object_to_tensor(obj)
    lengths, most = _exchanged(data, length, group)
    if len(object_list) < len(lengths):
        raise ValueError(
            f"all_gather_object: object_list has {len(object_list)} elements for {len(lengths)} ranks"
        )
    everything = [_C.functions.empty(most, dtype=_C.uint8) for _ in lengths]
    all_gather(everything, _padded(data, most), group)
    for k, size in enumerate(lengths):
        object_list[k] = _tensor_to_object(everything[k], size)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Writes the objects of all ranks to ``object_gather_list`` of one rank."""
    if _outside("gather_object", group):
        return
    pg, root = _resolve(group), _root("gather_object", group, dst, group_dst, 0)
    _check_list_of_root(pg, root, object_gather_list, "object_gather_list", "destination")
    data, length = _object_to_tensor(obj)
    lengths, most = _exchanged(data, length, group)
    is_root = pg.rank() == root
    everything = [_C.functions.empty(most, dtype=_C.uint8) for _ in lengths] if is_root else None
    gather(_padded(data, most), everything, group=group, group_dst=root)
    if everything is not None and object_gather_list is not None:
        for k, size in enumerate(lengths):
            object_gather_list[k] = _tensor_to_object(everything[k], size)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replaces the elements of ``object_list`` of all ranks by those of one rank."""
    if _outside("broadcast_object_list", group):
        return
    pg, root = _resolve(group), _root("broadcast_object_list", group, src, group_src, 0)
    sizes = _C.functions.empty(len(object_list), dtype=_C.int64)
    data: Tensor | None = None
    if pg.rank() == root:
        pairs = [_object_to_tensor(o) for o in object_list]
        sizes = _C.functions.cat([n for _, n in pairs]) if pairs else sizes
        data = _C.functions.cat([d for d, _ in pairs]) if pairs else None
    broadcast(sizes, group=group, group_src=root)
    if data is None:
        data = _C.functions.empty(int(sizes.sum()), dtype=_C.uint8)
    broadcast(data, group=group, group_src=root)
    if pg.rank() != root:
        _unpack(object_list, data, sizes)


def _unpack(object_list: list[Any], data: Tensor, sizes: Tensor) -> None:
    begin = 0
    for k, size in enumerate(sizes.tolist()):
        object_list[k] = _tensor_to_object(data[begin : begin + size], size)
        begin += size


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Writes to ``scatter_object_output_list[0]`` of each rank its element of the list of one rank."""
    if _outside("scatter_object_list", group):
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    pg, root = _resolve(group), _root("scatter_object_list", group, src, group_src, 0)
    sizes = _C.functions.zeros(pg.size() + 1, dtype=_C.int64)  # the last one is the largest
    parts: list[Tensor] | None = None
    if pg.rank() == root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != pg.size():
            raise ValueError(f"scatter_object_list: scatter_object_input_list must have {pg.size()} elements")
        pairs = [_object_to_tensor(o) for o in scatter_object_input_list]
        most = max(d.numel() for d, _ in pairs)
        parts = [_padded(d, most) for d, _ in pairs]
        sizes = _C.tensor([d.numel() for d, _ in pairs] + [most], dtype=_C.int64)
    broadcast(sizes, group=group, group_src=root)
    lengths = sizes.tolist()
    data = _C.functions.empty(lengths[-1], dtype=_C.uint8)
    scatter(data, parts, group=group, group_src=root)
    scatter_object_output_list[0] = _tensor_to_object(data, lengths[pg.rank()])


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Sends objects to another rank, which calls ``recv_object_list`` with a list of this length."""
    if _outside("send_object_list", group):
        return
    root = _root("send_object_list", group, dst, group_dst)
    if get_rank(group) == root:
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current "
            "process."
        )
    pairs = [_object_to_tensor(o) for o in object_list]
    send(_C.functions.cat([n for _, n in pairs]), group=group, group_dst=root)
    send(_C.functions.cat([d for d, _ in pairs]), group=group, group_dst=root)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replaces the elements of ``object_list`` by those of the sender, and returns its rank in the world."""
    if _outside("recv_object_list", group):
        return -1
    sizes = _C.functions.empty(len(object_list), dtype=_C.int64)
    sender = recv(sizes, src, group, group_src=group_src)
    data = _C.functions.empty(int(sizes.sum()), dtype=_C.uint8)
    recv(data, sender, group)
    _unpack(object_list, data, sizes)
    return sender
