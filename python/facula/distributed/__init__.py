"""Distributed training with a single process: a group of size 1, in which collective operations leave
tensors unchanged.

Programs that ask for more processes get an error: these are not supported yet.
"""

from __future__ import annotations

import enum
import os
import sys
from datetime import timedelta
from typing import Any

from .. import _C
from ._stores import DistBackendError as DistBackendError
from ._stores import DistError as DistError
from ._stores import DistNetworkError as DistNetworkError
from ._stores import DistStoreError as DistStoreError
from ._stores import FileStore as FileStore
from ._stores import HashStore as HashStore
from ._stores import PrefixStore as PrefixStore
from ._stores import QueueEmptyError as QueueEmptyError
from ._stores import Store as Store
from ._stores import TCPStore as TCPStore
from ._stores import default_pg_timeout as default_pg_timeout

Tensor = _C.Tensor

__all__ = [
    "Backend",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "split_group",
    "supports_complex",
]


class _RedOpType(enum.Enum):
    """The reduction of the processes' tensors by a collective operation; for one process it is the tensor
    itself.
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8

    def __int__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, (ReduceOp, int)) else NotImplemented

    def __hash__(self) -> int:
        return int(self.value)


# Members are displayed and pickled under the short name.
_RedOpType.__name__, _RedOpType.__qualname__ = "RedOpType", "ReduceOp.RedOpType"


class _Reductions(type):
    """The class of ReduceOp, whose constants users see as instances of it."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RedOpType) or type.__instancecheck__(cls, instance)


class ReduceOp(metaclass=_Reductions):
    """A reduction of the tensors of processes: ``ReduceOp.SUM`` and others, or
    ``ReduceOp(ReduceOp.SUM)``.

    >>> facula.distributed.ReduceOp.SUM
    <RedOpType.SUM: 0>
    """

    RedOpType = _RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = _RedOpType

    def __init__(self, op: _RedOpType) -> None:
        if not isinstance(op, _RedOpType):
            raise TypeError(f"ReduceOp: expected one of ReduceOp's constants, got {op!r}")
        self.op = op

    def __int__(self) -> int:
        return int(self.op)

    def __eq__(self, other: object) -> bool:
        return self.op == other

    def __hash__(self) -> int:
        return hash(self.op)


class Backend(str):
    """The name of a communication backend."""

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI = "undefined", "gloo", "nccl", "xccl", "ucc", "mpi"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI]

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name}")
        return super().__new__(cls, name.lower())

    def _checked(self) -> Backend:
        """Returns itself if the backend is available: gloo is, and may be named for each device type."""
        for part in self.split(","):
            device, _, name = part.rpartition(":")
            if device:
                _C.device(device)
            if name not in self.backend_list:
                raise AssertionError(f"Unknown backend type {name}")
            if name not in ("gloo", "undefined"):
                raise RuntimeError(f"Distributed package doesn't have {name.upper()} built in, only gloo")
        return self


class DebugLevel(enum.Enum):
    OFF = 0
    INFO = 1
    DETAIL = 2


_debug_level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    """Returns the level from ``set_debug_level`` or the environment variable TORCH_DISTRIBUTED_DEBUG."""
    if _debug_level is not None:
        return _debug_level
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, got {name}")
    return DebugLevel[name]


def set_debug_level(level: DebugLevel) -> None:
    global _debug_level
    _debug_level = level


def set_debug_level_from_env() -> None:
    global _debug_level
    _debug_level = None
    _debug_level = get_debug_level()


class ProcessGroup:
    """The group of this process."""

    def __init__(self, backend: str = "gloo") -> None:
        self.backend = backend

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def name(self) -> str:
        return "gloo"


class Work:
    """A collective operation that was called with ``async_op=True``, which is complete."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result


class reduce_op:
    """The former name of ``ReduceOp``."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


class group:
    WORLD: ProcessGroup | None = None


class GroupMember:
    """The value that ``new_group`` returns to a process outside of the group."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return group.WORLD is not None


def is_gloo_available() -> bool:
    return True


def is_nccl_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def is_ucc_available() -> bool:
    return False


def is_xccl_available() -> bool:
    return False


def is_backend_available(backend: str) -> bool:
    return backend.lower() == "gloo"


def is_torchelastic_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Creates the default group of this process, for ``world_size`` processes, or WORLD_SIZE of the
    environment.

    Raises NotImplementedError for more than one process, ValueError if there is a group already,
    AssertionError or RuntimeError for a backend that is unknown or unavailable: ``gloo`` is available.

    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> facula.distributed.get_world_size()
    1
    >>> facula.distributed.destroy_process_group()
    """
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice! Destroy it first")
    name = Backend("undefined" if backend is None else backend)._checked()
    processes = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", 1))
    place = rank if rank >= 0 else int(os.environ.get("RANK", 0))
    if processes != 1:
        raise NotImplementedError(
            f"init_process_group: {processes} processes; training by more than one is not there yet, "
            "use world_size=1"
        )
    if place != 0:
        raise ValueError(f"init_process_group: rank {place} of 1 process; it must be 0")
    if store is not None and not isinstance(store, Store):
        raise TypeError(f"init_process_group: store must be a Store, got {type(store).__name__}")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    global _store, _groups
    _store, _groups = PrefixStore("default_pg", HashStore() if store is None else store), 1
    group.WORLD = GroupMember.WORLD = ProcessGroup(name)


