"""save and load, in PyTorch's file format: a zip archive with a pickle of the structure and a record for
each storage.

Loading is safe by default: objects other than tensors, containers and numbers are refused by name, and no
code of the file is executed. Files are written under another name and renamed, so an interrupted save
leaves the old file.
"""

from __future__ import annotations

import enum
import errno
import io
import itertools
import os
import pickle
import pickletools
import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from . import _C, _stream_format
from ._pickles import (
    Pickler,
    Unpickler,
    UnpicklingError,
    add_safe_globals,
    bytes_of,
    check,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from ._pickles import get_layout as _get_layout  # noqa: F401  (pickles refer to it by this name)
from ._tensor import from_elements

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "StorageType",
    "UnpicklingError",
    "WriteError",
    "check_module_version_greater_or_equal",
    "default_restore_location",
    "location_tag",
    "mkdtemp",
    "normalize_storage_type",
    "register_package",
    "skip_data",
    "storage_to_tensor_type",
    "validate_cuda_device",
    "validate_hpu_device",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_unsafe_globals_in_checkpoint",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]

Tensor = _C.Tensor
MAP_LOCATION = Any  # a function, a device, its name, or names by names
_ALIGN = 64


DEFAULT_PROTOCOL = 2  # of the pickles that ``save`` writes


def _is_zipfile(f: Any) -> bool:
    """Returns whether a file begins like those that ``save`` writes; does not move the file's position."""
    at = f.tell()
    begins = f.read(4)
    f.seek(at)
    return bool(begins == b"PK\x03\x04")


class LoadEndianness(enum.Enum):
    NATIVE, LITTLE, BIG = 1, 2, 3


# 2: MAP_PRIVATE
_settings: dict[str, Any] = {"endianness": None, "mmap": 2, "crc32": True, "skip_data": False}


def get_default_load_endianness() -> LoadEndianness | None:
    """Returns the byte order for files without that information: the machine's."""
    return _settings["endianness"]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Sets the byte order; only little endian is supported."""
    if endianness is LoadEndianness.BIG:
        raise NotImplementedError("set_default_load_endianness: files of big-endian machines are not read")
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _settings["endianness"] = endianness


def get_default_mmap_options() -> int:
    """Returns how files are mapped: MAP_PRIVATE, so that writes to tensors do not reach the file."""
    return _settings["mmap"]


def set_default_mmap_options(flags: int) -> None:
    """Accepts MAP_PRIVATE only: a loaded tensor never writes to its file."""
    if flags != 2:
        raise NotImplementedError("set_default_mmap_options: files are mapped with MAP_PRIVATE only")


def get_crc32_options() -> bool:
    """Returns the switch for checksums, which has no effect: files always contain them."""
    return _settings["crc32"]


def set_crc32_options(compute_crc32: bool) -> None:
    """Stores the switch; files always contain checksums."""
    _settings["crc32"] = bool(compute_crc32)


class skip_data:
    """Within the ``with`` block, save() leaves the space of elements empty, to be filled by another
    writer, and load() returns tensors whose elements were not read.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        if materialize_fake_tensors:
            raise NotImplementedError("skip_data(materialize_fake_tensors=True): there are no fake tensors")

    def __enter__(self) -> None:
        self._before, _settings["skip_data"] = _settings["skip_data"], True

    def __exit__(self, *exc: object) -> None:
        _settings["skip_data"] = self._before


class SourceChangeWarning(Warning):
    """PyTorch's warning about classes whose source changed since they were saved: files contain no
    sources any more.
    """


class StorageType:
    """Stands for a storage class by its name."""

    def __init__(self, name: str) -> None:
        self._dtype = _dtype_of(name)

    @property
    def dtype(self) -> Any:
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def _dtype_of(name: str) -> Any:
    from . import storage

    return getattr(storage, name)(0).dtype


def location_tag(storage: Any) -> str:
    """Returns the location of a storage, as files record it: ``cpu``."""
    kind = storage.device.type
    if kind not in ("cpu", "meta"):
        raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")
    return str(kind)


def default_restore_location(storage: Any, location: str) -> Any:
    """Returns the storage at the location that a file records, which is always the CPU."""
    if location != "cpu":
        raise RuntimeError(
            f"don't know how to restore data location of {type(storage).__name__} (tagged with {location})"
        )
    return storage


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Raises an error: files are read to the CPU, whatever devices a program adds."""
    raise NotImplementedError(
        "register_package: files are read to the CPU; x.to(device) moves what was loaded"
    )


def validate_cuda_device(location: str) -> int:
    """Raises an error: CUDA is unavailable."""
    raise RuntimeError(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If "
        "you are running "
        "on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
        "storages to "
        "the CPU."
    )


def validate_hpu_device(location: str) -> int:
    """Raises an error: HPU is unavailable."""
    raise RuntimeError(
        "Attempting to deserialize object on a HPU device but torch.hpu.is_available() is False. If you "
        "are running on "
        "a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
        "storages to the "
        "CPU."
    )


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[int, ...], error_if_malformed: bool = True
) -> bool:
    """Returns whether a module has at least that version. If it has no version, raises RuntimeError, or
    warns and returns True.
    """
    try:
        parts = module.__version__.split(".")
        installed = tuple(type(r)(p) for r, p in zip(req_version_tuple, parts))
    except Exception as e:
        message = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot "
            f"be compared "
            f"with tuple {req_version_tuple!s}"
        )
        if error_if_malformed:
            raise RuntimeError(message) from e
        warnings.warn(message + ", but continuing assuming that requirement is met", stacklevel=2)
        return True
    return installed >= req_version_tuple


@contextmanager
def mkdtemp() -> Iterator[str]:
    """Creates a folder for the ``with`` block."""
    with tempfile.TemporaryDirectory() as path:
        yield path


def normalize_storage_type(storage_type: Any) -> Any:
    """Returns the storage class of this library with this class's name."""
    from . import storage

    return getattr(storage, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> Any:
    """Returns the legacy tensor class for a storage class: FloatTensor for FloatStorage."""
    from . import _legacy_types

    return getattr(_legacy_types, type(storage).__name__.replace("Storage", "Tensor"))


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Returns the classes and functions in a file that load() would refuse unless they are allowed.

    >>> import io, fractions
    >>> file = io.BytesIO()
    >>> facula.save(fractions.Fraction(1, 2), file)
    >>> facula.serialization.get_unsafe_globals_in_checkpoint(file)
    ['fractions.Fraction']
    """
    with nullcontext(f) if hasattr(f, "read") else open(f, "rb") as file:
        start = file.tell() if hasattr(f, "read") else 0
        file.seek(0)
        try:
            with zipfile.ZipFile(file) as archive:
                (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
                data = archive.read(name)
        except (zipfile.BadZipFile, ValueError) as e:
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint "
                "or a file that is no zip archive"
            ) from e
        finally:
            file.seek(start)
    reader = Unpickler(io.BytesIO(data), "the file", lambda *a: None, trusted=False)
    named = dict.fromkeys(_names_of(data))
    return [f"{m}.{n}" for m, n in named if reader.known(m, n) is None]


def _names_of(data: bytes) -> Iterator[tuple[str, str]]:
    """Returns modules and names to which a pickle refers, without executing it."""
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            module, name = argument.split(" ", 1)
            yield module, name
        elif opcode.name == "STACK_GLOBAL":
            yield texts[-2], texts[-1]
        elif isinstance(argument, str) and "UNICODE" in opcode.name:
            texts.append(argument)


# ---- writing


def _write_record(archive: zipfile.ZipFile, path: str, data: Any) -> None:
    """Writes an uncompressed record, with data at a multiple of 64 bytes as memory-mapping readers
    require.
    """
    info = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    start = archive.fp.tell() + 30 + len(path.encode()) + 4
    if len(data) * 1.05 > zipfile.ZIP64_LIMIT:
        start += 20  # the header then has an additional field for large sizes
    padding = -start % _ALIGN
    info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding
    archive.writestr(info, data)


def _write(obj: Any, file: Any, name: str) -> None:
    pickled = io.BytesIO()
    pickler = Pickler(pickled, lambda kind, key, numel: ("storage", kind, key, "cpu", numel))
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_record(archive, f"{name}/data.pkl", pickled.getvalue())
        _write_record(archive, f"{name}/byteorder", b"little")
        for key, storage in enumerate(pickler.storages):
            data = bytes_of(storage)
            _write_record(archive, f"{name}/data/{key}", bytes(len(data)) if _settings["skip_data"] else data)
        _write_record(archive, f"{name}/version", b"3\n")


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Writes ``obj`` (tensors, containers, numbers, strings; other objects by pickle) to a path or a
    binary file; without ``_use_new_zipfile_serialization``, in the format of PyTorch before 1.6.
    """

    def write(file: Any, name: str) -> None:
        if _use_new_zipfile_serialization:
            _write(obj, file, name)
        else:
            _stream_format.write(obj, file)

    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise TypeError(f"save: expected a path or a binary file to write to, not {type(f).__name__}")
        write(f, "archive")
        return
    path = os.fspath(f)
    with replacing(path) as file:
        write(file, os.path.splitext(os.path.basename(path))[0] or "archive")


class WriteError(OSError, RuntimeError):
    """Raised if a file cannot be written."""


_numbers = itertools.count()


def _beside(path: str) -> tuple[str, Any]:
    """Creates a unique file next to ``path``: threads may save to one path at the same time."""
    folder, name = os.path.split(path)
    while True:
        beside = os.path.join(folder, f".{name}.{os.getpid()}-{next(_numbers)}.tmp")
        try:
            return beside, open(beside, "x+b")
        except FileExistsError:  # left over from a process that was killed
            continue


@contextmanager
def replacing(path: str, what: str = "save") -> Iterator[Any]:
    """Yields a file that replaces ``path`` when it is complete and on the disk."""
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
        note = "; the file that is there stays as it was" if os.path.lexists(path) else ""
        message = f"{what}: cannot write {path}: {os.strerror(error.errno)}{note}"
        raise WriteError(error.errno, message) from None


# ---- reading


def _to_meta(map_location: Any) -> bool:
    """Returns whether tensors get sizes and no elements. Raises for an unsupported device."""
    if isinstance(map_location, dict):
        return {str(saved): _to_meta(place) for saved, place in map_location.items()}.get("cpu", False)
    if map_location is None or callable(map_location):
        return False
    kind = _C.device(str(map_location)).type
    if kind not in ("cpu", "meta"):
        raise RuntimeError(
            f"load: map_location='{map_location}': this build reads files to the CPU or to meta"
        )
    return bool(kind == "meta")


def _weights_only(requested: bool | None) -> bool:
    """Returns whether the file's code is refused: from the argument, or PyTorch's environment variables."""
    force = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    allow = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    forced, allowed = (os.environ.get(name, "0") in ("1", "y", "yes", "true") for name in (force, allow))
    if forced and allowed:
        raise RuntimeError(f"Only one of `{force}` or `{allow}` should be set, but both were set.")
    if requested is None and allowed:
        warnings.warn(
            f"Environment variable {allow} detected, since the`weights_only` argument was not explicitly "
            "passed to `torch.load`, forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return forced or requested is None or requested


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads a file that save() of facula or PyTorch wrote, from a path or a binary file.

    ``weights_only=False`` also creates other objects, which can execute code: for trusted files only. The
    default is True unless PyTorch's variable ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` is set. With
    ``mmap=True`` elements stay in the file until they are used, after a check of their checksums; changes
    of tensors do not reach it. Tensors are created on the CPU wherever they were; with
    ``map_location="meta"`` without elements.

    >>> facula.save({"w": facula.ones(2)}, path := tempfile.mktemp())
    >>> facula.load(path)
    {'w': tensor([1., 1.])}
    """
    weights_only = _weights_only(weights_only)
    to_meta = _to_meta(map_location)
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path and not (hasattr(f, "read") and hasattr(f, "seek")):
        raise AttributeError(f"load: expected a path or a binary file that can seek, not {type(f).__name__}")
    if mmap and not is_path:
        raise ValueError("f must be a string filename in order to use mmap argument")
    where = os.fspath(f) if is_path else getattr(f, "name", "the file")
    try:
        with open(f, "rb") if is_path else nullcontext(f) as file:
            start = file.tell()
            beginning = file.read(len(_stream_format.BEGINNING))
            file.seek(start)
            if beginning == _stream_format.BEGINNING:
                if mmap or to_meta:
                    asked = "mmap=True" if mmap else "map_location='meta'"
                    raise RuntimeError(
                        f"load: {where} is in the format from before PyTorch 1.6, of which {asked} is not "
                        "possible\n  hint: save it anew"
                    )
                return _stream_format.read(file, str(where), not weights_only)
            if beginning[:2] in (b"\x80\x02", b"\x80\x04"):
                raise UnpicklingError(
                    f"load: {where} is a plain pickle, which is not read.\n"
                    "  hint: read it with pickle.load if you trust it"
                )
            with zipfile.ZipFile(file) as archive:
                return _read(archive, str(where), not weights_only, file if mmap else None, to_meta)
    except UnpicklingError:
        raise
    except zipfile.BadZipFile as error:
        raise UnpicklingError(f"load: {where} is damaged, or no file of save(): {_short(error)}") from None
    except Exception if weights_only else _DAMAGE as error:  # noqa: B030
        if (
            isinstance(error, OSError) and error.errno != errno.EINVAL
        ):  # an invalid seek is caused by the file
            raise
        raise UnpicklingError(f"load: {where} is damaged: {type(error).__name__}: {_short(error)}") from error


def load_script(f: Any) -> Any:
    """The parameters, buffers and attributes of a TorchScript archive, as a module that cannot be called."""
    is_path = isinstance(f, (str, os.PathLike))
    where = os.fspath(f) if is_path else getattr(f, "name", "the file")
    try:
        with open(f, "rb") if is_path else nullcontext(f) as file, zipfile.ZipFile(file) as archive:
            return _read(archive, str(where), False, script=True)
    except (UnpicklingError, OSError):
        raise
    except zipfile.BadZipFile as error:
        raise UnpicklingError(f"load: {where} is damaged, or no archive: {_short(error)}") from None
    except Exception as error:
        raise UnpicklingError(f"load: {where} is damaged: {type(error).__name__}: {_short(error)}") from error


def _short(error: Exception) -> str:
    """Returns an error's text, abbreviated, because it may quote the file."""
    text = str(error)
    return text if len(text) <= 300 else text[:300] + "..."


# Exceptions from reading a damaged archive; with weights_only=False, unpickling may also raise a class's
# own.
_DAMAGE = (EOFError, struct.error, KeyError, pickle.UnpicklingError, UnicodeDecodeError)


def _check_records(archive: zipfile.ZipFile, where: str, size: int) -> None:
    """Checks that records are as save() writes them: uncompressed, with unique names, not larger together
    than the file.
    """
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
    """Returns a record's bytes, read directly into their buffer; the archive verifies their checksum."""
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
    """Returns a record in the mapped file, after verifying its checksum; None if it is not aligned."""
    at = info.header_offset
    if at + 30 > len(mapped):
        return None
    begin = at + 30 + sum(struct.unpack_from("<HH", mapped, at + 26))
    if begin % 16 or begin + info.file_size > len(mapped):
        return None
    record = mapped[begin : begin + info.file_size]
    if zlib.crc32(record) != info.CRC:  # reads pages of the file without allocating memory
        raise UnpicklingError(f"load: {where} is damaged: Bad CRC-32 for record {info.filename}")
    return record


def _read(
    archive: zipfile.ZipFile,
    where: str,
    trusted: bool,
    mapped_file: Any = None,
    to_meta: bool = False,
    script: bool = False,
) -> Any:
    """The object of an archive; with ``script`` the data of a TorchScript program, as a module."""
    names = archive.namelist()
    archive.fp.seek(0, os.SEEK_END)  # type: ignore[union-attr]
    _check_records(archive, where, archive.fp.tell())  # type: ignore[union-attr]
    pickled = next((n for n in names if n.endswith("/data.pkl") and n.count("/") == 1), None)
    if pickled is None:
        raise UnpicklingError(f"load: {where} is a zip file, but not of save(): it has no data.pkl")
    folder = pickled[: -len("data.pkl")]
    if folder + "byteorder" in names and archive.read(folder + "byteorder") != b"little":
        raise UnpicklingError(f"load: {where} was saved on a big-endian machine; its numbers can't be read")
    if (folder + "constants.pkl" in names) != script:
        what = "not a TorchScript archive" if script else "a TorchScript program, not saved tensors"
        raise UnpicklingError(f"load: {where} is {what}")
    storages: dict[str, Tensor] = {}
    mapped = None
    if mapped_file is not None:
        from mmap import ACCESS_COPY, mmap

        mapped = memoryview(mmap(mapped_file.fileno(), 0, access=ACCESS_COPY))  # changes stay in memory

    def storage(key: str, dtype: Any, numel: int) -> Tensor:
        if key not in storages and to_meta:
            storages[key] = _C.functions.empty([numel], dtype=dtype, device="meta")
        elif key not in storages:
            try:
                info = archive.getinfo(f"{folder}data/{key}")
                if info.file_size != numel * dtype.itemsize:
                    raise UnpicklingError(
                        f"load: {where} is damaged: record data/{key} has {info.file_size} bytes, "
                        f"{numel * dtype.itemsize} are expected"
                    )
                data: Any = None if mapped is None else _mapped_record(mapped, info, where)
                if _settings["skip_data"]:
                    data = bytearray(info.file_size)
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

    data = archive.read(pickled)
    if script:
        from ._script_archive import ScriptUnpickler, module_of

        return module_of(
            ScriptUnpickler(io.BytesIO(data), where, storage, False).load(), archive, folder, where
        )
    if not trusted:
        check(data, where)
    return Unpickler(io.BytesIO(data), where, storage, trusted).load()
