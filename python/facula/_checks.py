"""Assertions for programs, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _C

__all__ = ["_assert_async", "_check", "_check_index", "_check_is_size", "_check_not_implemented",
           "_check_tensor_all", "_check_tensor_all_with", "_check_type", "_check_value",
           "_check_with"]  # fmt: skip

_USUAL = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


def _raise_unless(error: type[Exception], cond: Any, message: Callable[[], Any] | None) -> None:
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error(_USUAL if message is None else str(message()))


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], Any] | None) -> None:
    """Raises ``error_type(message())`` unless ``cond`` is True."""
    if not issubclass(error_type, Exception):
        raise TypeError("error_type must be a subclass of Exception")
    _raise_unless(error_type, cond, message)


def _check(cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raises RuntimeError unless ``cond`` is True."""
    _raise_unless(RuntimeError, cond, message)


def _assert_async(self: Any, assert_msg: str | None = None) -> None:
    """RuntimeError unless the tensor's one element is not zero; on the CPU the check is made at once."""
    if self.numel() != 1:
        raise RuntimeError(
            f"Boolean value of Tensor with {'more than one value' if self.numel() else 'no values'} is "
            "ambiguous"
        )
    if not self.item():
        raise RuntimeError(
            "Expected Tensor with single nonzero value, but got zero" if assert_msg is None else assert_msg
        )


def _check_index(cond: Any, message: Callable[[], Any] | None = None) -> None:
    _raise_unless(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], Any] | None = None) -> None:
    _raise_unless(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], Any] | None = None) -> None:
    _raise_unless(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], Any] | None = None) -> None:
    _raise_unless(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Callable[[], Any] | None = None, *, max: Any = None) -> None:
    """Raises RuntimeError unless ``i`` is a valid size: not negative, and at most ``max``."""
    _check(bool(i >= 0), message)
    if max is not None:
        _check(bool(i <= max), message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: Callable[[], Any] | None = None
) -> None:
    """Raises an error unless all elements of a bool tensor are True."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Any, message: Callable[[], Any] | None = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)
