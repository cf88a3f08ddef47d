"""Devices added by third parties (docs/adding_a_device.md): their names, and methods that are named after
them.
"""

from __future__ import annotations

from .. import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _added() -> str:
    names = _C.added_devices()
    if len(names) != 1:
        raise RuntimeError(
            f"one device from outside is expected to be there, but there are {len(names)}: {', '.join(names)}"
        )
    return names[0]


def rename_privateuse1_backend(backend_name: str) -> None:
    """Renames the device that a third party added; programs ask for it by this name from then on."""
    if backend_name not in _C.added_devices():
        _C.rename_device(_added(), backend_name)


def generate_methods_for_privateuse1_backend(
    for_tensor: bool = True,
    for_module: bool = True,
    for_packed_sequence: bool = True,
    for_storage: bool = False,
    unsupported_dtype: list[Any] | None = None,
) -> None:
    """Adds ``.npu()`` and ``.is_npu`` to tensors, modules and packed sequences, for a device called npu."""
    from ..nn import Module
    from ..nn.utils.rnn import PackedSequence

    name = _added()

    def place(device: Any) -> Any:
        target = _C.device(
            name if device is None else f"{name}:{device}" if isinstance(device, int) else device
        )
        if target.type != name:
            raise RuntimeError(f"{name}(): expected a {name} device, but got {target}")
        return target

    def moved(self: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        return self.to(place(device), non_blocking=non_blocking, **kwargs)

    def is_there(self: Any) -> bool:
        return self.device.type == name

    def moved_module(self: Any, device: Any = None) -> Any:
        return self._apply(lambda t: t.to(place(device)))

    def add(cls: type, method: Callable[..., Any], about: property | None = None) -> None:
        for attribute, value in ((name, method), (f"is_{name}", about)):
            if value is None:
                continue
            if hasattr(cls, attribute):
                raise RuntimeError(f"{cls.__name__} has {attribute} already")
            setattr(cls, attribute, value)

    if for_storage:
        raise NotImplementedError("generate_methods_for_privateuse1_backend: storages stay on the CPU")
    if for_tensor:
        add(_C.Tensor, moved, property(is_there))
    if for_module:
        add(Module, moved_module)
    if for_packed_sequence:
        add(PackedSequence, moved, property(lambda self: self.data.device.type == name))
