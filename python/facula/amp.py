"""Automatic mixed precision: ``autocast``, ``custom_fwd`` and ``custom_bwd``."""

from __future__ import annotations

import enum
import sys
from functools import wraps
from typing import Any

from . import _C
from ._modes import _Decorator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LOWER = (_C.bfloat16, _C.float16)


def _check_device(device_type: str) -> None:
    """Checks that a device type of this name exists, not necessarily here."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    _C.device(device_type)


def _deprecated(name: str, instead: str) -> None:
    """Warns when a deprecated class is used, and names its replacement."""
    import warnings

    package = _C.package_name()
    warnings.warn(
        f"`{package}.{name}(args...)` is deprecated. Please use `{package}.{instead}` instead.",
        FutureWarning,
        stacklevel=3,
    )


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, UserWarning, stacklevel=3)


class autocast(_Decorator):
    """Within the block, products and convolutions compute in ``dtype``; losses, decompositions and
    transforms in float32; everything else in the dtype of its operands. Gradients have the dtype of their
    tensors.

    A context manager and a decorator. Regions nest; ``enabled=False`` suspends autocast.
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
        if device_type != "cpu":
            if enabled:
                _warn(
                    f"User provided device_type of '{device_type}', but it is not available. Disabling "
                    "autocast."
                )
            enabled, dtype = False, current if dtype is None else dtype
        self.device = device_type
        self.fast_dtype = current if dtype is None else dtype
        self._cache_enabled = caches if cache_enabled is None else cache_enabled
        self._enabled = enabled
        if self.fast_dtype not in _LOWER:  # an unsupported dtype matters only if it is used
            if enabled:
                _warn(
                    "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                    f"CPU Autocast only supports dtypes of {_C.bfloat16}, {_C.float16} currently."
                )
            self._enabled, self.fast_dtype = False, current
        self._outer: list[tuple] = []

    def _again(self) -> autocast:
        other = _autocast.__new__(_autocast)
        other.__dict__.update(self.__dict__, _outer=[])
        return other

    def __enter__(self) -> autocast:
        self._outer.append(_C.autocast_state())
        if self.device != "cpu":  # other devices do not affect the CPU
            _C.enter_autocast()
            return self
        _C.set_autocast(bool(self._enabled), self.fast_dtype, bool(self._cache_enabled))
        _C.enter_autocast()
        return self

    def __exit__(self, *exc: object) -> None:
        _C.exit_autocast()
        _C.set_autocast(*self._outer.pop())


_autocast = autocast


def is_autocast_available(device_type: str) -> bool:
    """Returns whether autocast is available for this device type."""
    return device_type == "cpu"


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Returns whether autocast is on for this thread and device type (default CUDA, as in PyTorch)."""
    return device_type == "cpu" and _C.autocast_state()[0]


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches autocast on this thread."""
    if enabled is None:
        device_type, enabled = "cpu", device_type
    _check_device(device_type)
    _C.set_autocast(bool(enabled), *_C.autocast_state()[1:])


def get_autocast_dtype(device_type: str) -> Any:
    """Returns the dtype of products under autocast."""
    _check_device(device_type)
    return _C.autocast_state()[1]


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the dtype of products under autocast."""
    _check_device(device_type)
    enabled, _, caches = _C.autocast_state()
    _C.set_autocast(enabled, dtype, caches)


def is_autocast_cpu_enabled() -> bool:
    """Returns whether autocast is on for this thread."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> Any:
    """Returns the dtype of products under autocast."""
    return get_autocast_dtype("cpu")


def is_autocast_cache_enabled() -> bool:
    """Returns whether casts of parameters are cached until the outermost region ends."""
    return _C.autocast_state()[2]


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether casts of parameters are cached until the outermost region ends."""
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
    """Decorates ``forward`` of an autograd.Function: with ``cast_inputs``, inside of a region its tensors
    are cast to that dtype and it runs with autocast off; otherwise it runs under the caller's autocast.
    ``custom_bwd`` decorates its ``backward`` correspondingly.
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
    """Decorates ``backward`` of an autograd.Function whose ``forward`` is decorated with ``custom_fwd``:
    it runs with the autocast state of ``forward``.
    """
    _check_device(device_type)
    if bwd is None:
        return lambda f: custom_bwd(f, device_type=device_type)

    @wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, dtype=args[0]._dtype, enabled=args[0]._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return decorated


def all_finite(tensors: list) -> _C.Tensor:
    """Returns whether all elements are finite, as a tensor of one bool."""
    return _all([t.isfinite().all() for t in tensors])


def _all(flags: list) -> _C.Tensor:
    return _C.functions.stack(flags).all() if flags else _C.tensor(True)


