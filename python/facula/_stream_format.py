"""The format of PyTorch before 1.6: consecutive pickles, followed by the elements of the storages.

  a magic number; the format's version; facts of the writer; the object; the keys of its storages
  for each key in this order: the number of elements, in 8 bytes, and the elements

The elements come last, but objects may need them while they are created: the object's pickle is read
twice, the first time for its storages only.
"""

from __future__ import annotations

import mmap
import os
import pickle
import reprlib
import struct
from typing import Any

from . import _C
from ._pickles import Pickler, StorageType, Unpickler, UnpicklingError, bytes_at, bytes_of, check

Tensor = _C.Tensor

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
BEGINNING = pickle.dumps(_MAGIC, 2)
_WRITER = {
    "protocol_version": _VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}


def write(obj: Any, file: Any) -> None:
    """Writes the format of PyTorch's ``save(..., _use_new_zipfile_serialization=False)``."""
    for head in (_MAGIC, _VERSION, _WRITER):
        pickle.dump(head, file, 2)
    pickler = Pickler(file, lambda kind, key, numel: ("storage", kind, key, "cpu", numel, None))
    pickler.dump(obj)
    pickle.dump([str(k) for k in range(len(pickler.storages))], file, 2)
    for storage in pickler.storages:
        file.write(struct.pack("<q", len(storage)))
        file.write(bytes_of(storage))


class _Anything:
    """A placeholder for any object that a pickle creates."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Anything:
        return super().__new__(cls)

    def _nothing(self, *args: Any) -> None: ...

    __init__ = __call__ = __setstate__ = __setitem__ = append = extend = add = update = _nothing  # type: ignore[assignment]


class _Storages(Unpickler):
    """Creates only the storages that a pickle refers to."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = self.known(module, name)
        return allowed if isinstance(allowed, StorageType) else _Anything

    def persistent_load(self, pid: Any) -> Any:
        is_class = isinstance(pid, tuple) and pid[:1] == ("module",)
        return _Anything if is_class else super().persistent_load(pid)


class _Stream:
    """The pickles of a file, each checked before it is read unless the file is trusted."""

    def __init__(self, file: Any, where: str, trusted: bool) -> None:
        self.file, self.where, self.trusted = file, where, trusted
        begin = file.tell()
        self.size = file.seek(0, os.SEEK_END)
        file.seek(begin)
        self.storages: dict[str, Tensor] = {}
        self._claimed = 0
        self._bytes = b"" if trusted else self._all()

    def _all(self) -> Any:
        try:
            return memoryview(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ))
        except (AttributeError, OSError):  # not a file of the operating system
            begin = self.file.tell()
            self.file.seek(0)
            data = memoryview(self.file.read())
            self.file.seek(begin)
            return data

    def damaged(self, why: str) -> UnpicklingError:
        return UnpicklingError(f"load: {self.where} is damaged: {why}")

    def next(self, unpickler: type[Unpickler] = Unpickler) -> Any:
        if not self.trusted:
            check(self._bytes[self.file.tell() :], self.where)
        return unpickler(self.file, self.where, self._storage, self.trusted).load()

    def _storage(self, key: str, dtype: Any, numel: int, view: Any = None) -> Tensor:
        cached = self.storages.get(key)
        if cached is None:
            size = numel * dtype.itemsize
            self._claimed += size
            if not 0 <= size <= self._claimed <= self.size:
                raise self.damaged(
                    f"its storage {key} claims {numel} elements in a file of {self.size} bytes"
                )
            cached = self.storages[key] = _C.functions.empty([numel], dtype=dtype)
        if cached.dtype != dtype:
            raise UnpicklingError(f"load: {self.where} views storage {key} as {cached.dtype} and as {dtype}")
        if view is None:
            return cached
        # A storage that is part of another one: its key, its position, its length.
        if not (
            isinstance(view, tuple)
            and len(view) == 3
            and all(type(n) is int and n >= 0 for n in view[1:])
            and sum(view[1:]) <= cached.numel()
        ):
            raise self.damaged(f"its storage {key} has no part {reprlib.repr(view)}")
        return cached[view[1] : view[1] + view[2]]

    def fill(self, key: Any) -> None:
        tensor = self.storages.get(key) if isinstance(key, str) else None
        if tensor is None:
            raise self.damaged(f"it has elements of a storage {reprlib.repr(key)} that it does not name")
        head = self.file.read(8)
        if len(head) < 8 or struct.unpack("<q", head)[0] != tensor.numel():
            raise self.damaged(f"storage {key} does not hold the {tensor.numel()} elements that are expected")
        to = bytes_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        while to:
            part = self.file.read(min(len(to), 1 << 24))
            if not part:
                raise self.damaged(f"storage {key} ends early")
            to[: len(part)] = part
            to = to[len(part) :]


def read(file: Any, where: str, trusted: bool) -> Any:
    """Reads an object from the file's position, and leaves the file behind it."""
    stream = _Stream(file, where, trusted)
    magic, version, writer = (stream.next() for _ in range(3))
    if magic != _MAGIC or version != _VERSION:
        raise UnpicklingError(f"load: {where} is of version {reprlib.repr(version)}; {_VERSION} is read")
    if not isinstance(writer, dict) or writer.get("little_endian") is not True:
        raise UnpicklingError(f"load: {where} was saved on a big-endian machine; its numbers can't be read")
    at = file.tell()
    stream.next(_Storages)
    keys = stream.next()
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(stream.storages):
        raise stream.damaged("it does not hold the storages that it names")
    for key in keys:
        stream.fill(key)
    end = file.tell()
    file.seek(at)
    obj = stream.next()
    file.seek(end)
    return obj