_store: Store | None = None
_groups = 0  # number of groups created since the default group


def _get_default_group() -> ProcessGroup:
    _member(None)
    assert group.WORLD is not None
    return group.WORLD


def _get_default_store() -> Store:
    _member(None)
    assert _store is not None
    return _store


def get_pg_count() -> int:
    return _groups


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Destroys the default group; groups from ``new_group`` need no destruction."""
    world = globals()["group"]
    if world.WORLD is None:
        raise AssertionError(
            "Process group cannot be None: there is none to destroy, call init_process_group first"
        )
    if group is not None and not isinstance(group, ProcessGroup):
        raise ValueError(f"Invalid process group specified: {group!r}")
    if group is None or group is world.WORLD:
        world.WORLD = GroupMember.WORLD = globals()["_store"] = None


def _member(pg: Any, *tensors: Any) -> bool:
    """Returns whether this process is in the group. Raises ValueError if there is none, TypeError for a
    value that is not a tensor.
    """
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"Expected a parameter of type torch.Tensor in a collective, got {type(tensor)}")
    if not is_initialized():
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    if pg is None or isinstance(pg, ProcessGroup):
        return True
    if pg is not GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            f"Group {pg} is not registered, please create group with torch.distributed.new_group API"
        )
    return False


def _check_reduction(name: str, op: Any, tensor: Tensor) -> None:
    """Raises if the tensor does not support this reduction, although one process's tensor would not
    change.
    """
    if not isinstance(op, ReduceOp) or op == ReduceOp.PREMUL_SUM:
        raise TypeError(f"{name}: expected a ReduceOp that joins numbers, got {op!r}")
    kind = op.op if type(op) is ReduceOp else op
    if tensor.is_complex() and kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise ValueError(f"{name} does not support {kind} on complex tensors")
    integral = not (tensor.is_complex() or tensor.is_floating_point())
    if kind in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and not integral:
        raise RuntimeError(f"{name}: cannot use ReduceOp.{kind.name} with non-integral dtype {tensor.dtype}")
    if kind == ReduceOp.AVG and integral:
        raise RuntimeError(f"{name}: an average can't be cast to the desired output type {tensor.dtype}")


def get_rank(group: Any = None) -> int:
    return 0 if _member(group) else -1


def get_world_size(group: Any = None) -> int:
    return 1 if _member(group) else -1


def get_backend(group: Any = None) -> str:
    if not _member(group):
        raise ValueError("Invalid process group specified: this process is not in it")
    return (group or globals()["group"].WORLD).backend


def get_process_group_ranks(group: Any) -> list[int]:
    return [0]


def new_group(ranks: list[int] | None = None, *args: Any, backend: str | None = None, **kwargs: Any) -> Any:
    """Returns a group of these ranks: of rank 0, or one without this process."""
    _member(None)
    name = Backend(backend or get_backend())._checked()
    members = [0] if ranks is None else list(ranks)
    for rank in members:
        if rank != 0:
            raise ValueError(f"Rank {rank} is out of range. Valid ranks are 0 to 0 (world_size=1)")
    if len(members) > 1:
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    global _groups
    _groups += 1
    return ProcessGroup(name) if members else GroupMember.NON_GROUP_MEMBER


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    **kwargs: Any,
) -> tuple[Any, list[Any]]:
    """Returns the group of this process, and all groups of ``group_size`` processes."""
    if group_size is None:
        raise ValueError("new_subgroups: group_size must be given, as there is no GPU to count")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if group_size > get_world_size():
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size (1)")
    own = new_group([0], backend=backend)
    return own, [own]


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]], timeout: Any = None, backend: str | None = None, **kwargs: Any
) -> tuple[Any, list[Any]]:
    """Returns the group of this process, and all groups, from the ranks of each."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    if sum(0 in ranks for ranks in ranks_per_subgroup_list) > 1:
        raise ValueError("Rank 0 has appeared in more than one subgroup")
    groups = [new_group(ranks, backend=backend) for ranks in ranks_per_subgroup_list]
    own = [g for g, ranks in zip(groups, ranks_per_subgroup_list) if 0 in ranks]
    return (own or [None])[0], groups


