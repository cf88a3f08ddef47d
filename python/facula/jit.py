"""Marks of TorchScript, which Facula does not need: programs that contain them run unchanged in eager
mode.
"""

from __future__ import annotations

import sys
import typing
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, TypeVar  # noqa: F401  (torch.jit.Final)

from .nn.modules.module import Module

T = TypeVar("T")
_isinstance = isinstance
__path__: list[str] = []  # for import torch.jit.annotations


def is_scripting() -> bool:
    return False


def is_tracing() -> bool:
    from ._trace_graph import tracing_state

    return tracing_state() is not None


def _get_trace_graph(*args: Any, **kwargs: Any) -> Any:
    """The graph of a function's calls, to be read (`_trace_graph.py`)."""
    from ._trace_graph import _get_trace_graph

    return _get_trace_graph(*args, **kwargs)


def ignore(f: Any = None, drop: bool = False, **kwargs: Any) -> Any:
    """Returns the function itself; a decorator with or without arguments."""
    return f if callable(f) else lambda g: g


def unused(fn: T) -> T:
    return fn


def export(fn: T) -> T:
    return fn


def interface(obj: T) -> T:
    return obj


def _overload(f: T) -> T:
    return f


def _overload_method(f: T) -> T:
    return f


def _script_if_tracing(f: T) -> T:
    return f


def script_method(fn: T) -> T:
    """Returns the function itself: marks a method of a ScriptModule."""
    return fn


def script_if_tracing(fn: T) -> T:
    return fn


def annotate(the_type: Any, the_value: T) -> T:
    return the_value


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """Returns the function or module itself: it runs in eager mode."""
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """Returns the function or module itself, like ``script``."""
    return func


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    return mod


def freeze(mod: T, preserved_attrs: Any = None, optimize_numerics: bool = True) -> T:
    """Returns the module itself, which must be in evaluation mode."""
    if getattr(mod, "training", False):
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval()"
        )
    return mod


def optimize_for_inference(mod: T, *args: Any, **kwargs: Any) -> T:
    return mod


def isinstance(obj: Any, target_type: Any) -> bool:
    """Returns whether ``obj`` has the type, which may be ``List[int]`` or a union; elements are checked
    too.
    """
    origin, inner = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is None:
        return target_type is Any or _isinstance(obj, target_type)
    if origin is typing.Union or type(target_type).__name__ == "UnionType":
        return any(isinstance(obj, t) for t in inner)
    if not _isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if origin is tuple and Ellipsis not in inner:
        return len(obj) == len(inner) and all(isinstance(x, t) for x, t in zip(obj, inner))
    return all(isinstance(x, inner[0]) for x in obj)


def fork(func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls the function immediately; ``wait`` returns its result."""
    return _Future(func(*args, **kwargs))


def wait(future: Any) -> Any:
    return future.wait()


class _Future:
    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        return self._value

    value = wait


class ScriptModule(Module):
    """For ``isinstance`` checks: no module is an instance."""


class RecursiveScriptModule(ScriptModule):
    """The parameters, buffers and attributes of a TorchScript module, without its functions."""

    _source = ""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"jit.load: {self._source} is a TorchScript program, whose functions are not run\n"
            "  hint: load its state_dict() into the Python module that it was made of"
        )


class ScriptFunction:
    """For ``isinstance`` checks: no function is an instance."""


class Attribute(typing.NamedTuple):
    value: Any
    type: Any


class Error(RuntimeError):
    pass


class TracerWarning(Warning):
    @staticmethod
    def ignore_lib_warnings() -> None:
        warnings.filterwarnings("ignore", category=TracerWarning)


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("jit.save: TorchScript programs are not made; save the module's state_dict")


def load(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The data of a TorchScript archive, as C++ programs save tensors and modules: a module with parameters,
    buffers and attributes. It cannot be called.
    """
    from .serialization import load_script

    return load_script(f)


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Has no effect: there is one way to fuse, in eager."""
    return []


@contextmanager
def fuser(name: str) -> typing.Iterator[None]:
    yield


@contextmanager
def optimized_execution(should_optimize: bool) -> typing.Iterator[None]:
    yield


# torch.jit.annotations: type names.
annotations = ModuleType(__name__ + ".annotations")
vars(annotations).update(
    {n: getattr(typing, n) for n in ("Any", "Dict", "List", "Optional", "Tuple", "Union")}
)


class _BroadcastingList:
    """``BroadcastingList2[int]``: a list of this length, or one value for all elements."""

    def __getitem__(self, types: Any) -> None:
        return None


vars(annotations).update({f"BroadcastingList{n}": _BroadcastingList() for n in range(1, 7)})
sys.modules[annotations.__name__] = annotations
