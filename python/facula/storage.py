"""The memory behind tensors, as ``Tensor.untyped_storage()`` and ``Tensor.storage()`` give it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from . import _C

Tensor = _C.Tensor

__all__ = ["TypedStorage", "UntypedStorage"]


class _Storage:
    """Elements of one dtype over the whole of a storage, also before and between those of the tensor."""

    _elements: Tensor

    def _over(self, tensor: Tensor, dtype: Any) -> None:
        info = tensor._storage_info()
        if info is None:
            raise NotImplementedError("untyped_storage: the tensor has no storage")
        memory = tensor.detach()  # as it lies, whatever conj() has put off
        memory = memory.conj() if memory.is_conj() else memory
        memory = _C.ops._neg_view(memory) if memory.is_neg() else memory
        whole = _C.functions.as_strided(memory, [info[1] // tensor.element_size()], [1], 0)
        self._elements, self._address, self._bytes = whole.view(dtype), info[0], info[1]

    def data_ptr(self) -> int:
        """The address of the first byte; equal for tensors that share memory."""
        return self._address

    def nbytes(self) -> int:
        return self._bytes

    @property
    def device(self) -> Any:
        return self._elements.device

    @property
    def _cdata(self) -> int:
        return self._address

    def element_size(self) -> int:
        return self._elements.element_size()

    def size(self) -> int:
        """The number of elements."""
        return len(self)

    def __len__(self) -> int:
        return self._elements.numel()

    def __getitem__(self, k: Any) -> Any:
        return self._elements[k].item() if isinstance(k, int) else self._elements[k]

    def __setitem__(self, k: Any, value: Any) -> None:
        self._elements[k] = value

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def tolist(self) -> list:
        return self._elements.tolist()

    def is_shared(self) -> bool:
        """Does it lie in memory that child processes share?"""
        return self._elements.is_shared()

    def __repr__(self) -> str:
        lines = "\n".join(f" {x}" for x in self.tolist())
        facts = f"{self._facts()}device={self.device}"
        return f"{lines}\n[facula.storage.{type(self).__name__}({facts}) of size {len(self)}]"

    def __reduce__(self) -> tuple:
        from .serialization import save

        file = io.BytesIO()
        save(self, file, _use_new_zipfile_serialization=False)
        return _load_from_bytes, (file.getvalue(),)

    def _facts(self) -> str:
        return ""


class UntypedStorage(_Storage):
    """A storage as bytes."""

    dtype = _C.uint8

    def __init__(self, tensor: Tensor) -> None:
        self._over(tensor, _C.uint8)


class TypedStorage(_Storage):
    """A storage as elements of a tensor's dtype."""

    def __init__(self, tensor: Tensor) -> None:
        self._over(tensor, tensor.dtype)

    @property
    def dtype(self) -> Any:
        return self._elements.dtype

    def _facts(self) -> str:
        return f"dtype={self.dtype}, "

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self._elements)


def _load_from_bytes(b: bytes) -> Any:
    """By this name pickles refer to a storage."""
    from .serialization import load

    return load(io.BytesIO(b), weights_only=False)
