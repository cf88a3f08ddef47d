"""Tensors by name in the safetensors format: a JSON header and the elements, nothing that could run.

    file   := size of the header (8 bytes, little-endian), header (JSON, blanks at its end), data
    header := {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {text: text}}

Reading validates the file before it creates a tensor: the header's size, each dtype and shape against its
bytes, and that the tensors cover the data without gaps or overlaps. Tensors of a file are memory-mapped,
not copied.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _C
from ._shared import reach
from ._tensor import from_elements
from .serialization import UnpicklingError, replacing

Tensor = _C.Tensor

_NAMES = {
    "F64": _C.float64,
    "F32": _C.float32,
    "F16": _C.float16,
    "BF16": _C.bfloat16,
    "F8_E4M3": _C.float8_e4m3fn,
    "F8_E5M2": _C.float8_e5m2,
    "F8_E8M0": _C.float8_e8m0fnu,
    "C64": _C.complex64,
    "I64": _C.int64,
    "I32": _C.int32,
    "I16": _C.int16,
    "I8": _C.int8,
    "U64": _C.uint64,
    "U32": _C.uint32,
    "U16": _C.uint16,
    "U8": _C.uint8,
    "BOOL": _C.bool,
}
_NAME_OF = {dtype: name for name, dtype in _NAMES.items()}
_LARGEST_HEADER = 100_000_000


class SafetensorError(UnpicklingError):
    """Raised for a file that violates the format."""


# ---- writing


def _check(tensors: Mapping[str, Tensor]) -> None:
    owners: dict[int, list[tuple[int, int, str]]] = {}
    for name, t in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"safetensors: names must be strings, got {name!r}")
        if not isinstance(t, Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected {_C.package_name()}.Tensor but received {type(t)}"
            )
        if t.dtype not in _NAME_OF:
            raise ValueError(f"safetensors: the format has no {t.dtype}, the dtype of `{name}`")
        info = t._storage_info()
        if info is not None and t.numel():
            begin = t.data_ptr()
            end = begin + reach(t.shape, t.stride()) * t.element_size()
            owners.setdefault(info[0], []).append((begin, end, name))
    for places in owners.values():
        places.sort()
        for (_, end, a), (begin, _, b) in zip(places, places[1:]):
            if begin < end:
                raise RuntimeError(
                    f"safetensors: the tensors `{a}` and `{b}` share memory, which the format can't tell.\n"
                    "  hint: save one of them and tie the other after loading, or save "
                    f"{_C.package_name()}.clone() of it"
                )


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> tuple[bytes, list[Tensor]]:
    """Returns the header, and the tensors in the order of their data: the widest elements first, so that
    all are aligned.
    """
    header: dict[str, Any] = {}
    if metadata is not None:
        for k, v in metadata.items():
            if not isinstance(k, str) or not isinstance(v, str):
                raise TypeError(f"safetensors: metadata must be strings by strings, got {k!r}: {v!r}")
        header["__metadata__"] = dict(metadata)
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    at = 0
    for name, t in ordered:
        end = at + t.numel() * t.element_size()
        header[name] = {"dtype": _NAME_OF[t.dtype], "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, [t for _, t in ordered]


def _elements(t: Tensor) -> Any:
    """Returns the elements in row-major order, and an object that owns them."""
    from ._pickles import bytes_at

    t = t.detach().resolve_conj().resolve_neg().contiguous()
    size = t.numel() * t.element_size()
    return bytes_at(t.data_ptr(), size), t


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Returns the bytes of a file with these tensors.

    >>> from facula import safetensors
    >>> safetensors.load(safetensors.save({"a": facula.tensor([1.0, 2.0])}))
    {'a': tensor([1., 2.])}
    """
    _check(tensors)
    header, ordered = _header(tensors, metadata)
    return b"".join([header, *(bytes(_elements(t)[0]) for t in ordered)])


