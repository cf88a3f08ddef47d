"""No CUDA: what programs ask before they use it is answered, the rest raises as PyTorch without CUDA does."""

from __future__ import annotations

from typing import Any

from . import amp as amp


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing to free."""


def _missing(name: str) -> Any:
    def f(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("Facula not compiled with CUDA enabled")

    f.__name__ = f.__qualname__ = name
    return f


for _name in ("synchronize", "current_device", "set_device", "get_device_name", "get_device_properties",
              "get_device_capability", "current_stream", "init"):  # fmt: skip
    globals()[_name] = _missing(_name)


def memory_allocated(device: Any = None) -> int:
    return 0


def max_memory_allocated(device: Any = None) -> int:
    return 0
