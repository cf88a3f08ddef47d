"""The default group of a process and the groups that a program makes of its ranks."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import warnings
from datetime import timedelta
from typing import Any

from .. import _C
from ._constants import Backend, DebugLevel, get_debug_level, is_backend_available
from ._process_group import ProcessGroup
from ._rendezvous import rendezvous
from ._stores import DistError, FileStore, HashStore, PrefixStore, Store, TCPStore, default_pg_timeout

Tensor = _C.Tensor


class _Members(type):
    """The class of ``group`` and ``GroupMember``, which share the default group."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return _world.default_pg

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        _world.default_pg = group


class group(metaclass=_Members):
    """``group.WORLD`` is the default group."""


class GroupMember(metaclass=_Members):
    """``new_group`` returns ``NON_GROUP_MEMBER`` to a process outside of the group."""

    NON_GROUP_MEMBER = -100


class _World:
    """The groups of this process."""

    def __init__(self) -> None:
        self.default_pg: ProcessGroup | None = None
        self.pg_map: dict[ProcessGroup, tuple[str, Store]] = {}
        self.pg_names: dict[ProcessGroup, str] = {}
        self.pg_group_ranks: dict[ProcessGroup, dict[int, int]] = {}  # rank in the world to rank in the group
        self.pg_backend_config: dict[ProcessGroup, str] = {}
        self.group_count = 0
        self.hashed_names: dict[str, int] = {}
        self.interface = "127.0.0.1"

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        return [
            {
                "pg_name": self.pg_names[pg],
                "pg_desc": pg.group_desc,
                "backend_config": self.pg_backend_config[pg],
                "pg_size": len(ranks),
                "group_count": self.group_count,
                "ranks": list(ranks) if len(ranks) < get_world_size() else [],
            }
            for pg, ranks in self.pg_group_ranks.items()
        ]


_world = _World()


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return _world.default_pg is not None


def is_gloo_available() -> bool:
    return True


def is_nccl_available() -> bool:
    return is_backend_available("nccl")


def is_mpi_available() -> bool:
    return is_backend_available("mpi")


def is_ucc_available() -> bool:
    return False


def is_xccl_available() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _check_valid_timeout(timeout: Any) -> None:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")


def _get_default_timeout(backend: Any = None) -> timedelta:
    return default_pg_timeout


