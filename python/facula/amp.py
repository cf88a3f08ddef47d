"""Automatic mixed precision: ``autocast``, ``custom_fwd`` and ``custom_bwd``."""

from __future__ import annotations

from functools import wraps
from typing import Any

from . import _C
from ._modes import _Decorator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LOWER = (_C.bfloat16, _C.float16)


def _check_device(device_type: str) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type != "cpu":
        raise RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}': only 'cpu' is supported"
        )


class autocast(_Decorator):
    """Inside, products and convolutions compute in ``dtype``; losses, decompositions and transforms in
    float32; everything else in the dtype of its operands. Gradients have the dtype of what they belong to.

    A context manager and a decorator. Regions nest; ``enabled=False`` leaves it for a while.
    """

    def __init__(
        self,
        device_type: str = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        _check_device(device_type)
        _, current, caches = _C.autocast_state()
        self.device = device_type
        self.fast_dtype = current if dtype is None else dtype
        self._cache_enabled = caches if cache_enabled is None else cache_enabled
        self._enabled = enabled
        if enabled and self.fast_dtype not in _LOWER:
            import warnings

            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtype of facula.bfloat16, facula.float16 currently.",
                stacklevel=2,
            )
            self._enabled, self.fast_dtype = False, current
        self._outer: list[tuple] = []

    def _again(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self._enabled, self._cache_enabled)

    def __enter__(self) -> autocast:
        self._outer.append(_C.autocast_state())
        _C.set_autocast(bool(self._enabled), self.fast_dtype, bool(self._cache_enabled))
        _C.enter_autocast()
        return self

    def __exit__(self, *exc: object) -> None:
        _C.exit_autocast()
        _C.set_autocast(*self._outer.pop())


def is_autocast_available(device_type: str) -> bool:
    """Can autocast be used on this kind of device?"""
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Is autocast on for this thread?"""
    return device_type == "cpu" and _C.autocast_state()[0]


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches autocast on this thread."""
    if enabled is None:
        device_type, enabled = "cpu", device_type
    _check_device(device_type)
    _C.set_autocast(bool(enabled), *_C.autocast_state()[1:])


def get_autocast_dtype(device_type: str) -> Any:
    """What products are lowered to."""
    _check_device(device_type)
    return _C.autocast_state()[1]


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets what products are lowered to."""
    _check_device(device_type)
    enabled, _, caches = _C.autocast_state()
    _C.set_autocast(enabled, dtype, caches)


def is_autocast_cpu_enabled() -> bool:
    """Is autocast on for this thread?"""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> Any:
    """What products are lowered to."""
    return get_autocast_dtype("cpu")


def is_autocast_cache_enabled() -> bool:
    """Are casts of parameters kept until the outermost region ends?"""
    return _C.autocast_state()[2]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether casts of parameters are kept until the outermost region ends."""
    on, dtype, _ = _C.autocast_state()
    _C.set_autocast(on, dtype, bool(enabled))


clear_autocast_cache = _C.clear_autocast_cache


def _cast(value: Any, dtype: Any) -> Any:
    if isinstance(value, _C.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != _C.float64 else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, dict):
        return {_cast(k, dtype): _cast(v, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype) for v in value)
    return value


def custom_fwd(fwd: Callable | None = None, *, device_type: str = "cpu", cast_inputs: Any = None) -> Any:
    """For ``forward`` of an autograd.Function: with ``cast_inputs``, inside a region its tensors are cast to
    that dtype and it runs with autocast off; else it runs as it is called. Its ``custom_bwd`` does the same.
    """
    _check_device(device_type)
    if fwd is None:
        return lambda f: custom_fwd(f, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx, enabled = args[0], is_autocast_enabled(device_type)
        ctx._dtype = get_autocast_dtype(device_type)
        if cast_inputs is None or not enabled:
            ctx._fwd_used_autocast = enabled
            return fwd(*args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args[1:], cast_inputs), **_cast(kwargs, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cpu") -> Any:
    """For ``backward`` of an autograd.Function whose ``forward`` is decorated with ``custom_fwd``: it runs
    with autocast as ``forward`` did.
    """
    _check_device(device_type)
    if bwd is None:
        return lambda f: custom_bwd(f, device_type=device_type)

    @wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, dtype=args[0]._dtype, enabled=args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return decorated


__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
