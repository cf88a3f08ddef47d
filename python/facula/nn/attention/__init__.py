"""Selection of the backend of ``scaled_dot_product_attention``. There is only one, whose memory is
proportional to the length: it stands for PyTorch's memory-saving backends and for MATH.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

__all__ = [
    "WARN_FOR_UNFUSED_KERNELS",
    "SDPBackend",
    "activate_flash_attention_impl",
    "current_flash_attention_impl",
    "list_flash_attention_impls",
    "register_flash_attention_impl",
    "restore_flash_attention_impl",
    "sdpa_kernel",
]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """PyTorch's backends of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __repr__(self) -> str:
        return f"<SDPBackend.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"SDPBackend.{self.name}"


_all = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
    SDPBackend.CUDNN_ATTENTION,
]
_allowed: list[SDPBackend] = list(_all)


@contextlib.contextmanager
def sdpa_kernel(backends: Iterable[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[Any]:
    """Within the ``with`` block attention may use these backends only. All of them compute the same here;
    if none is allowed, attention raises an error.
    """
    global _allowed
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends)}"
        )
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    for b in chosen:
        if not isinstance(b, SDPBackend):
            raise TypeError(f"sdpa_kernel: expected an SDPBackend, got {type(b).__name__}")
    before, _allowed = _allowed, list(dict.fromkeys(chosen))
    try:
        yield {}
    finally:
        _allowed = before


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return list(_allowed)


def _backend_from_string(name: str) -> SDPBackend:
    return SDPBackend[name]


def register_flash_attention_impl(impl: str, *, register_fn: Any) -> None:
    raise NotImplementedError("implementations of flash attention are for GPUs, of which there are none here")


def activate_flash_attention_impl(impl: str) -> None:
    raise ValueError(f"Unknown flash attention impl '{impl}'. Available implementations: []")


def list_flash_attention_impls() -> list[str]:
    return []


def current_flash_attention_impl() -> str | None:
    return None


def restore_flash_attention_impl(_raise_warn: bool = True) -> None:
    """Has no effect: there is nothing to restore."""
