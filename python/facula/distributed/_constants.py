"""Names that describe groups of processes: reductions, backends, levels of checks."""

from __future__ import annotations

import enum
import importlib
import os
from collections.abc import Callable
from typing import Any

from .. import _C

__all__ = [
    "Backend",
    "DebugLevel",
    "ReduceOp",
    "get_debug_level",
    "is_backend_available",
    "reduce_op",
    "set_debug_level",
    "set_debug_level_from_env",
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

    factor: Any = None  # of PREMUL_SUM

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


# Errors about a missing backend end with the library that it needs.
_LIBRARIES = {
    "mpi": "; it needs the library of Open MPI (libmpi.so.40, or FACULA_MPI_LIBRARY)",
    "nccl": "; it needs the library of NCCL (libnccl.so.2, or FACULA_NCCL_LIBRARY)",
}


def is_backend_available(backend: str) -> bool:
    """Returns whether groups can be created with a backend."""
    name = backend.lower()
    if name in _LIBRARIES and name not in Backend._plugins:
        return importlib.import_module(f"._{name}", __package__).is_available()
    return name in (Backend.GLOO, Backend.FACULA) or name in Backend._plugins


class Backend(str):
    """The name of a communication backend, or of those of several types of devices:
    ``cpu:gloo,cuda:nccl``.
    """

    UNDEFINED, GLOO, FACULA, NCCL, XCCL, UCC, MPI = (
        "undefined",
        "gloo",
        "facula",
        "nccl",
        "xccl",
        "ucc",
        "mpi",
    )
    backend_list = [UNDEFINED, GLOO, FACULA, NCCL, XCCL, UCC, MPI]
    default_device_backend_map = {"cpu": GLOO}
    backend_capability: dict[str, list[str]] = {GLOO: ["cpu"], FACULA: ["cpu"]}
    _plugins: dict[str, Callable[..., Any]] = {}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls, name: str, func: Callable[..., Any], extended_api: bool = False, devices: Any = None
    ) -> None:
        """Registers ``func(store, rank, size, timeout)``, which creates a ProcessGroup, for a name of a
        backend.
        """
        low = name.lower()
        if low in cls._plugins or low in (cls.GLOO, cls.FACULA):
            raise RuntimeError(f"c10d backend {low} creator function already exist")
        setattr(cls, name.upper(), low)
        if low not in cls.backend_list:
            cls.backend_list.append(low)
        cls.backend_capability[low] = (
            ["cpu"] if devices is None else [devices] if isinstance(devices, str) else devices
        )
        cls._plugins[low] = func

    @classmethod
    def _engine_of(cls, name: str) -> str:
        """Returns the backend of tensors on the CPU."""
        parts = dict(p.split(":") for p in name.split(",") if ":" in p)
        return parts.get("cpu", name if not parts else next(iter(parts.values())))

    def _checked(self) -> Backend:
        """Returns itself if the backend is available; it may be named for each type of device."""
        for part in self.split(","):
            device, _, name = part.rpartition(":")
            if device:
                _C.device(device)
            if name not in self.backend_list:
                raise AssertionError(f"Unknown backend type {name}")
            if name != self.UNDEFINED and not is_backend_available(name):
                raise RuntimeError(
                    f"Distributed package doesn't have {name.upper()} built in, only gloo and facula"
                    + _LIBRARIES.get(name, "")
                )
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


class reduce_op:
    """The former name of ``ReduceOp``."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Returns whether this reduction supports complex numbers."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """Returns the reduction that multiplies by ``factor``, a number or a tensor, before it adds."""
    op = ReduceOp(ReduceOp.PREMUL_SUM)
    op.factor = factor
    return op
