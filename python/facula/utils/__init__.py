"""Helpers around training."""

from typing import Any as _Any

from .. import _C

_SUBMODULES = frozenset(
    """_pytree backend_registration benchmark checkpoint collect_env cpp_extension data deterministic dlpack
    hooks model_zoo tensorboard weak""".split()
)


def swap_tensors(t1: _Any, t2: _Any) -> None:
    """The two objects exchange what they are: memory, gradient, class and attributes.

    >>> a, b = facula.zeros(1), facula.ones(2)
    >>> facula.utils.swap_tensors(a, b)
    >>> a
    tensor([1., 1.])
    """
    if "__slots__" in vars(type(t1)) or "__slots__" in vars(type(t2)):
        raise RuntimeError("swap_tensors: classes with __slots__ keep what cannot be exchanged")
    _C.swap_tensors(t1, t2)


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> str:
    """The calls that led here, those of Python: native ones are not noted."""
    import traceback

    lines = traceback.format_stack()[: -1 - frames_to_skip]
    return "".join(reversed(lines[-maximum_number_of_frames:]))


def set_module(obj: _Any, mod: str) -> None:
    """Sets ``obj.__module__``, which must be text."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import _pytree as _pytree
    from . import backend_registration as backend_registration
    from . import benchmark as benchmark
    from . import checkpoint as checkpoint
    from . import collect_env as collect_env
    from . import cpp_extension as cpp_extension
    from . import data as data
    from . import deterministic as deterministic
    from . import dlpack as dlpack
    from . import hooks as hooks
    from . import model_zoo as model_zoo
    from . import tensorboard as tensorboard
    from . import weak as weak
    from .backend_registration import (
        generate_methods_for_privateuse1_backend as generate_methods_for_privateuse1_backend,
    )
    from .backend_registration import rename_privateuse1_backend as rename_privateuse1_backend
    from .throughput_benchmark import ThroughputBenchmark as ThroughputBenchmark

    cmake_prefix_path: str


_REGISTRATION = ("rename_privateuse1_backend", "generate_methods_for_privateuse1_backend")


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "ThroughputBenchmark":
            from .throughput_benchmark import ThroughputBenchmark

            return ThroughputBenchmark
        if name in _REGISTRATION:
            from . import backend_registration

            return getattr(backend_registration, name)
        if name == "cmake_prefix_path":
            from .cpp_extension import _installed_prefix

            return str(_installed_prefix())
        if name in _SUBMODULES:
            import importlib

            return importlib.import_module("." + name, __name__)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
