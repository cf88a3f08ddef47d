"""PyTorch's pickles: writing our objects under PyTorch's names, and reading PyTorch's names as our
objects.

A pickle refers to storages by numbers; the file format determines where their elements are
(serialization.py, _stream_format.py).
"""

from __future__ import annotations

import ctypes
import pickle
import reprlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from functools import cache, partial
from types import FunctionType
from typing import Any

from . import _C, _utils
from ._namespace import renamed
from ._native import complete as complete_native
from ._tensor import _rebuild_from_type_v2
from ._utils import UnpicklingError
from .storage import LEGACY, QuantizedStorage, TypedStorage, UntypedStorage, quantized_storages

Tensor = _C.Tensor

_STORAGE_OF = {d: name for name, d in (*LEGACY.items(), *quantized_storages().items())}


class StorageType:
    """A storage class in a pickle that is being read."""

    def __init__(self, dtype: Any, made: Callable) -> None:
        self.dtype, self.made = dtype, made


class _Global:
    """A reference to a name of PyTorch's in a pickle that is being written."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        raise TypeError("stands for a name")


_global = cache(_Global)  # one object for each name, to which later references point


class Pickler(pickle._Pickler):  # the pure Python one, whose dispatch can be extended
    """Writes facula's objects under PyTorch's names; collects storages in ``storages``.

    ``refer`` creates the reference to a storage from its type, its number and its number of elements.
    """

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file: Any, refer: Callable[[Any, str, int], tuple]) -> None:
        super().__init__(file, 2)
        self._refer = refer
        self.storages: list[TypedStorage | UntypedStorage] = []
        self._keys: dict[Any, int] = {}

    def _save_global(self, o: _Global, stands_for: Any = None) -> None:
        self.write(pickle.GLOBAL + f"{o.module}\n{o.name}\n".encode())
        self.memoize(stands_for or o)

    dispatch[_Global] = _save_global

    def save_global(self, obj: Any, name: str | None = None) -> None:
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        module = pickle.whichmodule(obj, name)
        last = module.rpartition(".")[2]
        if name.startswith(last + "_"):  # linalg.norm is linalg_norm of a native module
            module = f"facula._C._{last}"
        if "." not in name and (theirs := renamed(module, "facula", "torch")):
            self._save_global(_global(theirs, name), obj)
        else:
            super().save_global(obj, name)

    dispatch[type] = dispatch[FunctionType] = save_global

    def persistent_id(self, o: Any) -> Any:
        if not isinstance(o, (TypedStorage, UntypedStorage)):
            return None
        known = o.data_ptr() if len(o) else ("empty", id(o))
        k = self._keys.setdefault(known, len(self.storages))
        if k == len(self.storages):
            self.storages.append(o)
        elif o.dtype != self.storages[k].dtype:
            raise RuntimeError("save: cannot save several tensors that view the same data as different types")
        untyped = ("torch.storage", "UntypedStorage")
        kind = _global(*(untyped if isinstance(o, UntypedStorage) else ("torch", _STORAGE_OF[o.dtype])))
        return self._refer(kind, str(k), len(o))

    def reducer_override(self, o: Any) -> Any:
        if isinstance(o, _C.Size):
            return _global("torch", "Size"), (tuple(o),)
        if isinstance(o, _C.device):
            return _global("torch", "device"), (str(o),)
        if isinstance(o, _C.layout):
            return _global("torch.serialization", "_get_layout"), (str(o).replace("facula.", "torch."),)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _C.dtype):
            obj = _global("torch", str(obj).rpartition(".")[2])
        super().save(obj, save_persistent_id)


def bytes_at(address: int, size: int) -> memoryview:
    """Returns the memory of a tensor, which must stay alive while the result is in use."""
    if size and not address:
        raise NotImplementedError("save: Cannot copy out of meta tensor; no data!")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else memoryview(b"")


def bytes_of(storage: TypedStorage | UntypedStorage) -> memoryview:
    """Returns the bytes of all complete elements of a storage."""
    return bytes_at(storage.data_ptr(), len(storage) * storage.element_size())


@cache
def _allowed() -> dict[tuple[str, str], Any]:
    """Returns the objects that any file may refer to, by PyTorch's names."""
    from . import _qscheme, _types
    from ._quantized import INTEGERS
    from .nn.parameter import Parameter

    table: dict[tuple[str, str], Any] = {
        ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type_v2,
        ("torch.nn.parameter", "Parameter"): Parameter,
        ("torch", "Size"): _C.Size,
        ("torch", "device"): _C.device,
        ("torch.serialization", "_get_layout"): get_layout,
        ("torch", "Tensor"): Tensor,
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "Counter"): Counter,
        ("collections", "defaultdict"): defaultdict,
        ("_codecs", "encode"): _encode,
    }
    for module in ("builtins", "__builtin__"):  # Python 2's name, which protocol 2 uses
        for builtin in (dict, list, set, frozenset, complex, slice):
            table[module, builtin.__name__] = builtin
        table[module, "bytearray"], table[module, "bytes"] = _bytearray, _bytes
    for rebuild in (
        "tensor",
        "tensor_v2",
        "tensor_v3",
        "sparse_tensor",
        "qtensor",
        "meta_tensor_no_storage",
        "parameter",
        "parameter_with_state",
    ):
        table["torch._utils", f"_rebuild_{rebuild}"] = getattr(_utils, f"_rebuild_{rebuild}")
    for name, dtype in LEGACY.items():
        table["torch", name] = StorageType(dtype, TypedStorage)
    for name, dtype in quantized_storages().items():
        storage = partial(QuantizedStorage, dtype=dtype)
        table["torch", name] = StorageType(INTEGERS[dtype].dtype, storage)
    for name in vars(_qscheme):
        if isinstance(getattr(_qscheme, name), _qscheme.qscheme):
            table["torch", name] = getattr(_qscheme, name)
    for name in ("qint8", "quint8", "qint32", "quint4x2"):
        table["torch", name] = getattr(_types, name)
    table["torch.storage", "UntypedStorage"] = StorageType(_C.uint8, UntypedStorage)
    for name, value in vars(_C).items():
        if type(value) is _C.dtype:
            table["torch", name] = value
    return table


