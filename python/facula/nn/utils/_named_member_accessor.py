"""Parameters and buffers of a module by their dotted names."""

from __future__ import annotations

from typing import Any

from ... import _C
from ..modules.module import Module

Tensor = _C.Tensor
_ABSENT: Any = object()


def _owner(module: Module, name: str) -> tuple[Module, str]:
    path, _, last = name.rpartition(".")
    return (module.get_submodule(path) if path else module), last


def swap_tensor(
    module: Module, name: str, tensor: Tensor | None, allow_missing: bool = False
) -> Tensor | None:
    """Replaces the module's own parameter, buffer or attribute and returns what was there."""
    for table in (module._parameters, module._buffers):
        if name in table:
            before = table[name]
            if tensor is _ABSENT:
                del table[name]
            else:
                table[name] = tensor
            return before
    before = module.__dict__.get(name, _ABSENT)
    if before is _ABSENT and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _ABSENT and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is _ABSENT:
        module.__dict__.pop(name, None)
    else:
        module.__dict__[name] = tensor
    return before


class NamedMemberAccessor:
    """Reads and replaces the tensors of a module and of its submodules by name."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_tensor(self, name: str) -> Tensor:
        owner, last = _owner(self.module, name)
        tensor = getattr(owner, last)
        if not isinstance(tensor, Tensor) and tensor is not None:
            raise TypeError(f"{name}: {tensor} is not an instance of torch.Tensor")
        return tensor

    def set_tensor(self, name: str, value: Tensor) -> None:
        self.swap_tensor(name, value, allow_missing=True)

    def swap_tensor(self, name: str, value: Tensor | None, allow_missing: bool = False) -> Tensor | None:
        return swap_tensor(*_owner(self.module, name), value, allow_missing)

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Replaces all; returns what was there, and the names that were missing. If one fails, none is
        replaced.
        """
        before: dict[str, Any] = {}
        missing: list[str] = []
        try:
            for name, tensor in named_tensors.items():
                before[name] = self.swap_tensor(name, tensor, allow_missing=True)
                if before[name] is _ABSENT:
                    missing.append(name)
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, tensor in before.items():
                self.swap_tensor(name, tensor, allow_missing=True)
            raise
        return before, missing

    def check_keys(self, keys: Any) -> tuple[list[str], list[str]]:
        """The names of tensors that ``keys`` lacks, and those of ``keys`` that are no tensors."""
        given = set(keys)
        own = {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(own - given), sorted(given - own)

    def named_parameters(self, remove_duplicate: bool = True) -> Any:
        return self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Any:
        return self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Any:
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Any:
        return self.module.named_modules(remove_duplicate=remove_duplicate)
