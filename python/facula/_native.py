"""Names of PyTorch's native module: types for annotations, switches of absent components, and the names
under which pickles refer to functions.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_TYPES = "Graph Value Block ScriptModule ScriptFunction Argument FunctionSchema".split()
# Switches of TorchScript's compilers and of usage logs, and their constant values.
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
    "_log_api_usage_metadata": None,
    "_get_tracing_state": None,
    "_log_api_usage_once": None,
}


# Modules of functions: the prefix of their names, and our modules.
_FUNCTIONS = {
    "_nn": ("", ".nn.functional"),
    "_special": ("special_", ".special"),
    "_linalg": ("linalg_", ".linalg"),
    "_fft": ("fft_", ".fft"),
}


def _functions(native: ModuleType, name: str, prefix: str, where: str) -> ModuleType:
    module = ModuleType(f"{native.__name__}.{name}")
    package = __name__.partition(".")[0]

    def getattribute(function: str) -> Any:
        if function.startswith(prefix) and not function.startswith("__"):
            try:
                return getattr(importlib.import_module(package + where), function[len(prefix) :])
            except AttributeError:
                pass
        raise AttributeError(f"module '{module.__name__}' has no attribute '{function}'")

    module.__getattr__ = getattribute  # type: ignore[method-assign]
    return module


def complete(native: ModuleType) -> None:
    """Adds the missing names. Idempotent."""
    if hasattr(native, "_VariableFunctions"):
        return
    native._VariableFunctions = native._VariableFunctionsClass = native.functions
    native.TensorBase = native._TensorBase = native.Tensor
    for name, (prefix, where) in _FUNCTIONS.items():
        module = _functions(native, name, prefix, where)
        setattr(native, name, module)
        sys.modules[f"{__name__.partition('.')[0]}._C.{name}"] = module
    for name in _TYPES:
        if not hasattr(native, name):
            setattr(native, name, type(name, (), {"__module__": "torch._C"}))
    for name, answer in _SWITCHES.items():

        def switch(*args: Any, answer: Any = answer) -> Any:
            return answer

        switch.__name__ = switch.__qualname__ = name
        setattr(native, name, switch)