def split_group(
    parent_pg: Any = None, split_ranks: list[list[int]] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Returns the part of a group that contains this process."""
    _member(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    return new_subgroups_by_enumeration(split_ranks)[0]


def _done(async_op: bool, result: Any = None) -> Work | None:
    return Work(result) if async_op else None


def _fill(name: str, target: Any, source: Any) -> None:
    """Writes what a process receives; shape and dtype have to be those of the tensor that was sent."""
    _member(None, target, source)
    if target.shape != source.shape or target.dtype != source.dtype:
        shown = [f"{str(t.dtype).rpartition('.')[2]}{list(t.shape)}" for t in (target, source)]
        raise RuntimeError(f"{name}: {shown[1]} does not fit into {shown[0]}")
    target.copy_(source)


def _only(name: str, what: str, items: list[Any] | None) -> Any:
    if items is None or len(items) != 1:
        count = "none" if items is None else len(items)
        error = ValueError if items is None else RuntimeError
        raise error(f"{name}: {what} must have an element for each of 1 process, got {count}")
    return items[0]


def _root(name: str, rank: int | None, group_rank: int | None = None, default: int | None = None) -> None:
    """Checks the root of a collective, by its rank in the world or in the group; ``default`` if neither
    is passed.
    """
    if group_rank is None and rank is None:
        rank = default
    if (rank is None) == (group_rank is None):
        which = "must specify" if rank is None else "can't specify both"
        raise ValueError(
            f"{name}: {which} the rank in the world {'or' if rank is None else 'and'} that in the group"
        )
    for root in (rank, group_rank):
        if root not in (0, None):
            raise RuntimeError(f"{name}: rank {root} of a world of 1 process, which is rank 0")


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Replaces ``tensor`` by the reduction ``op`` over all processes, in place."""
    _member(group, tensor)
    _check_reduction("all_reduce", op, tensor)
    return _done(async_op, [tensor])


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    _member(group, tensor)
    _root("reduce", dst, group_dst)
    _check_reduction("reduce", op, tensor)
    return _done(async_op, [tensor])


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    _member(group, tensor)
    _root("broadcast", src, group_src)
    return _done(async_op, [tensor])


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    _member(group)
    _fill("all_gather", _only("all_gather", "tensor_list", tensor_list), tensor)
    return _done(async_op, tensor_list)


def _copied(name: str, output: Tensor, input: Tensor, group: Any, async_op: bool) -> Any:
    _member(group, output, input)
    if output.numel() != input.numel():
        raise ValueError(f"{name}: output of shape {list(output.shape)} for {list(input.shape)} of 1 process")
    _fill(name, output, input.reshape(output.shape))
    return _done(async_op, [output])


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Any:
    return _copied("all_gather_into_tensor", output_tensor, input_tensor, group, async_op)


_all_gather_base = all_gather_into_tensor


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    _member(group)
    _root("gather", dst, group_dst, default=0)
    _fill("gather", _only("gather", "gather_list", gather_list), tensor)
    return _done(async_op, gather_list)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    _member(group)
    _root("scatter", src, group_src, default=0)
    _fill("scatter", tensor, _only("scatter", "scatter_list", scatter_list))
    return _done(async_op, [tensor])


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    _member(group, output)
    _check_reduction("reduce_scatter", op, output)
    _fill("reduce_scatter", output, _only("reduce_scatter", "input_list", input_list))
    return _done(async_op, [output])


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    _member(group, output, input)
    _check_reduction("reduce_scatter_tensor", op, output)
    return _copied("reduce_scatter_tensor", output, input, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    _member(group)
    source = _only("all_to_all", "input_tensor_list", input_tensor_list)
    _fill("all_to_all", _only("all_to_all", "output_tensor_list", output_tensor_list), source)
    return _done(async_op, output_tensor_list)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    return _copied("all_to_all_single", output, input, group, async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    _member(group)
    _only("all_gather_object", "object_list", object_list)
    object_list[0] = obj


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    _member(group)
    _root("gather_object", dst, group_dst, default=0)
    if object_gather_list is None:
        raise ValueError("gather_object: object_gather_list must be given on the destination rank")
    all_gather_object(object_gather_list, obj, group)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    _member(group)
    _root("broadcast_object_list", src, group_src, default=0)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    _member(group)
    _root("scatter_object_list", src, group_src, default=0)
    scatter_object_output_list[0] = _only(
        "scatter_object_list", "scatter_object_input_list", scatter_object_input_list
    )


def all_reduce_coalesced(
    tensors: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    for tensor in [tensors] if isinstance(tensors, Tensor) else tensors:
        all_reduce(tensor, op, group)
    return _done(async_op, tensors)


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]],
    input_tensor_list: list[Tensor],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    outputs = _only("all_gather_coalesced", "output_tensor_lists", output_tensor_lists)
    if len(outputs) != len(input_tensor_list):
        raise ValueError(f"all_gather_coalesced: {len(outputs)} outputs for {len(input_tensor_list)} inputs")
    for output, tensor in zip(outputs, input_tensor_list):
        all_gather([output], tensor, group)
    return _done(async_op, output_tensor_lists)


def _partner(
    name: str, what: str, rank: int | None, group_rank: int | None, default: int | None = None
) -> None:
    """Raises an error: the only process has no partner for messages."""
    _root(name, rank, group_rank, default)
    raise ValueError(
        f"Invalid {what} rank: {what} rank should not be the same as the rank of the current process."
    )


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Any:
    """Sends to another process; there is none, so this raises ValueError."""
    return _partner("isend", "destination", dst, group_dst) if _member(group, tensor) else None


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> None:
    """Sends to another process; there is none, so this raises ValueError."""
    return _partner("send", "destination", dst, group_dst) if _member(group, tensor) else None


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Any:
    """Receives from another process; there is none, so this raises ValueError."""
    return _partner("irecv", "source", src, group_src, default=0) if _member(group, tensor) else None


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> int:
    """Receives from another process; there is none, so this raises ValueError."""
    if not _member(group, tensor):
        return -1
    _partner("recv", "source", src, group_src, default=0)
    return 0


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    return _partner("send_object_list", "destination", dst, group_dst) if _member(group) else None


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    if not _member(group):
        return -1
    _partner("recv_object_list", "source", src, group_src, default=0)
    return 0


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
        _member(group, tensor)
        if (peer is None) == (group_peer is None):
            raise ValueError("P2POp: one of peer and group_peer must be given")
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer, self.group_peer = peer, group_peer

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, peer={self.peer}, {self.tensor.shape}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv: expected a list of P2POp that is not empty")
    return [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]


def get_default_backend_for_device(device: Any) -> str:
    """Returns the backend for tensors of a device."""
    if _C.device(device).type != "cpu":
        raise ValueError(f"Default backend not registered for device : {device}")
    return "gloo"


def get_backend_config(group: Any = None) -> str:
    return f"cpu:{get_backend(group)}"


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Returns whether this reduction supports complex numbers."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)


_rendezvous_handlers: dict[str, Any] = {}


def register_rendezvous_handler(scheme: str, handler: Any) -> None:
    """Registers ``handler(url, **kwargs)``, which yields stores, ranks and world sizes, for URLs of this
    scheme.
    """
    if scheme in (*_rendezvous_handlers, "env", "tcp", "file"):
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _rendezvous_handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Any:
    """Yields (store, rank, world size) for a URL: ``env://``, ``tcp://host:port``, ``file:///path``."""
    from urllib.parse import parse_qs, urlparse

    parts = urlparse(url)
    asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
    place = int(asked.get("rank", rank if rank >= 0 else os.environ.get("RANK", 0)))
    size = int(asked.get("world_size", world_size if world_size > 0 else os.environ.get("WORLD_SIZE", 1)))
    if parts.scheme in _rendezvous_handlers:
        yield from _rendezvous_handlers[parts.scheme](url, **kwargs)
    elif parts.scheme == "file":
        yield FileStore(parts.path, size), place, size
    elif parts.scheme in ("tcp", "env"):
        host = parts.hostname or os.environ["MASTER_ADDR"]
        port = int(parts.port if parts.port is not None else os.environ["MASTER_PORT"])
        yield TCPStore(host, port, size, place == 0, **kwargs), place, size
    else:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Any:
    """Waits for all processes, which are this one only."""
    _member(group)
    return _done(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    _member(group)


def get_global_rank(group: Any, group_rank: int) -> int:
    """Returns the rank in the world for a rank of a group."""
    if group_rank != 0:
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return 0


_get_global_rank = get_global_rank


def get_group_rank(group: Any, global_rank: int) -> int:
    """Returns the rank in a group for a rank of the world."""
    if global_rank != 0:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return 0


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns this process's number on its machine, which launchers pass as LOCAL_RANK."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
        "`get_node_local_rank` to "
        "work, assuming you are not running in a multi-device context."
    )


distributed_c10d = sys.modules[__name__]  # PyTorch's module of these functions

from .device_mesh import DeviceMesh as DeviceMesh  # noqa: E402
from .device_mesh import init_device_mesh as init_device_mesh  # noqa: E402