def get_layout(name: str) -> Any:
    """Returns a layout by PyTorch's name."""
    layout = getattr(_C, name.removeprefix("torch."), None) if isinstance(name, str) else None
    if not isinstance(layout, _C.layout) or not name.startswith("torch."):
        raise UnpicklingError(f"load: the layout {reprlib.repr(name)} is not known; torch.strided is")
    return layout


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Decodes bytes as protocol 2 writes them."""
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: str = "latin1") -> bytearray:
    """Creates a bytearray from data, not from a size."""
    if not isinstance(data, (str, bytes)):
        raise TypeError(f"a bytearray of {reprlib.repr(data)}")
    return bytearray(data, "latin1") if isinstance(data, str) else bytearray(data)


def _bytes() -> bytes:
    """Protocol 2's representation of b""."""
    return b""


_safe_globals: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allows load() to create objects of these classes and to call these functions."""
    _safe_globals.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """Returns the classes and functions that add_safe_globals allowed."""
    return list(_safe_globals)


def clear_safe_globals() -> None:
    """Revokes the permissions of add_safe_globals."""
    _safe_globals.clear()


class safe_globals:
    """Applies add_safe_globals within a ``with`` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._added = safe_globals

    def __enter__(self) -> None:
        self._before = list(_safe_globals)
        _safe_globals.extend(self._added)

    def __exit__(self, *exc: object) -> None:
        _safe_globals[:] = self._before


class Unpickler(pickle.Unpickler):
    """Reads a pickle from a binary file; unless ``trusted``, ``check`` inspects its bytes first."""

    def __init__(self, file: Any, where: str, storage: Callable[..., Tensor], trusted: bool) -> None:
        super().__init__(file)
        self._where, self._storage, self._trusted = where, storage, trusted
        self._safe = {(o.__module__, o.__qualname__): o for o in _safe_globals}

    def known(self, module: str, name: str) -> Any:
        """Returns the object that this file may refer to by that name."""
        return self._safe.get((module, name)) or _allowed().get((module, name))

    def find_class(self, module: str, name: str) -> Any:
        found = self.known(module, name)
        if found is not None:
            return found
        if not self._trusted:
            raise UnpicklingError(
                f"load: {self._where} holds a {module}.{name}, which is neither tensor, container nor "
                f"number.\n  hint: if you "
                f"trust the file, allow it with "
                f"{_C.package_name()}.serialization.add_safe_globals([{name}]), or read "
                f"it with "
                "weights_only=False, which can run code of the file."
            )
        if module.startswith("torch._C"):
            complete_native(_C)
        return super().find_class(renamed(module, "torch", "facula") or module, name)

    def persistent_load(self, pid: Any) -> Any:
        if self._trusted and isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # a class with its source
        if not (
            isinstance(pid, tuple)
            and len(pid) in (5, 6)
            and pid[0] == "storage"
            and isinstance(pid[1], StorageType)
            and isinstance(pid[2], str)
            and type(pid[4]) is int
        ):
            raise UnpicklingError(
                f"load: {self._where} refers to something that is no storage: {reprlib.repr(pid)}"
            )
        _, kind, key, _, numel, *view = pid
        return kind.made(self._storage(key, kind.dtype, numel, *view))


def check(data: Any, where: str) -> int:
    """Returns the length of the pickle that ``data`` begins with, if it contains no opcode that
    checkpoints do not need.
    """
    try:
        return _C.check_pickle(data, where)
    except RuntimeError as error:
        raise UnpicklingError(str(error)) from None