def _reports_reads(optimizer: Any) -> bool:
    """Returns whether the steps of an optimizer can be a part of a captured program."""
    return hasattr(type(optimizer), "_reports_reads") and optimizer._reports_reads()


class GradScaler:
    """Scales losses so that gradients in float16 do not underflow, and skips steps with gradients that
    are not finite.

    ``scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()``: the scale grows by
    ``growth_factor`` after ``growth_interval`` finite steps and shrinks by ``backoff_factor`` after a
    skipped one. Micikevicius et al., "Mixed Precision Training", 2018. ``enabled=False`` disables it.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _check_device(device)
        self._enabled = enabled
        if enabled and device != "cpu":
            _warn(f"GradScaler is enabled, but {device} is not available.  Disabling.")
            self._enabled = False
        if self._enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if self._enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._scale = _C.tensor(float(init_scale), dtype=_C.float32)
        self._growth_tracker = _C.tensor(0, dtype=_C.int32)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._scaled = False  # whether scale() was ever called

    def _check_scaled(self, what: str) -> None:
        if not self._scaled:
            raise AssertionError(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    def is_enabled(self) -> bool:
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """Returns a tensor, or tensors in nested lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        self._scaled = True
        if isinstance(outputs, _C.Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(x) for x in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _of(self, optimizer: Any) -> dict[str, Any]:
        return self._optimizers.setdefault(
            id(optimizer), {"stage": "ready", "finite": True, "checked": False}
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters by the scale; otherwise step() does it."""
        if not self._enabled:
            return
        self._check_scaled("unscale_")
        of = self._of(optimizer)
        if of["stage"] == "unscaled":
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if of["stage"] == "stepped":
            raise RuntimeError("unscale_() is being called after step().")
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        of["checked"] = bool(grads)
        with _C.GradMode(False):
            inverse = self._scale.double().reciprocal().float()
            for g in grads:
                if g.dtype == _C.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                g.mul_(inverse)
            of["finite"] = all_finite(grads)
        of["stage"] = "unscaled"

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs ``optimizer.step(*args, **kwargs)`` if the gradients are finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scaled("step")
        of = self._of(optimizer)
        if of["stage"] == "stepped":
            raise RuntimeError("step() has already been called since the last update().")
        if of["stage"] == "ready":
            self.unscale_(optimizer)
        if not of["checked"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = self._step(optimizer, of["finite"], args, kwargs)
        of["stage"] = "stepped"
        return result

    def _step(self, optimizer: Any, finite: _C.Tensor, args: tuple, kwargs: dict[str, Any]) -> Any:
        if _C.is_capturing() and not args and not kwargs and _reports_reads(optimizer):
            # The program steps at each call, and keeps what was there if it is not to step.
            before = optimizer._before_step()
            result = optimizer.step()
            optimizer._keep(finite, before)
            return result
        return optimizer.step(*args, **kwargs) if finite else None

    def update(self, new_scale: Any = None) -> None:
        """Adapts the scale, or sets it."""
        if not self._enabled:
            return
        self._check_scaled("update")
        if new_scale is not None:
            with _C.GradMode(False):
                self._scale.copy_(_C.as_tensor(new_scale))
        elif not any(of["checked"] for of in self._optimizers.values()):
            raise AssertionError("No inf checks were recorded prior to update.")
        else:
            self._adapt(_all([of["finite"] for of in self._optimizers.values() if of["checked"]]))
        self._optimizers.clear()

    def _adapt(self, finite: _C.Tensor) -> None:
        where = _C.functions.where
        with _C.GradMode(False):
            count = self._growth_tracker + 1
            grows = finite & (count == self._growth_interval)
            larger = self._scale * self._growth_factor
            larger = where(larger.isfinite(), larger, self._scale)
            smaller = self._scale * self._backoff_factor
            self._scale.copy_(where(finite, where(grows, larger, self._scale), smaller))
            self._growth_tracker.copy_(where(finite & ~grows, count, 0))

    def get_scale(self) -> float:
        return self._scale.item() if self._enabled else 1.0

    def _get_growth_tracker(self) -> int:
        return self._growth_tracker.item() if self._enabled else 0

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """Returns the state; empty if the scaler is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled GradScaler."
            )
        self._scale.fill_(state_dict["scale"])
        self._growth_tracker.fill_(state_dict["_growth_tracker"])
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

# this module also serves as torch.amp.grad_scaler and torch.amp.autocast_mode
__path__: list[str] = []
for _name in ("grad_scaler", "autocast_mode"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]


class OptState(enum.Enum):
    """The scaler's progress with an optimizer's gradients in this step."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2
