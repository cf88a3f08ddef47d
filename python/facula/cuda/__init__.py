"""CUDA is unavailable: queries say so, and other functions raise the errors of PyTorch without CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._types import OutOfMemoryError as OutOfMemoryError
from .._no_gpu import (
    device_count as device_count,
    empty_cache as empty_cache,
    is_available as is_available,
    is_bf16_supported as is_bf16_supported,
    is_initialized as is_initialized,
)
from . import amp as amp
from . import nvtx as nvtx
from .random import *  # noqa: F403

_initialized = False
default_generators: tuple[Any, ...] = ()
TYPE_CHECKING = False
if TYPE_CHECKING:

    def synchronize(device: Any = None) -> None: ...


def _missing(name: str) -> Any:
    def f(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("Facula not compiled with CUDA enabled")

    f.__name__ = f.__qualname__ = name
    return f


for _name in ("synchronize", "current_device", "set_device", "get_device_name", "get_device_properties",
              "get_device_capability", "current_stream", "init", "default_stream", "mem_get_info",
              "utilization", "memory_usage", "temperature", "power_draw", "clock_rate", "set_stream",
              "get_sync_debug_mode", "set_sync_debug_mode", "current_blas_handle", "cudart",
              "can_device_access_peer", "caching_allocator_alloc", "caching_allocator_delete",
              "set_per_process_memory_fraction", "get_per_process_memory_fraction", "graph_pool_handle",
              "make_graphed_callables", "list_gpu_processes", "device_memory_used"):  # fmt: skip
    globals()[_name] = _missing(_name)


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Calls ``callable`` when CUDA begins to be used, which is never."""


class Event:
    """A point in a stream: unavailable without CUDA."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        synchronize()


class Stream:
    """A queue of work on a GPU: unavailable without CUDA."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        synchronize()


@contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Makes a stream current within the block; None, the only valid value here, has no effect."""
    if stream is not None:
        synchronize()
    yield


@contextmanager
def device(device: Any) -> Iterator[None]:
    """Makes a GPU current within the block; a negative number or None has no effect."""
    if device is not None and not (isinstance(device, int) and device < 0):
        synchronize()
    yield


def memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0


def memory_reserved(device: Any = None) -> int:
    return 0


def max_memory_reserved(device: Any = None) -> int:
    return 0


def reset_peak_memory_stats(device: Any = None) -> None:
    """Has no effect: there is nothing to reset."""


def ipc_collect() -> None:
    """Has no effect: there is nothing to free."""


max_memory_cached, memory_cached = max_memory_reserved, memory_reserved
has_half, has_magma = True, False


def initial_seed() -> int:
    """Raises an error: there is no GPU's generator."""
    raise AssertionError("Facula not compiled with CUDA enabled")


def get_arch_list() -> list[str]:
    """Returns the GPU architectures that this build supports: none."""
    return []


def get_gencode_flags() -> str:
    return ""


def memory_stats(device: Any = None) -> dict[str, Any]:
    return {}


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    return {}


def is_current_stream_capturing() -> bool:
    return False


def is_tf32_supported() -> bool:
    return False


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Has no effect: there is nothing to reset."""


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


class CUDAGraph:
    """A recorded sequence of work on a GPU: unavailable without CUDA."""

    def __init__(self, keep_graph: bool = False) -> None:
        synchronize()


class graph(CUDAGraph):
    """Records work on a GPU: unavailable without CUDA."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        synchronize()


class _Absent(type):
    """The metaclass of constructors of GPU tensors: no tensor is an instance, and none can be created."""

    def __instancecheck__(cls, instance: object) -> bool:
        return False

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"type torch.cuda.{cls.__name__} not available. Torch not compiled with CUDA enabled."
        )


for _name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
    for _kind in ("Tensor", "Storage"):
        globals()[_name + _kind] = _Absent(_name + _kind, (), {"__module__": __name__})


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Returns an empty text."""
    return ""


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[Any]:
    return []


@contextmanager
def device_of(obj: Any) -> Iterator[None]:
    """Has no effect: makes the GPU of a tensor current within the block, and there is none."""
    yield
