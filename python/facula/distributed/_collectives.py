"""The collectives of tensors and messages between two ranks, with PyTorch's names, arguments and checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from .. import _C
from ._constants import ReduceOp, supports_complex
from ._groups import (
    GroupMember,
    _check_valid_timeout,
    _outside,
    _resolve,
    _root,
    _world,
    get_global_rank,
)
from ._process_group import _DEFAULTS, ProcessGroup, Work, Works, _Options

__all__ = [
    "P2POp",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "gather",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "send",
]

Tensor = _C.Tensor
_SUM = ReduceOp.SUM


def _check_single_tensor(tensor: Any, name: str) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got "
            f"{type(tensor)} instead."
        )


def _check_tensor_list(tensors: Any, name: str) -> None:
    if isinstance(tensors, list) and all(isinstance(t, Tensor) for t in tensors):
        return
    kinds = (
        f" with elements of type {[type(t) for t in tensors]}." if isinstance(tensors, list) else " instead."
    )
    raise TypeError(
        f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] but got "
        f"{type(tensors)}{kinds}"
    )


def _flat(items: Any) -> Iterator[Tensor]:
    for item in items:
        if isinstance(item, Tensor):
            yield item
        else:
            yield from _flat(item)


def _ensure_all_tensors_same_dtype(*tensors: Any) -> None:
    """Raises for tensors of several dtypes. A complex dtype counts as that of its real part."""
    first = None
    for tensor in _flat(tensors):
        dtype = {_C.complex64: _C.float32, _C.complex128: _C.float64}.get(tensor.dtype, tensor.dtype)
        first = dtype if first is None else first
        if dtype != first:
            raise ValueError(f"Invalid usage of tensors with different dtypes: Found {first} and {dtype}")


def _check_reduction(name: str, op: Any, tensor: Tensor) -> None:
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: expected a ReduceOp, got {op!r}")
    if tensor.is_complex() and not supports_complex(op):
        raise ValueError(f"{name} does not support {op} on complex tensors")


def _ended(work: Any, async_op: bool) -> Any:
    """Returns the work of an asynchronous operation; waits for a backend of others otherwise."""
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def _is_recorded() -> bool:
    """Returns whether a function is being traced or captured."""
    return _C.is_tracing() or _C.is_capturing()


def _call(pg: ProcessGroup, method: str, args: tuple[Any, ...], opts: Any, async_op: bool) -> Any:
    """Calls a method of the group. The engine executes an operation that is waited for on this thread. While
    a function is traced or captured, an operation that programs can hold is recorded instead.
    """
    if _is_recorded():
        from ._traced_collectives import RECORDED

        if method in RECORDED:
            RECORDED[method](pg, *args, opts)
            return Work() if async_op else None  # in a program, the calls behind a collective wait for it
    if type(pg) is ProcessGroup:
        work = getattr(pg, method)(*args, opts, wait=not async_op)
        return work if async_op else None
    return _ended(getattr(pg, method)(*args, opts), async_op)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Replaces ``tensor`` by the reduction ``op`` over all ranks, in place."""
    if group is None and op is _SUM and not async_op and not _is_recorded():
        world = _world.default_pg
        if type(world) is ProcessGroup and world._coalescing is None:
            if world._native.all_reduce(tensor, 0, world._timeout.total_seconds()):
                return None
    _check_single_tensor(tensor, "tensor")
    if _outside("all_reduce", group):
        return None
    pg = _resolve(group)
    _check_reduction("all_reduce", op, tensor)
    if _recorded(pg, "all_reduce", tensor, op):
        return None
    opts = _DEFAULTS if op is ReduceOp.SUM else _Options(reduceOp=op)
    return _call(pg, "allreduce", ([tensor],), opts, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Replaces ``tensor`` of one rank by the reduction over all ranks."""
    _check_single_tensor(tensor, "tensor")
    if _outside("reduce", group):
        return None
    root = _root("reduce", group, dst, group_dst)
    _check_reduction("reduce", op, tensor)
    return _call(_resolve(group), "reduce", ([tensor],), _Options(reduceOp=op, rootRank=root), async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Replaces ``tensor`` of all ranks by that of one rank."""
    _check_single_tensor(tensor, "tensor")
    if _outside("broadcast", group):
        return None
    root = _root("broadcast", group, src, group_src)
    return _call(_resolve(group), "broadcast", ([tensor],), _Options(rootRank=root), async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Writes the tensors of all ranks to ``tensor_list``."""
    _check_tensor_list(tensor_list, "tensor_list")
    _check_single_tensor(tensor, "tensor")
    _ensure_all_tensors_same_dtype(tensor_list, tensor)
    if _outside("all_gather", group):
        return None
    return _call(_resolve(group), "allgather", ([tensor_list], [tensor]), _DEFAULTS, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Any:
    """Writes the tensors of all ranks, one after the other, to ``output_tensor``."""
    _check_single_tensor(input_tensor, "input_tensor")
    _check_single_tensor(output_tensor, "output_tensor")
    if _outside("all_gather_into_tensor", group):
        return None
    pg = _resolve(group)
    if _recorded(pg, "all_gather_single", input_tensor, None, output_tensor):
        return None
    return _call(pg, "_allgather_base", (output_tensor, input_tensor), _DEFAULTS, async_op)


all_gather_single = _all_gather_base = all_gather_into_tensor


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Writes the tensors of all ranks to ``gather_list`` of one rank."""
    _check_single_tensor(tensor, "tensor")
    if gather_list:
        _check_tensor_list(gather_list, "gather_list")
        _ensure_all_tensors_same_dtype(tensor, gather_list)
    if _outside("gather", group):
        return None
    pg, root = _resolve(group), _root("gather", group, dst, group_dst, 0)
    _check_list_of_root(pg, root, gather_list, "gather_list", "destination")
    return _call(
        pg, "gather", ([gather_list] if gather_list else [], [tensor]), _Options(rootRank=root), async_op
    )


def _check_list_of_root(pg: ProcessGroup, root: int, tensors: Any, name: str, what: str) -> None:
    if pg.rank() == root and not tensors:
        raise ValueError(f"Argument ``{name}`` must be specified on {what} rank.")
    if pg.rank() != root and tensors:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{what} ranks.")


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Replaces ``tensor`` of each rank by its element of ``scatter_list`` of one rank."""
    _check_single_tensor(tensor, "tensor")
    if scatter_list:
        _check_tensor_list(scatter_list, "scatter_list")
        _ensure_all_tensors_same_dtype(tensor, scatter_list)
    if _outside("scatter", group):
        return None
    pg, root = _resolve(group), _root("scatter", group, src, group_src, 0)
    _check_list_of_root(pg, root, scatter_list, "scatter_list", "source")
    return _call(
        pg, "scatter", ([tensor], [scatter_list] if scatter_list else []), _Options(rootRank=root), async_op
    )


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Writes to ``output`` the reduction of this rank's element of the ``input_list`` of all ranks."""
    _check_single_tensor(output, "output")
    _check_tensor_list(input_list, "input_list")
    _ensure_all_tensors_same_dtype(output, input_list)
    if _outside("reduce_scatter", group):
        return None
    _check_reduction("reduce_scatter", op, output)
    return _call(_resolve(group), "reduce_scatter", ([output], [input_list]), _Options(reduceOp=op), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """The same for a tensor that has the elements of the list one after the other."""
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    if _outside("reduce_scatter_tensor", group):
        return None
    pg = _resolve(group)
    _check_reduction("reduce_scatter_tensor", op, output)
    if _recorded(pg, "reduce_scatter_single", input, op, output):
        return None
    return _call(pg, "_reduce_scatter_base", (output, input), _Options(reduceOp=op), async_op)


reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Sends the k-th tensor of ``input_tensor_list`` to rank k, and receives those of all ranks."""
    if _outside("all_to_all", group):
        return None
    _check_tensor_list(output_tensor_list, "output_tensor_list")
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    _ensure_all_tensors_same_dtype(output_tensor_list, input_tensor_list)
    return _call(_resolve(group), "alltoall", (output_tensor_list, input_tensor_list), _DEFAULTS, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Sends parts of ``input`` along dimension 0 to the ranks, and writes theirs to ``output``."""
    if _outside("all_to_all_single", group):
        return None
    _check_single_tensor(output, "output")
    _check_single_tensor(input, "input")
    _ensure_all_tensors_same_dtype(output, input)
    args = (output, input, output_split_sizes or [], input_split_sizes or [])
    return _call(_resolve(group), "alltoall_base", args, _DEFAULTS, async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """``all_reduce`` of several tensors."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    _check_tensor_list(tensors, "tensors")
    _ensure_all_tensors_same_dtype(tensors)
    if _outside("all_reduce_coalesced", group):
        return None
    for tensor in tensors:
        _check_reduction("all_reduce", op, tensor)
    return _call(_resolve(group), "allreduce_coalesced", (tensors,), _Options(reduceOp=op), async_op)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """``all_gather`` of several tensors: the k-th list gets those of rank k."""
    if _outside("all_gather_coalesced", group):
        return None
    _check_tensor_list(input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for outputs in output_tensor_lists:
        _check_tensor_list(outputs, "output_tensor_lists")
        if len(outputs) != len(input_tensor_list):
            raise ValueError(
                f"all_gather_coalesced: {len(outputs)} outputs for {len(input_tensor_list)} inputs"
            )
    return _ended(_resolve(group).allgather_coalesced(output_tensor_lists, input_tensor_list), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Any:
    """Waits until all ranks have come to it."""
    if _outside("barrier", group):
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    return _call(
        _resolve(group), "barrier", (), _Options(timeout=timeout) if timeout else _DEFAULTS, async_op
    )


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Waits until all ranks have come to it; rank 0 raises an error that names those that do not in time.

    With ``wait_all_ranks`` it names all of them, otherwise the first one.
    """
    if _outside("monitored_barrier", group):
        return
    pg = _resolve(group)
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    if timeout is not None:
        _check_valid_timeout(timeout)
    pg.monitored_barrier(timeout, wait_all_ranks)


# ---- messages


def _partner(name: str, what: str, group: Any, rank: int | None, group_rank: int | None) -> int:
    partner = _root(name, group, rank, group_rank)
    if partner == _resolve(group).rank():
        raise ValueError(
            f"Invalid {what} rank: {what} rank should not be the same as the rank of the current process."
        )
    return partner


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Any:
    """Starts to send a tensor to another rank."""
    if _outside("isend", group):
        return None
    _check_single_tensor(tensor, "tensor")
    peer = _partner("isend", "destination", group, dst, group_dst)
    return _resolve(group).send([tensor], peer, tag)


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> None:
    """Sends a tensor to another rank; the tensor may be changed when this returns."""
    if work := isend(tensor, dst, group, tag, group_dst):
        work.wait()


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Any:
    """Starts to receive a tensor from a rank, or from any rank."""
    if _outside("irecv", group):
        return None
    _check_single_tensor(tensor, "tensor")
    pg = _resolve(group)
    if src is None and group_src is None:
        return pg.recv_anysource([tensor], tag)
    return pg.recv([tensor], _partner("irecv", "source", group, src, group_src), tag)


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> int:
    """Receives a tensor from a rank, or from any rank, and returns its rank in the world."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if src is not None:
        return src
    return get_global_rank(group, work._source_rank() if group_src is None else group_src)


class P2POp:
    """One of the messages that ``batch_isend_irecv`` exchanges together."""

    def __init__(
        self,
        op: Any,
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        _check_single_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = _resolve(group)
        self.group_peer = _root("P2POp", self.group, peer, group_peer)
        self.peer = get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, peer={self.peer}, {self.tensor.shape}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Starts the messages and returns their works."""
    if (
        not isinstance(p2p_op_list, list)
        or not p2p_op_list
        or not all(isinstance(p, P2POp) for p in p2p_op_list)
    ):
        raise ValueError(
            "Invalid ``p2p_op_list``: expected a list of P2POp that is not empty. Each op is expected to "
            "to be of type "
            "``torch.distributed.P2POp``."
        )
    if any(p.group is not p2p_op_list[0].group for p in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    for p in p2p_op_list:
        peer = {"group_dst" if p.op is isend else "group_src": p.group_peer}
        works.append(p.op(p.tensor, group=p.group, tag=p.tag, **peer))
    return works


# ---- coalescing


class _CoalescingManager:
    """The works of the operations in a ``with`` block."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None = None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


def _recorded(pg: ProcessGroup, name: str, tensor: Tensor, op: Any, output: Tensor | None = None) -> bool:
    """Adds the operation to the block of ``_coalescing_manager`` that is open; false if there is none, and
    for a program, which holds operations one by one.
    """
    if getattr(pg, "_coalescing", None) is None or _is_recorded():
        return False
    assert pg._coalescing is not None
    pg._coalescing.append((name, tensor, op, output))
    return True


@contextlib.contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool = False
) -> Iterator[_CoalescingManager]:
    """Executes the collectives of a block together when it ends. They must be of one kind."""
    pg = _resolve(group)
    if getattr(pg, "_coalescing", None):
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    pg._coalescing, manager = [], _CoalescingManager()
    try:
        yield manager
        recorded = pg._coalescing
    finally:
        pg._coalescing = None
    kinds = {name for name, *_ in recorded}
    if len(kinds) > 1:
        raise RuntimeError(
            f"Coalescing manager requires all collectives to be the same type, but got mixed types: {kinds}"
        )
    if not recorded:
        return
    (kind,) = kinds
    op = recorded[0][2]
    inputs, outputs = [r[1] for r in recorded], [r[3] for r in recorded]
    if kind == "all_reduce":
        work = pg.allreduce_coalesced(inputs, _Options(reduceOp=op))
    elif kind == "all_gather_single":
        work = pg.allgather_into_tensor_coalesced(outputs, inputs)
    else:
        work = pg.reduce_scatter_tensor_coalesced(outputs, inputs, _Options(reduceOp=op))
    if async_ops:
        manager.append(work)
    else:
        work.wait()


_ = GroupMember, Works
