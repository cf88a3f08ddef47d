"""The data of TorchScript archives, which PyTorch's C++ front end writes too: parameters, buffers and
attributes of modules. Their functions are neither read nor run.
"""

from __future__ import annotations

import ast
import re
import zipfile
from typing import Any

from . import _C
from ._pickles import Unpickler
from .nn import Parameter

Tensor = _C.Tensor


class Record:
    """An object of a TorchScript class: its attributes, by name."""

    kind = ""  # the class's name

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.attributes = state


def _same(value: Any, _type: str) -> Any:
    return value


# The functions that TorchScript's pickles call for lists and for values with a type.
_FUNCTIONS = {
    **dict.fromkeys(("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"), list),
    "restore_type_tag": _same,
}


class ScriptUnpickler(Unpickler):
    def known(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return type(name, (Record,), {"kind": f"{module}.{name}"})
        if module == "torch.jit._pickle" and name in _FUNCTIONS:
            return _FUNCTIONS[name]
        return super().known(module, name)


def _declared(archive: zipfile.ZipFile, folder: str) -> dict[str, tuple[list[str], list[str]]]:
    """The names of the parameters and buffers of each class, as the sources in the archive declare them."""
    declared = {}
    for name in archive.namelist():
        if not (name.startswith(folder + "code/") and name.endswith(".py")):
            continue
        module = name[len(folder + "code/") : -len(".py")].replace("/", ".")
        for block in re.split(r"^(?=class )", archive.read(name).decode(), flags=re.M):
            head = re.match(r"class (\w+)\(Module\):", block)
            if head is None:
                continue
            lists = (
                re.search(rf"^  {kind} = (\[[^\]]*\])", block, re.M)
                for kind in ("__parameters__", "__buffers__")
            )
            parameters, buffers = (ast.literal_eval(found[1]) if found else [] for found in lists)
            declared[f"{module}.{head[1]}"] = parameters, buffers
    return declared


def module_of(record: Record, archive: zipfile.ZipFile, folder: str, where: str) -> Any:
    """A module with what the archive's root has."""
    from .jit import RecursiveScriptModule

    declared = _declared(archive, folder)

    def make(record: Record) -> RecursiveScriptModule:
        module = RecursiveScriptModule()
        parameters, _ = declared.get(record.kind, ([], []))
        for name, value in record.attributes.items():
            if isinstance(value, Record):
                module.add_module(name, make(value))
            elif isinstance(value, Tensor) and name in parameters:
                module.register_parameter(name, Parameter(value.detach(), requires_grad=value.requires_grad))
            elif isinstance(value, Tensor):
                module.register_buffer(name, value)
            elif name == "training":
                module.train(value)
            else:
                object.__setattr__(module, name, value)
        object.__setattr__(module, "_source", where)
        return module

    return make(record)
