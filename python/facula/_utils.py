"""How tensors are taken apart and put together by pickles, under the names that PyTorch's pickles know."""

from __future__ import annotations

import math
import pickle
import reprlib
from collections import OrderedDict
from typing import Any

from . import _C
from ._tensor import _rebuild_from_type_v2
from .storage import TypedStorage

Tensor = _C.Tensor


class UnpicklingError(pickle.UnpicklingError, RuntimeError):
    """A file that is not what load() reads, or holds what it refuses."""


def _rebuild_tensor_v2(
    storage: Any,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Tensor:
    """A tensor over a storage. Raises UnpicklingError if it does not lie within it."""

    def whole(*numbers: Any) -> bool:
        return all(type(n) is int and 0 <= n < 2**60 for n in numbers)

    good = isinstance(storage, TypedStorage) and isinstance(size, tuple) and isinstance(stride, tuple)
    if good and len(size) == len(stride) <= 64 and whole(offset, *size, *stride):
        needed = offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1 if all(size) else 0
        good = needed <= len(storage) and math.prod(n or 1 for n in size) < 2**60
    else:
        good = False
    if not good:
        held = f"{len(storage)} elements" if isinstance(storage, TypedStorage) else reprlib.repr(storage)
        raise UnpicklingError(
            f"load: a tensor of size {reprlib.repr(size)}, stride {reprlib.repr(stride)} and offset "
            f"{reprlib.repr(offset)} lies outside of its storage of {held}"
        )
    t = _C.functions.as_strided(storage._elements, size, stride, offset)
    put_off = metadata if isinstance(metadata, dict) else {}  # until the elements are read
    if put_off.get("conj") is True:
        t = t.conj()
    if put_off.get("neg") is True:
        t = _C.ops._neg_view(t) if t.is_floating_point() or t.is_complex() else t.neg()
    return t.requires_grad_() if requires_grad else t


_rebuild_tensor = _rebuild_tensor_v2  # what PyTorch 0.3 wrote had no more than a storage, an offset and sizes


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any = None) -> Tensor:
    from .nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Tensor:
    return set_state(_rebuild_parameter(data, requires_grad), state)


def set_state(t: Tensor, state: Any) -> Tensor:
    """Gives a tensor the attributes of a dict, or of a pair of dicts, the second for slots."""
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
    """What a pickle of a tensor calls, and with what."""
    lazy = {name: True for name, on in (("conj", t.is_conj()), ("neg", t.is_neg())) if on}
    args = (
        TypedStorage(t),
        t.storage_offset(),
        tuple(t.shape),
        tuple(t.stride()),
        t.requires_grad,
        OrderedDict(),
        *([lazy] if lazy else []),
    )
    state = t.__getstate__()
    if type(t) is Tensor and not state:
        return _rebuild_tensor_v2, args
    return _rebuild_from_type_v2, (_rebuild_tensor_v2, type(t), args, state)