def _address_of_interface(name: str) -> str:
    """Returns the IPv4 address of a network interface."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("256s", name.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, request)[20:24])  # SIOCGIFADDR
        except OSError as error:
            raise RuntimeError(f"init_process_group: no address of interface {name!r}: {error}") from error


def _interface(store: Store) -> str:
    """Returns the address on which this process is reached by the others: that of FACULA_SOCKET_IFNAME or
    GLOO_SOCKET_IFNAME, or the one from which the master is reached.
    """
    for variable in ("FACULA_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if name := os.environ.get(variable):
            return _address_of_interface(name.split(",")[0])
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    host = store.host if isinstance(store, TCPStore) else os.environ.get("MASTER_ADDR", "")
    host = host or socket.gethostname()
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as s:
            s.connect(address)
            return str(s.getsockname()[0])
    except OSError:
        return "127.0.0.1"


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
    _ranks: Any = None,
) -> None:
    """Creates the default group of this process. All processes of the job call it, each with its rank, and it
    returns when they are connected.

    Processes meet over ``store``, or at ``init_method``: ``env://`` (MASTER_ADDR, MASTER_PORT, RANK and
    WORLD_SIZE of the environment, as launchers set them), ``tcp://host:port``, ``file:///path``. Raises
    ValueError if there is a group already, and for a backend that is not available: ``gloo`` and ``facula``
    are the same engine.

    >>> store = facula.distributed.HashStore()
    >>> facula.distributed.init_process_group("gloo", world_size=1, rank=0, store=store)
    >>> facula.distributed.get_world_size()
    1
    >>> facula.distributed.destroy_process_group()
    """
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    limit = default_pg_timeout if timeout is None else timeout
    _check_valid_timeout(limit)
    name = Backend("undefined" if backend is None else backend)._checked()
    if Backend._engine_of(name) == "mpi":
        from . import _mpi

        (rank, world_size), store = _mpi.world(), HashStore()
    if store is not None:
        if not isinstance(store, Store):
            raise TypeError(f"init_process_group: store must be a Store, got {type(store).__name__}")
        if not world_size > 0:
            raise AssertionError("world_size must be positive if using store")
        if not rank >= 0:
            raise AssertionError("rank must be non-negative if using store")
    else:
        if init_method is None and world_size == 1 and "MASTER_ADDR" not in os.environ:
            store, rank = HashStore(), max(rank, 0)  # nobody to meet
        else:
            store, rank, world_size = next(
                rendezvous(init_method or "env://", rank, world_size, timeout=limit)
            )
        store.set_timeout(limit)
    if not 0 <= rank < world_size:
        raise ValueError(
            f"init_process_group: rank {rank} of {world_size} processes; it must be less and not negative"
        )
    generation = _claim(store, rank, world_size)
    store = PrefixStore(f"default_pg/{generation}", store)
    _world.interface = _interface(store)
    pg = _create(list(range(world_size)), rank, name, store, limit, group_name or "0", "default_pg")
    _world.default_pg = pg
    _world.group_count = 1
    if world_size > 1:
        from ._sync_batch_norm import install

        install()


_PROCESS = f"{socket.gethostname()}/{secrets.token_hex(8)}"  # differs between processes, also those of a fork


def _claim(store: Store, rank: int, world_size: int) -> int:
    """Returns how often this process has been this rank of the store's job, from 1. Raises if another process
    is, or was told another number of processes.
    """
    sizes = store.compare_set("world_size", "", str(world_size)).decode()
    if sizes != str(world_size):
        raise ValueError(
            f"init_process_group: rank {rank} was told of {world_size} processes, another one of {sizes}"
        )
    me = f"{_PROCESS}/{os.getpid()}"
    if store.compare_set(f"owner/{rank}", "", me).decode() != me:
        raise ValueError(
            f"init_process_group: another process is rank {rank} already, or an earlier job used this "
            "store; give each "
            "process a rank of its own, and each job a store of its own"
        )
    return store.add(f"generation/{rank}", 1)


def _end_store(store: Store, world_size: int) -> None:
    """Removes the file of a FileStore when the last process leaves."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, FileStore):
        with contextlib.suppress(OSError, DistError):
            store._leave(world_size)


def _create(
    ranks: list[int], rank: int, backend: str, store: Store, timeout: timedelta, name: str, desc: str
) -> ProcessGroup:
    """Creates and registers a group of the world's ``ranks``, with this process among them."""
    own = PrefixStore(f"{name}/", store)
    own.set_timeout(timeout)
    engine = Backend._engine_of(backend)
    if engine in Backend._plugins:
        pg = Backend._plugins[engine](own, ranks.index(rank), len(ranks), timeout)
        pg._ranks, pg._backend = list(ranks), backend
    else:
        pg = ProcessGroup(own, ranks.index(rank), len(ranks))
        pg._backend, pg._timeout, pg._ranks = backend, timeout, list(ranks)
        pg.group_name, pg.group_desc = name, desc
        _connect(pg, engine, ranks)
    _world.pg_map[pg] = (backend, own)
    _world.pg_names[pg] = name
    _world.pg_group_ranks[pg] = {r: k for k, r in enumerate(ranks)}
    _world.pg_backend_config[pg] = f"cpu:{backend}" if ":" not in backend else str(backend)
    return pg


def _group_alone() -> ProcessGroup:
    """Returns a group of this process alone, which is not registered."""
    pg = ProcessGroup(None, 0, 1)
    pg.group_name = "alone"
    pg._connect("127.0.0.1")
    return pg


def _connect(pg: ProcessGroup, engine: str, ranks: list[int]) -> None:
    """Gives a group its engine: that of a shared library, or ours."""
    if engine == "mpi":
        from ._mpi import MpiEngine

        pg._native = MpiEngine(ranks)
    elif engine == "nccl":
        from ._nccl import NcclEngine

        pg._native = NcclEngine(pg._store, pg.rank(), pg.size())
    else:
        pg._connect(_world.interface)


def _get_default_group() -> ProcessGroup:
    if _world.default_pg is None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    return _world.default_pg


def _get_default_store() -> Store:
    return _world.pg_map[_get_default_group()][1]


def _get_process_group_store(group: ProcessGroup) -> Store:
    return _world.pg_map[group][1]


def _get_process_group_name(group: ProcessGroup) -> str:
    return _world.pg_names.get(group, "None")


