"""Grad modes: context managers that are also decorators of functions and generators."""

from __future__ import annotations

from _thread import _local
from functools import wraps

from . import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

_GENERATOR = 0x20  # inspect.CO_GENERATOR; inspect is slow to import


class _Decorator:
    """Runs each call of a decorated function in a new instance of the mode."""

    def __call__(self, f: Callable) -> Callable:
        if isinstance(f, type):
            import warnings

            warnings.warn(
                f"Decorating classes is deprecated; {type(self).__name__} decorates the methods of "
                f"{f.__name__} "
                "that need it. Its __init__ alone runs in the mode now.",
                FutureWarning,
                stacklevel=2,
            )
            f.__init__ = self(f.__init__)  # type: ignore[misc]
            return f
        if getattr(getattr(f, "__code__", None), "co_flags", 0) & _GENERATOR:
            return self._wrap_generator(f)

        @wraps(f)
        def in_mode(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return f(*args, **kwargs)

        return in_mode

    def _again(self) -> Any:
        return type(self)()

    def _wrap_generator(self, f: Callable) -> Callable:
        @wraps(f)
        def in_mode(*args: Any, **kwargs: Any) -> Generator:
            """The mode applies while the generator's code runs, not between its values."""
            generator = f(*args, **kwargs)
            try:
                with self._again():
                    value = next(generator)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        with self._again():
                            generator.close()
                        raise
                    except BaseException as error:
                        with self._again():
                            value = generator.throw(error)
                    else:
                        with self._again():
                            value = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return in_mode


class _GradMode(_Decorator, _C.GradMode):
    _on: bool

    def __new__(cls, orig_func: Callable | None = None) -> Any:
        self = super().__new__(cls)
        if orig_func is None:
            return self
        self.__init__()
        return self(orig_func)

    def __init__(self, orig_func: Callable | None = None) -> None:
        super().__init__(self._on)


class no_grad(_GradMode):
    """Operations inside are not recorded."""

    _on = False


class enable_grad(_GradMode):
    """Operations inside are recorded, also within no_grad."""

    _on = True


class set_grad_enabled(_Decorator):
    """Switches recording immediately; as a context manager, until the end of the block."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        self.prev = _C.is_grad_enabled()
        self.mode = mode
        _C.set_grad_enabled(mode)

    def __call__(self, f: Callable) -> Callable:
        _C.set_grad_enabled(self.prev)
        return super().__call__(f)

    def _again(self) -> set_grad_enabled:
        return type(self)(self.mode)

    def __repr__(self) -> str:
        return f"{_C.package_name()}.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def __enter__(self) -> None:
        _C.set_grad_enabled(self.mode)

    def __exit__(self, *exc: object) -> None:
        _C.set_grad_enabled(self.prev)


class inference_mode(_Decorator, _C.InferenceMode):
    """Like no_grad; in addition, results have no version counter or view tracking: faster, but they can
    never take part in a later recording.
    """

    def __new__(cls, mode: bool | Callable = True) -> Any:
        self = super().__new__(cls)
        if isinstance(mode, bool):
            return self
        self.__init__()
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(mode)
        self.mode = mode

    def _again(self) -> inference_mode:
        return type(self)(self.mode)


# ---- the device of new tensors


def get_default_device() -> Any:
    """Returns the device of new tensors."""
    return _C.get_default_device()


def set_default_device(device: Any) -> None:
    """Sets the device of this thread's new tensors; None means the CPU."""
    _C.set_default_device("cpu" if device is None else device)


class _Outer(_local):
    """The stack of this thread's default devices to restore."""

    def __init__(self) -> None:
        self.devices: list[Any] = []


_outer = _Outer()


def _enter_device(self: Any) -> Any:
    outer = _C.get_default_device()
    _C.set_default_device(self)
    _outer.devices.append(outer)
    return self


def _exit_device(self: Any, *exc: Any) -> None:
    _C.set_default_device(_outer.devices.pop())


_C.device.__enter__ = _enter_device  # with facula.device("meta"): ...
_C.device.__exit__ = _exit_device


def _load_device(name: str) -> None:
    """Loads the installed packages that add devices (entry points of "facula.backends") when a device of
    an unknown name is requested.
    """
    from importlib.metadata import entry_points

    while points := [p for p in entry_points(group="facula.backends") if p.value not in _loaded]:
        _loaded.add(points[0].value)
        points[0].load()()


_loaded: set[str] = set()
_C.set_device_loader(_load_device)

_DecoratorContextManager = _Decorator  # PyTorch's name, from which libraries derive
