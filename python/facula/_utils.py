"""Reduction and rebuilding of tensors in pickles, under the names that PyTorch's pickles use."""

from __future__ import annotations

import importlib
import math
import pickle
import reprlib
import sys
import traceback
from collections import OrderedDict
from typing import Any

from . import _C
from ._shared import reach
from ._tensor import _rebuild_from_type_v2
from .storage import LEGACY, QuantizedStorage, TypedStorage, UntypedStorage

Tensor = _C.Tensor


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """Raised for a file that load() cannot read, or that contains something it refuses."""


def _rebuild_tensor_v2(
    storage: Any,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """Returns a tensor over a storage. Raises UnpicklingError if it exceeds the storage."""

    def are_integers(*numbers: Any) -> bool:
        return all(type(n) is int and 0 <= n < 2**60 for n in numbers)

    good = isinstance(storage, TypedStorage) and isinstance(size, tuple) and isinstance(stride, tuple)
    if good and len(size) == len(stride) <= 64 and are_integers(offset, *size, *stride):
        needed = reach(size, stride)
        good = (not needed or offset + needed <= len(storage)) and math.prod(n or 1 for n in size) < 2**60
    else:
        good = False
    if not good:
        held = f"{len(storage)} elements" if isinstance(storage, TypedStorage) else reprlib.repr(storage)
        raise UnpicklingError(
            f"load: a tensor of size {reprlib.repr(size)}, stride {reprlib.repr(stride)} and offset "
            f"{reprlib.repr(offset)} lies outside of its storage of {held}"
        )
    t = _C.functions.as_strided(storage._elements, size, stride, offset)
    put_off = metadata if isinstance(metadata, dict) else {}  # applied once the elements are read
    if put_off.get("conj") is True:
        t = t.conj()
    if put_off.get("neg") is True:
        t = _C.ops._neg_view(t) if t.is_floating_point() or t.is_complex() else t.neg()
    return t.requires_grad_() if requires_grad else t


def _rebuild_tensor_v3(
    storage: Any,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool = False,
    hooks: Any = None,
    dtype: Any = None,
    metadata: Any = None,
) -> Tensor:
    """Returns a tensor of a dtype over the bytes of a storage. Raises UnpicklingError if it exceeds them."""
    if not isinstance(storage, UntypedStorage) or not isinstance(dtype, _C.dtype):
        raise UnpicklingError(f"load: a tensor of dtype {reprlib.repr(dtype)} over {reprlib.repr(storage)}")
    elements = storage._elements[: len(storage) // dtype.itemsize * dtype.itemsize].view(dtype)
    return _rebuild_tensor_v2(TypedStorage(elements), offset, size, stride, requires_grad, hooks, metadata)


_rebuild_tensor = _rebuild_tensor_v2  # PyTorch 0.3 wrote only storage, offset and sizes


def _rebuild_qtensor(
    storage: Any,
    offset: int,
    size: tuple,
    stride: tuple,
    quantizer: tuple,
    requires_grad: bool,
    hooks: Any = None,
) -> Tensor:
    """Returns a quantised tensor over a storage. Raises UnpicklingError if its parameters do not fit."""
    from . import _quantized

    if not isinstance(storage, QuantizedStorage) or not isinstance(quantizer, tuple) or len(quantizer) < 3:
        raise UnpicklingError(
            f"load: a quantized tensor of {reprlib.repr(storage)} and {reprlib.repr(quantizer)}"
        )
    dtype = storage.dtype
    if dtype is _quantized.quint4x2:
        packed = _rebuild_tensor_v2(storage, 0, ((math.prod(size) + 1) // 2,), (1,))
        integers = _quantized.unpacked4(packed.reshape(1, -1), math.prod(size)).reshape(size)
    else:
        integers = _rebuild_tensor_v2(storage, offset, size, stride)
    try:
        return _quantized.rebuilt(integers, dtype, size, quantizer)
    except (RuntimeError, TypeError, ValueError, AttributeError) as e:
        raise UnpicklingError(
            f"load: a quantized tensor with the parameters {reprlib.repr(quantizer)}: {e}"
        ) from e


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any = None) -> Tensor:
    from .nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Tensor:
    return set_state(_rebuild_parameter(data, requires_grad), state)


def _rebuild_sparse_tensor(layout: Any, data: tuple) -> Tensor:
    """Returns a sparse tensor from its parts. Raises UnpicklingError if they are inconsistent."""
    from .sparse import sparse_coo_tensor, sparse_csc_tensor, sparse_csr_tensor

    constructor = {
        _C.sparse_coo: sparse_coo_tensor,
        _C.sparse_csr: sparse_csr_tensor,
        _C.sparse_csc: sparse_csc_tensor,
    }.get(layout)
    if constructor is None:
        raise UnpicklingError(
            f"load: cannot make tensors of layout {reprlib.repr(layout)}; sparse_coo, sparse_csr and "
            "sparse_csc can be"
        )
    parts, rest = (data[:2], data[2:]) if layout is _C.sparse_coo else (data[:3], data[3:])
    tensors = all(type(t) is Tensor and not t.is_sparse for t in parts)
    if not tensors or not rest or not isinstance(rest[0], tuple):
        raise UnpicklingError(f"load: a sparse tensor is made of {reprlib.repr(data)}")
    try:
        return constructor(*parts, rest[0], **({"is_coalesced": rest[1]} if len(rest) > 1 else {}))
    except (RuntimeError, TypeError, IndexError) as error:
        raise UnpicklingError(f"load: the parts of a sparse tensor do not fit: {error}") from None


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """Returns a tensor with sizes and no memory."""
    try:
        t = _C.functions.empty_strided(list(size), list(stride), dtype=dtype, device="meta")
        return t.requires_grad_(bool(requires_grad))
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnpicklingError(f"load: sizes and strides of a meta tensor do not fit: {error}") from None


def set_state(t: Tensor, state: Any) -> Tensor:
    """Sets the attributes of a tensor from a dict, or from a pair of dicts, the second for slots."""
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if not isinstance(attributes or {}, dict) or not isinstance(slots or {}, dict):
        raise UnpicklingError(f"load: a tensor with attributes of type {type(state).__name__}")
    t.__dict__.update(attributes or {})
    if slots and type(t) is Tensor:
        raise UnpicklingError("load: a tensor has no slots for attributes")
    for name, value in (slots or {}).items():
        setattr(t, name, value)
    return t


def reduced(t: Tensor) -> tuple:
    """Returns the function and arguments with which a pickle rebuilds a tensor."""
    if t.layout is not _C.strided:
        parts = (
            (t._indices(), t._values(), t.shape, t.is_coalesced())
            if t.is_sparse
            else (t.crow_indices(), t.col_indices(), t._values(), t.shape)
            if t.is_sparse_csr
            else (t.ccol_indices(), t.row_indices(), t._values(), t.shape)
        )
        return _rebuild_sparse_tensor, (t.layout, parts)
    if t.is_meta:
        return _rebuild_meta_tensor_no_storage, (t.dtype, tuple(t.shape), tuple(t.stride()), t.requires_grad)
    # PyTorch has no storage classes for its most recent dtypes: their pickles contain bytes and a dtype.
    typed = t.dtype in LEGACY.values()
    rebuild = _rebuild_tensor_v2 if typed else _rebuild_tensor_v3
    lazy = {name: True for name, on in (("conj", t.is_conj()), ("neg", t.is_neg())) if on}
    storage = TypedStorage(t) if typed else UntypedStorage(t)
    if t.numel() and not storage.nbytes():
        raise RuntimeError(
            f"save: the memory of a tensor of shape {list(t.shape)} was released, by resizing its storage"
        )
    args = (
        storage,
        t.storage_offset(),
        tuple(t.shape),
        tuple(t.stride()),
        t.requires_grad,
        OrderedDict(),
        *([] if typed else [t.dtype]),
        *([lazy] if lazy else []),
    )
    state = t.__getstate__()
    if type(t) is Tensor and not state:
        return rebuild, args
    return _rebuild_from_type_v2, (rebuild, type(t), args, state)


# ---- names that libraries import from here


class ExceptionWrapper:
    """An exception of a worker, to be raised in another process or thread with its origin."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type, self.where = kind, where
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self._text = f"Caught {kind.__name__} {where}.\nOriginal {self.exc_msg}"

    def reraise(self) -> None:
        """Raises an exception of the same type, or RuntimeError if its constructor takes other arguments."""
        try:
            error = self.exc_type(self._text)
        except Exception:
            error = RuntimeError(self._text)
        if isinstance(error, KeyError):  # displays its argument by repr
            shown = {"__str__": lambda e: e.args[0], "__module__": "builtins"}
            error = type("KeyError", (KeyError,), shown)(self._text)
        raise error


class classproperty:
    """A property of a class: calls ``f`` with the class, also when an instance is accessed."""

    def __init__(self, f: Any) -> None:
        self.fget = getattr(f, "__func__", f)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.fget(type(instance) if owner is None else owner)


def _flatten_dense_tensors(tensors: Any) -> Tensor:
    """Returns the elements of all tensors in one tensor."""
    tensors = list(tensors)
    return _C.functions.cat([t.reshape(-1) for t in tensors]) if tensors else _C.functions.empty([0])


def _unflatten_dense_tensors(flat: Tensor, tensors: Any) -> tuple[Tensor, ...]:
    """Returns views of the flat elements with the tensors' shapes."""
    tensors = tuple(tensors)
    parts = flat.split([t.numel() for t in tensors])
    return tuple(p.view(t.shape) for p, t in zip(parts, tensors))


def _take_tensors(tensors: Any, size_limit: int) -> Any:
    """Groups tensors of one type in lists of at most ``size_limit`` bytes, but at least one tensor."""
    held: dict[str, tuple[list[Tensor], int]] = {}
    for t in tensors:
        kind, nbytes = t.type(), t.numel() * t.element_size()
        chunk, size = held.get(kind, ([], 0))
        if chunk and size + nbytes > size_limit:
            yield chunk
            chunk, size = [], 0
        held[kind] = [*chunk, t], size + nbytes
    yield from (chunk for chunk, _ in held.values() if chunk)


def _get_available_device_type() -> str | None:
    """Returns None: there is no accelerator."""
    return None


def _get_all_device_indices() -> list[int]:
    return []


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Returns the number of a device; -1 for the CPU, if that is allowed."""
    parsed = _C.device(device) if isinstance(device, str) else device
    if isinstance(parsed, _C.device):
        if parsed.type == "cpu" and allow_cpu:
            return -1
        if parsed.type != "cpu" and parsed.index is not None:
            return int(parsed.index)
    elif isinstance(parsed, int):
        return parsed
    raise ValueError(f"Expected a device with a specified index or an integer, but got: {device}")


def _get_device_module(device_type: str) -> Any:
    """The module of a type of device."""
    from . import _torch_names

    try:
        return _torch_names.get_device_module(device_type)
    except RuntimeError as e:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered") from e


def _element_size(dtype: Any) -> int:
    """The bytes of an element."""
    if not isinstance(dtype, _C.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return int(dtype.itemsize)


def _import_dotted_name(name: str) -> Any:
    """Returns the module or object of a dotted name, whose first part is a module."""
    first, *rest = name.split(".")
    target = importlib.import_module(first)
    for part in rest:
        target = getattr(target, part)
    return target