def _resolve_process_group(name: str) -> ProcessGroup:
    """Returns the group with this name, as ``group_name`` of a group has it."""
    for group, group_name in _world.pg_names.items():
        if group_name == name:
            return group
    raise ValueError(
        f"Group {name!r} is not registered, please create group with torch.distributed.new_group API"
    )


def _update_default_pg(group: ProcessGroup | None) -> None:
    _world.default_pg = group


def get_pg_count() -> int:
    return _world.group_count


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Destroys a group, or all groups: pending operations complete, and the others may go on without this
    process.
    """
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    pg = _world.default_pg if group is None else group
    if pg is None:
        raise AssertionError("Process group cannot be None: call init_process_group first")
    if pg not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    everything = group is None or pg is _world.default_pg
    for each in reversed(list(_world.pg_map)) if everything else [pg]:
        each.shutdown()
        if not everything:
            for table in (_world.pg_map, _world.pg_names, _world.pg_group_ranks, _world.pg_backend_config):
                table.pop(each, None)
    if everything:
        if _world.default_pg is pg and pg in _world.pg_map:
            _end_store(_world.pg_map[pg][1], pg.size())
        _world.clear()


def _abort_process_group(group: ProcessGroup | None = None) -> None:
    """Ends a group, or all groups, on all ranks without waiting for pending operations."""
    pg = _get_default_group() if group is None else group
    if pg not in _world.pg_map:
        raise ValueError("Invalid process group specified or has been destroyed.")
    everything = group is None or pg is _world.default_pg
    for each in reversed(list(_world.pg_map)) if everything else [pg]:
        each.abort()
    destroy_process_group(group)


def _rank_not_in_group(group: Any) -> bool:
    return bool(group is not None and group == GroupMember.NON_GROUP_MEMBER)


def _resolve(group: Any) -> ProcessGroup:
    """Returns the group, or the default one."""
    if group is None:
        return _get_default_group()
    if not isinstance(group, ProcessGroup):
        _get_default_group()
        raise ValueError(
            f"Group {group} is not registered, please create group with torch.distributed.new_group API"
        )
    return group


def _outside(name: str, group: Any) -> bool:
    """Returns whether this process is outside of the group, with a warning."""
    if not _rank_not_in_group(group):
        return False
    rank = -1 if _world.default_pg is None else _world.default_pg.rank()
    warnings.warn(
        f"Running {name} on global rank {rank} which does not belong to the given group.", stacklevel=3
    )
    return True


def get_rank(group: Any = None) -> int:
    """Returns the rank of this process in a group; -1 outside of it."""
    if _rank_not_in_group(group):
        return -1
    world = _get_default_group()
    if group is None or group is world:
        return world.rank()
    return get_group_rank(group, world.rank())


def get_world_size(group: Any = None) -> int:
    """Returns the number of ranks of a group; -1 outside of it."""
    return -1 if _rank_not_in_group(group) else _resolve(group).size()


_get_group_size = get_world_size


def get_backend(group: Any = None) -> str:
    if _rank_not_in_group(group):
        raise ValueError("Invalid process group specified: this process is not in it")
    return Backend(_resolve(group)._backend)


def get_backend_config(group: Any = None) -> str:
    if _rank_not_in_group(group):
        raise ValueError("Invalid process group specified")
    return _world.pg_backend_config[_resolve(group)]


def get_default_backend_for_device(device: Any) -> str:
    """Returns the backend for tensors of a device."""
    if _C.device(device).type != "cpu":
        raise ValueError(f"Default backend not registered for device : {device}")
    return "gloo"


def get_process_group_ranks(group: Any = None) -> list[int]:
    """Returns the ranks in the world of a group, in the order of the group."""
    return list(_world.pg_group_ranks[_resolve(group)])


def get_global_rank(group: Any, group_rank: int) -> int:
    """Returns the rank in the world for a rank of a group."""
    if group is None or group is _world.default_pg:
        return group_rank
    ranks = list(_registered(group))
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


_get_global_rank = get_global_rank


def _registered(group: Any) -> dict[int, int]:
    if group not in _world.pg_group_ranks:
        raise ValueError(
            f"Group {group} is not registered, please create group with torch.distributed.new_group API"
        )
    return _world.pg_group_ranks[group]


def get_group_rank(group: Any, global_rank: int) -> int:
    """Returns the rank in a group for a rank of the world."""
    if group is None or group is _world.default_pg:
        return global_rank
    ranks = _registered(group)
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks[global_rank]


def _root(name: str, group: Any, rank: int | None, group_rank: int | None, default: int | None = None) -> int:
    """Returns the rank in the group of a root or partner, from its rank in the world or in the group."""
    if group_rank is None and rank is None:
        rank = default
    if group_rank is not None and rank is not None:
        raise ValueError(
            f"{name}: Can't specify both the rank in the world and the rank in the group (group_rank)"
        )
    if group_rank is None:
        if rank is None:
            raise ValueError(
                f"{name}: Must specify the rank in the world or the rank in the group (group_rank)"
            )
        group_rank = get_group_rank(group, rank)
    size = _resolve(group).size()
    if not 0 <= group_rank < size:
        raise RuntimeError(f"{name}: rank {group_rank} is not in [0, {size}), the ranks of the group")
    return group_rank


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


# ---- groups of some ranks


def _process_group_name(ranks: list[int], use_hashed_name: bool) -> str:
    if use_hashed_name:  # only the members create the group, so that others do not count it
        text = hashlib.sha1("_".join(map(str, ranks)).encode()).hexdigest()
        count = _world.hashed_names[text] = _world.hashed_names.get(text, 0) + 1
        return f"{text}/{count}"
    _world.group_count += 1
    return str(_world.group_count - 1)


def new_group(
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: Any = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """Creates a group of these ranks. All processes of the world call it, in the same order; with
    ``use_local_synchronization`` only those of the group. Others get ``GroupMember.NON_GROUP_MEMBER``.
    """
    world = _get_default_group()
    default, store = _world.pg_map[world]
    size = world.size()
    name = Backend(backend or default)._checked()
    limit = _world.default_pg._timeout if timeout is None and _world.default_pg else timeout
    _check_valid_timeout(limit)
    assert limit is not None
    members = list(range(size)) if ranks is None else (sorted(ranks) if sort_ranks else list(ranks))
    for r in members:
        if not 0 <= r < size:
            raise ValueError(
                f"Rank {r} is out of range. Valid ranks are 0 to {size - 1} (world_size={size}): The new "
                "group's rank "
                "should be within the world_size set by init_process_group"
            )
    if len(set(members)) != len(members):
        raise ValueError(f"ranks list must not contain duplicate entries, got {members}")
    if len(members) > size:
        raise ValueError("the new group's world size should be less or equal to the world size")
    if use_local_synchronization and world.rank() not in members:
        return None
    if not members:
        return GroupMember.NON_GROUP_MEMBER
    label = _process_group_name(members, use_local_synchronization)
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    return _create(members, world.rank(), name, store, limit, label, group_desc or "undefined")


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | None = None,
    backend: Any = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Divides a group into groups of ``group_size`` consecutive ranks: returns that of this process, and
    all.
    """
    if group_size is None:
        raise ValueError(
            "Default group size only takes effect when CUDA is available. "
            "If your subgroup uses a backend that does not depend on CUDA, please pass in 'group_size' "
            "correctly."
        )
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    size = get_world_size(group)
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    ranks = get_process_group_ranks(group)
    parts = [ranks[i : i + group_size] for i in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: timedelta | None = None,
    backend: Any = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Creates disjoint groups: returns that of this process, and all."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    groups, own, parts = [], None, {}
    for ranks in ranks_per_subgroup_list:
        groups.append(new_group(ranks, timeout, backend, pg_options, group_desc=group_desc))
        for rank in ranks:
            if rank in parts:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {parts[rank]} and {ranks}")
            parts[rank] = ranks
        if get_rank() in ranks:
            own = groups[-1]
    return own, groups


def split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: Any = None,
) -> Any:
    """Divides a group, by ranks of that group, and returns the part that contains this process."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = _resolve(parent_pg)
    for ranks in split_ranks:
        if not ranks:
            raise ValueError("the split group cannot be empty")
        if len(ranks) > parent.size():
            raise ValueError("the split group's size should be less or equal to the size of its parent")
        if len(set(ranks)) != len(ranks):
            raise ValueError("the split group cannot have duplicate ranks")
    for ranks in split_ranks:
        if parent.rank() in ranks:
            members = [get_global_rank(parent, r) for r in sorted(ranks)]
            return new_group(members, timeout, backend, pg_options, True, group_desc)
    return None


__all__ = [
    "DebugLevel",
    "GroupMember",
    "destroy_process_group",
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
    "init_process_group",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "split_group",
]
