"""Names of PyTorch's native module that programs annotate with or switch; what they switch is not there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

_TYPES = "Graph Value Block ScriptModule ScriptFunction Argument FunctionSchema".split()
# Switches of TorchScript's compilers, and what they answer.
_SWITCHES = {
    "_jit_can_fuse_on_cpu": False,
    "_jit_can_fuse_on_gpu": False,
    "_jit_override_can_fuse_on_cpu": None,
    "_jit_override_can_fuse_on_gpu": None,
    "_jit_set_nvfuser_enabled": False,
    "_jit_set_nvfuser_guard_mode": False,
    "_jit_set_profiling_executor": False,
    "_jit_set_profiling_mode": False,
    "_jit_set_texpr_fuser_enabled": None,
    "_jit_texpr_fuser_enabled": False,
}


def complete(native: ModuleType) -> None:
    """Adds the names that are not there."""
    for name in _TYPES:
        if not hasattr(native, name):
            setattr(native, name, type(name, (), {"__module__": "torch._C"}))
    for name, answer in _SWITCHES.items():

        def switch(*args: Any, answer: Any = answer) -> Any:
            return answer

        switch.__name__ = switch.__qualname__ = name
        setattr(native, name, switch)
