"""Helpers around training."""

from typing import Any as _Any

from .. import _C, _namespace

_SUBMODULES = """
    _pytree backend_registration benchmark checkpoint collect_env cpp_extension data deterministic dlpack
    flop_counter hooks mobile_optimizer model_zoo module_tracker tensorboard weak
""".split()
_ELSEWHERE = {
    "backend_registration": "generate_methods_for_privateuse1_backend rename_privateuse1_backend",
    "throughput_benchmark": "ThroughputBenchmark",
}


def swap_tensors(t1: _Any, t2: _Any) -> None:
    """Exchanges the identities of two objects: memory, gradient, class and attributes.

    >>> a, b = facula.zeros(1), facula.ones(2)
    >>> facula.utils.swap_tensors(a, b)
    >>> a
    tensor([1., 1.])
    """
    if "__slots__" in vars(type(t1)) or "__slots__" in vars(type(t2)):
        raise RuntimeError("swap_tensors: classes with __slots__ keep what cannot be exchanged")
    _C.swap_tensors(t1, t2)


def get_cpp_backtrace(frames_to_skip: int = 0, maximum_number_of_frames: int = 64) -> str:
    """Returns the Python frames that led to this call; native frames are not recorded."""
    import traceback

    lines = traceback.format_stack()[: -1 - frames_to_skip]
    return "".join(reversed(lines[-maximum_number_of_frames:]))


def set_module(obj: _Any, mod: str) -> None:
    """Sets ``obj.__module__``, which must be a string."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._lazy import *

    cmake_prefix_path: str
else:
    _later, __dir__ = _namespace.later(globals(), _SUBMODULES, _ELSEWHERE)

    def __getattr__(name: str) -> object:
        if name == "cmake_prefix_path":
            from .cpp_extension import _installed_prefix

            return str(_installed_prefix())
        return _later(name)