def save_file(
    tensors: Mapping[str, Tensor], filename: str | os.PathLike, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors by name to a file; if interrupted, the old file remains."""
    _check(tensors)
    header, ordered = _header(tensors, metadata)
    with replacing(os.fspath(filename), "safetensors") as file:
        file.write(header)
        for t in ordered:
            data, _keep = _elements(t)
            file.write(data)


def save_model(model: Any, filename: str, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a module's state; for tied tensors, only the first one."""
    seen: set[tuple[int, tuple, tuple]] = set()
    state = {}
    for name, t in model.state_dict().items():
        place = (t.data_ptr(), tuple(t.shape), tuple(t.stride()))
        if t.numel() == 0 or place not in seen:
            seen.add(place)
            state[name] = t
    save_file(state, filename, metadata)


# ---- reading


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name stands there twice")
    return entries


class _Entry:
    def __init__(self, dtype: Any, shape: list[int], begin: int, end: int) -> None:
        self.dtype, self.shape, self.begin, self.end = dtype, shape, begin, end


def _parse(data: memoryview, where: str) -> tuple[dict[str, _Entry], dict[str, str] | None]:
    def bad(what: str) -> SafetensorError:
        return SafetensorError(f"safetensors: {where} is damaged, or no such file: {what}")

    if len(data) < 8:
        raise bad(f"it has {len(data)} bytes, its header's size takes 8")
    size = int.from_bytes(data[:8], "little")
    if size > _LARGEST_HEADER or size > len(data) - 8:
        raise bad(f"its header would have {size} bytes of {len(data) - 8}")
    try:
        header = json.loads(str(data[8 : 8 + size], "utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise bad(f"its header is no JSON: {error}") from None
    if not isinstance(header, dict) or data[8:9] != b"{":
        raise bad("its header is no JSON object")
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    ):
        raise bad("its metadata are not strings by strings")
    total = len(data) - 8 - size
    entries: dict[str, _Entry] = {}
    for name, info in header.items():
        if not isinstance(info, dict) or info.keys() != {"dtype", "shape", "data_offsets"}:
            raise bad(f"`{name}` must have dtype, shape and data_offsets")
        shape, offsets = info["shape"], info["data_offsets"]
        if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
            raise bad(f"`{name}` has the shape {shape!r}")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int for n in offsets):
            raise bad(f"`{name}` has the offsets {offsets!r}")
        if not isinstance(info["dtype"], str) or info["dtype"] not in _NAMES:
            raise SafetensorError(
                f"safetensors: `{name}` in {where} has the dtype {info['dtype']!r}; there are "
                f"{', '.join(_NAMES)}"
            )
        dtype, (begin, end) = _NAMES[info["dtype"]], offsets
        if not 0 <= begin <= end <= total:
            raise bad(f"`{name}` lies at {begin} to {end} of {total} bytes")
        if len(shape) > 64 or math.prod(shape) * dtype.itemsize != end - begin:
            raise bad(f"`{name}` of {info['dtype']} {shape} does not fit its {end - begin} bytes")
        entries[name] = _Entry(dtype, shape, begin, end)
    at = 0
    for name, e in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if e.begin != at:
            raise bad(f"`{name}` begins at byte {e.begin}, the one before ends at {at}")
        at = e.end
    if at != total:
        raise bad(f"{total - at} bytes belong to no tensor")
    return entries, metadata


def _check_device(device: Any) -> None:
    if _C.device(str(device)).type != "cpu":
        raise RuntimeError(f"safetensors: device '{device}': this build keeps tensors on the CPU")


class _Slice:
    """A tensor of an open file that is read by indexing it."""

    def __init__(self, owner: safe_open, name: str) -> None:
        self._owner, self._name = owner, name

    def get_shape(self) -> list[int]:
        return list(self._owner._entry(self._name).shape)

    def get_dtype(self) -> str:
        return _NAME_OF[self._owner._entry(self._name).dtype]

    def __getitem__(self, index: Any) -> Tensor:
        return self._owner.get_tensor(self._name)[index]


class safe_open:
    """The tensors of a file, read on demand: ``with safe_open(path, "pt") as f: f.get_tensor(name)``."""

    def __init__(self, filename: str | os.PathLike, framework: str = "pt", device: Any = "cpu") -> None:
        import mmap

        if framework not in ("pt", "torch", "pytorch", "facula"):
            raise SafetensorError(f"safetensors: framework '{framework}' is not supported; 'pt' is")
        _check_device(device)
        where = os.fspath(filename)
        with open(where, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # copy on write: changes of tensors do not reach the file
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b""
        self._open(memoryview(mapped), str(where))

    def _open(self, data: memoryview, where: str) -> safe_open:
        self._entries, self._metadata = _parse(data, where)
        self._data: memoryview | None = data[8 + int.from_bytes(data[:8], "little") :]
        return self

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._entries[name]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: object) -> None:
        self._data = None  # the mapping lives as long as a tensor uses it

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """Returns the names in the order of the data."""
        return sorted(self._entries, key=lambda name: self._entries[name].begin)

    def metadata(self) -> dict[str, str] | None:
        return self._metadata

    def get_tensor(self, name: str) -> Tensor:
        e = self._entry(name)
        if self._data is None:
            raise SafetensorError("File is not open")
        data: Any = self._data[e.begin : e.end]
        if data.readonly or (8 + e.begin) % e.dtype.itemsize:
            data = bytearray(data)
        return from_elements(data, e.dtype, e.shape)

    def get_tensors(self, names: Iterable[str]) -> dict[str, Tensor]:
        return {name: self.get_tensor(name) for name in names}

    def get_slice(self, name: str) -> _Slice:
        self._entry(name)
        return _Slice(self, name)


def load(data: bytes) -> dict[str, Tensor]:
    """Returns the tensors in a file's bytes."""
    f = safe_open.__new__(safe_open)._open(memoryview(data), "the data")
    return {name: f.get_tensor(name) for name in f.offset_keys()}


def load_file(filename: str | os.PathLike, device: Any = "cpu") -> dict[str, Tensor]:
    """Returns the tensors of a file by name."""
    with safe_open(filename, "pt", device) as f:
        return {name: f.get_tensor(name) for name in f.offset_keys()}


def load_model(model: Any, filename: str | os.PathLike, strict: bool = True, device: Any = "cpu") -> Any:
    """Loads a module's state; returns missing and unexpected names. Tied tensors have to occur only once."""
    state = load_file(filename, device)
    own = model.state_dict()
    missing, unexpected = model.load_state_dict(state, strict=False)
    loaded = {own[name].data_ptr() for name in state if name in own}
    missing = [name for name in missing if own[name].data_ptr() not in loaded]
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}: missing {missing}, unexpected "
            f"{unexpected}"
        )
    return missing, unexpected
