"""save and load, in PyTorch's file format: a zip archive with a pickle of the structure and a record for
each storage.

Loading is safe by default: what is no tensor, container or number is refused by its name and nothing of
the file is run. Files are written beside their target and renamed, so an interrupted save leaves the old
file.
"""

from __future__ import annotations

import errno
import io
import itertools
import math
import os
import pickle
import reprlib
import struct
import zipfile
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from . import _C
from ._tensor import from_elements

Tensor = _C.Tensor

_STORAGES = {
    "FloatStorage": _C.float32,
    "DoubleStorage": _C.float64,
    "HalfStorage": _C.float16,
    "BFloat16Storage": _C.bfloat16,
    "ComplexFloatStorage": _C.complex64,
    "ComplexDoubleStorage": _C.complex128,
    "LongStorage": _C.int64,
    "IntStorage": _C.int32,
    "ShortStorage": _C.int16,
    "CharStorage": _C.int8,
    "ByteStorage": _C.uint8,
    "BoolStorage": _C.bool,
}
_STORAGE_OF = {d: name for name, d in _STORAGES.items()}
_ALIGN = 64


class _Global:
    """Stands for a name of PyTorch's in a pickle that is being written."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        raise TypeError("stands for a name")


# ---- writing


class _Pickler(pickle._Pickler):  # the one in Python: its dispatch can be extended
    """Writes facula's objects under PyTorch's names; storages go to ``storages``."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file: Any) -> None:
        super().__init__(file, 2)
        self.storages: list[tuple[Tensor, int, int]] = []  # a tensor that holds it, its address and bytes
        self._keys: dict[Any, int] = {}

    def _save_global(self, o: _Global) -> None:
        self.write(pickle.GLOBAL + f"{o.module}\n{o.name}\n".encode())
        self.memoize(o)

    dispatch[_Global] = _save_global
    _names: dict[tuple[str, str], _Global] = {}

    def _torch(self, module: str, name: str) -> _Global:
        return self._names.setdefault((module, name), _Global(module, name))

    def persistent_id(self, o: Any) -> Any:
        return o.pid if isinstance(o, _Storage) else None

    def _storage(self, t: Tensor) -> _Storage:
        info = t._storage_info()
        if info is None:
            raise RuntimeError(f"save: a tensor on {t.device} has no elements to save")
        address, size = info
        size -= size % t.element_size()
        known = address if size else ("empty", id(t))
        if known not in self._keys:
            self._keys[known] = len(self.storages)
            self.storages.append((t, address, size))
        elif self.storages[self._keys[known]][0].dtype != t.dtype:
            raise RuntimeError("save: cannot save several tensors that view the same data as different types")
        kind = self._torch("torch", _STORAGE_OF[t.dtype])
        return _Storage(("storage", kind, str(self._keys[known]), "cpu", size // t.element_size()))

    def reducer_override(self, o: Any) -> Any:
        if isinstance(o, Tensor):
            from .nn.parameter import Parameter

            state = o.__dict__ if type(o) in (Tensor, Parameter) else None
            if type(o) is Parameter:
                args: tuple = (o.data, o.requires_grad, OrderedDict())
                if state:
                    return self._torch("torch._utils", "_rebuild_parameter_with_state"), (*args, state)
                return self._torch("torch._utils", "_rebuild_parameter"), args
            if not o.is_leaf and type(o) is not Tensor:
                return NotImplemented
            args = (
                self._storage(o),
                o.storage_offset(),
                tuple(o.shape),
                tuple(o.stride()),
                o.requires_grad,
                OrderedDict(),
            )
            lazy = {k: True for k, on in (("conj", o.is_conj()), ("neg", o.is_neg())) if on}
            if lazy:
                args = (*args, lazy)
            rebuild = self._torch("torch._utils", "_rebuild_tensor_v2")
            if not state:
                return rebuild, args
            return self._torch("torch._tensor", "_rebuild_from_type_v2"), (
                rebuild,
                self._torch("torch", "Tensor"),
                args,
                state,
            )
        if isinstance(o, _C.Size):
            return self._torch("torch", "Size"), (tuple(o),)
        if isinstance(o, _C.device):
            return self._torch("torch", "device"), (str(o),)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _C.dtype):
            obj = self._torch("torch", str(obj).rpartition(".")[2])
        super().save(obj, save_persistent_id)


class _Storage:
    def __init__(self, pid: tuple) -> None:
        self.pid = pid


def _write_record(archive: zipfile.ZipFile, path: str, data: Any) -> None:
    """Stored without compression, its data at a multiple of 64 bytes, as readers that map files want."""
    info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    start = archive.fp.tell() + 30 + len(path.encode()) + 4
    if len(data) * 1.05 > zipfile.ZIP64_LIMIT:
        start += 20  # the header then has a field for larger sizes
    padding = -start % _ALIGN
    info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding
    archive.writestr(info, data)


def _write(obj: Any, file: Any, name: str) -> None:
    import ctypes

    pickled = io.BytesIO()
    pickler = _Pickler(pickled)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_record(archive, f"{name}/data.pkl", pickled.getvalue())
        _write_record(archive, f"{name}/byteorder", b"little")
        for key, (_, address, size) in enumerate(pickler.storages):
            data = memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size else b""
            _write_record(archive, f"{name}/data/{key}", data)
        _write_record(archive, f"{name}/version", b"3\n")


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Writes ``obj`` (tensors, containers, numbers, strings; other objects by pickle) to a path or a
    binary file.
    """
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise TypeError(f"save: expected a path or a binary file to write to, not {type(f).__name__}")
        _write(obj, f, "archive")
        return
    path = os.fspath(f)
    with replacing(path) as file:
        _write(obj, file, os.path.splitext(os.path.basename(path))[0] or "archive")


class WriteError(OSError, RuntimeError):
    """A file that could not be written."""


_numbers = itertools.count()


def _beside(path: str) -> tuple[str, Any]:
    """A new file next to ``path``, of this writer alone: threads may save to one path at the same time."""
    folder, name = os.path.split(path)
    while True:
        beside = os.path.join(folder, f".{name}.{os.getpid()}-{next(_numbers)}.tmp")
        try:
            return beside, open(beside, "xb")
        except FileExistsError:  # left by a process that was killed
            continue


@contextmanager
def replacing(path: str, what: str = "save") -> Iterator[Any]:
    """A file to write that takes the place of ``path`` once it is complete and on the disk."""
    try:
        beside, file = _beside(path)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        if error.errno is None:
            raise
        kept = "; the file that is there stays as it was" if os.path.lexists(path) else ""
        message = f"{what}: cannot write {path}: {os.strerror(error.errno)}{kept}"
        raise WriteError(error.errno, message) from None


# ---- reading


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """A file that is not what load() reads, or holds what it refuses."""


# How a file of PyTorch before 1.6 begins: a pickle of a magic number.
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class _StorageType:
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype


def _rebuild_tensor(
    storage: Tensor,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    def whole(*numbers: Any) -> bool:
        return all(type(n) is int and 0 <= n < 2**60 for n in numbers)

    good = type(storage) is Tensor and isinstance(size, tuple) and isinstance(stride, tuple)
    if good and len(size) == len(stride) <= 64 and whole(offset, *size, *stride):
        needed = offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1 if all(size) else 0
        good = needed <= storage.numel() and math.prod(n or 1 for n in size) < 2**60
    else:
        good = False
    if not good:
        held = f"{storage.numel()} elements" if isinstance(storage, Tensor) else reprlib.repr(storage)
        raise UnpicklingError(
            f"load: a tensor of size {reprlib.repr(size)}, stride {reprlib.repr(stride)} and offset "
            f"{reprlib.repr(offset)} lies outside of its storage of {held}"
        )
    t = _C.functions.as_strided(storage, size, stride, offset)
    put_off = metadata if isinstance(metadata, dict) else {}  # until the elements are read
    if put_off.get("conj") is True:
        t = t.conj()
    if put_off.get("neg") is True:
        t = _C.ops._neg_view(t) if t.is_floating_point() or t.is_complex() else t.neg()
    return t.requires_grad_() if requires_grad else t


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any = None, state: Any = None) -> Tensor:
    from .nn.parameter import Parameter

    p = Parameter(data, requires_grad)
    if isinstance(state, dict):  # attributes of the parameter
        p.__dict__.update(state)
    return p


def _rebuild_from_type(rebuild: Callable, cls: type, args: tuple, state: Any) -> Tensor:
    """A tensor with attributes of its own."""
    t = rebuild(*args)
    if cls not in (Tensor, type(t)) or not isinstance(state, dict):
        raise UnpicklingError(f"load: a tensor of the class {reprlib.repr(cls)} with {type(state).__name__}")
    t.__dict__.update(state)
    return t


def _allowed() -> dict[tuple[str, str], Any]:
    from .nn.parameter import Parameter

    table: dict[tuple[str, str], Any] = {
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
        ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_from_type,
        ("torch.nn.parameter", "Parameter"): Parameter,
        ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
        ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
        ("torch", "Size"): _C.Size,
        ("torch", "device"): _C.device,
        ("torch", "Tensor"): Tensor,
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "Counter"): Counter,
        ("collections", "defaultdict"): defaultdict,
        ("_codecs", "encode"): _encode,
    }
    for module in ("builtins", "__builtin__"):  # Python 2's name, which protocol 2 keeps
        for builtin in (dict, list, set, frozenset, complex, slice):
            table[module, builtin.__name__] = builtin
        table[module, "bytearray"], table[module, "bytes"] = _bytearray, _bytes
    for name, dtype in _STORAGES.items():
        table["torch", name] = _StorageType(dtype)
    for name, value in vars(_C).items():
        if type(value) is _C.dtype:
            table["torch", name] = value
    return table


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: str = "latin1") -> bytearray:
    """A bytearray of what is there, not of a size."""
    if not isinstance(data, (str, bytes)):
        raise TypeError(f"a bytearray of {reprlib.repr(data)}")
    return bytearray(data, "latin1") if isinstance(data, str) else bytearray(data)


def _bytes() -> bytes:
    """How protocol 2 writes b""."""
    return b""


_safe_globals: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Lets load() make objects of these classes and call these functions."""
    _safe_globals.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """What add_safe_globals allowed."""
    return list(_safe_globals)


def clear_safe_globals() -> None:
    """Takes back what add_safe_globals allowed."""
    _safe_globals.clear()


class safe_globals:
    """add_safe_globals for a ``with`` block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._added = safe_globals

    def __enter__(self) -> None:
        self._before = list(_safe_globals)
        _safe_globals.extend(self._added)

    def __exit__(self, *exc: object) -> None:
        _safe_globals[:] = self._before


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, data: Any, where: str, storage: Callable[[str, Any, int], Tensor], trusted: bool
    ) -> None:
        if not trusted:
            try:
                _C.check_pickle(data, where)
            except RuntimeError as error:
                raise UnpicklingError(str(error)) from None
        super().__init__(io.BytesIO(data))
        self._where, self._storage, self._trusted = where, storage, trusted
        self._table = _allowed()
        self._table.update({(o.__module__, o.__qualname__): o for o in _safe_globals})

    def find_class(self, module: str, name: str) -> Any:
        found = self._table.get((module, name))
        if found is not None:
            return found
        if not self._trusted:
            raise UnpicklingError(
                f"load: {self._where} holds a {module}.{name}, which is neither tensor, container nor "
                f"number.\n  hint: if you "
                f"trust the file, allow it with facula.serialization.add_safe_globals([{name}]), or read "
                f"it with "
                "weights_only=False, which can run code of the file."
            )
        if module == "torch" or module.startswith("torch."):
            module = "facula" + module[5:]
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if not (
            isinstance(pid, tuple)
            and len(pid) == 5
            and pid[0] == "storage"
            and isinstance(pid[1], _StorageType)
            and isinstance(pid[2], str)
            and type(pid[4]) is int
        ):
            raise UnpicklingError(
                f"load: {self._where} refers to something that is no storage: {reprlib.repr(pid)}"
            )
        _, kind, key, _, numel = pid
        return self._storage(key, kind.dtype, numel)


def _check_location(map_location: Any) -> None:
    if isinstance(map_location, dict):
        for place in map_location.values():
            _check_location(place)
        return
    if map_location is None or callable(map_location):
        return
    if _C.device(str(map_location)).type != "cpu":
        raise RuntimeError(f"load: map_location='{map_location}': this build keeps tensors on the CPU")


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what save() of facula or PyTorch wrote, from a path or a binary file.

    ``weights_only=False`` also makes other objects, which can run code: for trusted files only. ``mmap=True``
    leaves elements in the file until they are used, after a look at their checksums; changes of tensors don't
    reach it.

    >>> facula.save({"w": facula.ones(2)}, path := tempfile.mktemp())
    >>> facula.load(path)
    {'w': tensor([1., 1.])}
    """
    _check_location(map_location)
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path and not (hasattr(f, "read") and hasattr(f, "seek")):
        raise AttributeError(f"load: expected a path or a binary file that can seek, not {type(f).__name__}")
    if mmap and not is_path:
        raise ValueError("f must be a string filename in order to use mmap argument")
    where = os.fspath(f) if is_path else getattr(f, "name", "the file")
    try:
        with open(f, "rb") if is_path else nullcontext(f) as file:
            start = file.tell()
            magic = file.read(len(_LEGACY))
            file.seek(start)
            if magic == _LEGACY or magic[:2] in (b"\x80\x02", b"\x80\x04"):
                raise UnpicklingError(
                    f"load: {where} is in a format from before PyTorch 1.6, or a plain pickle, which is "
                    f"not read.\n"
                    "  hint: load and save it once with PyTorch, or with pickle if you trust it"
                )
            with zipfile.ZipFile(file) as archive:
                return _read(archive, str(where), not weights_only, file if mmap else None)
    except UnpicklingError:
        raise
    except zipfile.BadZipFile as error:
        raise UnpicklingError(f"load: {where} is damaged, or no file of save(): {_short(error)}") from None
    except Exception if weights_only else _DAMAGE as error:  # noqa: B030
        if (
            isinstance(error, OSError) and error.errno != errno.EINVAL
        ):  # a seek to nowhere is the file's fault
            raise
        raise UnpicklingError(f"load: {where} is damaged: {type(error).__name__}: {_short(error)}") from error


def _short(error: Exception) -> str:
    """An error's text, which may quote the file."""
    text = str(error)
    return text if len(text) <= 300 else text[:300] + "..."


# What reading an archive raises; what unpickling raises besides, with weights_only=False, may be a class's
# own.
_DAMAGE = (EOFError, struct.error, KeyError, pickle.UnpicklingError, UnicodeDecodeError)


def _check_records(archive: zipfile.ZipFile, where: str, size: int) -> None:
    """Records as save() writes them: not compressed, each name once, no larger together than the file."""
    seen = set()
    total = 0
    for info in archive.infolist():
        if info.filename in seen:
            raise UnpicklingError(f"load: {where} is damaged: it holds record {info.filename} twice")
        seen.add(info.filename)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise UnpicklingError(
                f"load: {where} holds the compressed or encrypted record {info.filename}; checkpoints are "
                "archives of plain records"
            )
        if info.file_size != info.compress_size or info.file_size > size:
            raise UnpicklingError(
                f"load: {where} is damaged: record {info.filename} claims {info.file_size} bytes of a file "
                f"of {size}"
            )
        total += info.file_size
    if total > size:
        raise UnpicklingError(f"load: {where} is damaged: its records overlap")


def _record(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    """A record's bytes, read once into their place; the archive checks their sum."""
    data = bytearray(info.file_size)
    view, at = memoryview(data), 0
    with archive.open(info) as file:
        while part := file.read(1 << 24):
            view[at : at + len(part)] = part
            at += len(part)
    if at != len(data):
        raise EOFError(f"record {info.filename} ends early")
    return data


def _mapped_record(mapped: memoryview, info: zipfile.ZipInfo, where: str) -> memoryview | None:
    """A record where it lies in the file, after a look at its sum; None if it is not aligned."""
    at = info.header_offset
    if at + 30 > len(mapped):
        return None
    begin = at + 30 + sum(struct.unpack_from("<HH", mapped, at + 26))
    if begin % 16 or begin + info.file_size > len(mapped):
        return None
    record = mapped[begin : begin + info.file_size]
    if zlib.crc32(record) != info.CRC:  # pages of the file, none of the process's own
        raise UnpicklingError(f"load: {where} is damaged: Bad CRC-32 for record {info.filename}")
    return record


def _read(archive: zipfile.ZipFile, where: str, trusted: bool, mapped_file: Any = None) -> Any:
    names = archive.namelist()
    archive.fp.seek(0, os.SEEK_END)  # type: ignore[union-attr]
    _check_records(archive, where, archive.fp.tell())  # type: ignore[union-attr]
    pickled = next((n for n in names if n.endswith("/data.pkl") and n.count("/") == 1), None)
    if pickled is None:
        raise UnpicklingError(f"load: {where} is a zip file, but not of save(): it has no data.pkl")
    folder = pickled[: -len("data.pkl")]
    if folder + "byteorder" in names and archive.read(folder + "byteorder") != b"little":
        raise UnpicklingError(f"load: {where} was saved on a big-endian machine; its numbers can't be read")
    if folder + "constants.pkl" in names:
        raise UnpicklingError(f"load: {where} is a TorchScript program, not saved tensors")
    storages: dict[str, Tensor] = {}
    mapped = None
    if mapped_file is not None:
        from mmap import ACCESS_COPY, mmap

        mapped = memoryview(mmap(mapped_file.fileno(), 0, access=ACCESS_COPY))  # changes stay in memory

    def storage(key: str, dtype: Any, numel: int) -> Tensor:
        if key not in storages:
            try:
                info = archive.getinfo(f"{folder}data/{key}")
                if info.file_size != numel * dtype.itemsize:
                    raise UnpicklingError(
                        f"load: {where} is damaged: record data/{key} has {info.file_size} bytes, "
                        f"{numel * dtype.itemsize} are expected"
                    )
                data: Any = None if mapped is None else _mapped_record(mapped, info, where)
                if data is None:
                    data = _record(archive, info)
            except KeyError:
                raise UnpicklingError(f"load: {where} is damaged: record data/{key} is missing") from None
            storages[key] = from_elements(data, dtype, [numel])
        if storages[key].dtype != dtype:
            raise UnpicklingError(
                f"load: {where} views storage {key} as {storages[key].dtype} and as {dtype}"
            )
        return storages[key]

    return _Unpickler(archive.read(pickled), where, storage, trusted).load()
