"""The memory behind tensors, as ``Tensor.untyped_storage()`` and ``Tensor.storage()`` return it, and
separate memory: ``UntypedStorage(8)``, ``FloatStorage([1.0, 2.0])``.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

from . import _C
from ._shared import map_file

Tensor = _C.Tensor

__all__ = [
    "BFloat16Storage",
    "BoolStorage",
    "ByteStorage",
    "CharStorage",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "FloatStorage",
    "HalfStorage",
    "IntStorage",
    "LongStorage",
    "ShortStorage",
    "TypedStorage",
    "UntypedStorage",
]


class _Storage:
    """Elements of one dtype over an entire storage, including those outside of the tensor."""

    _memory: Tensor  # any tensor over the storage
    _kind: Any  # the dtype of the elements
    _filename: str | None = None

    def _over(self, tensor: Tensor, dtype: Any) -> None:
        if tensor._storage_info() is None:
            raise NotImplementedError("untyped_storage: the tensor has no storage")
        self._memory, self._kind = _C.storage_bytes(tensor), dtype

    @property
    def _elements(self) -> Tensor:
        """The elements that fit into the current size, without those of a broken last one."""
        count = self.nbytes() // self._kind.itemsize
        if not count:
            return _C.functions.empty([0], dtype=self._kind, device=self.device)
        return _C.storage_bytes(self._memory)[: count * self._kind.itemsize].view(self._kind)

    def data_ptr(self) -> int:
        """Returns the address of the first byte, which is equal for tensors that share memory."""
        return self._memory._storage_info()[0]

    def nbytes(self) -> int:
        return self._memory._storage_info()[1]

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.nbytes()

    @property
    def device(self) -> Any:
        return self._memory.device

    @property
    def _cdata(self) -> int:
        return self.data_ptr()

    def element_size(self) -> int:
        return self._kind.itemsize

    def size(self) -> int:
        """Returns the number of elements."""
        return len(self)

    def __len__(self) -> int:
        return self.nbytes() // self._kind.itemsize

    def __getitem__(self, k: Any) -> Any:
        return self._elements[k].item() if isinstance(k, int) else self._part(k)

    def _part(self, k: Any) -> Any:
        if isinstance(k, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        raise RuntimeError(f"can't index a {type(self)} with {type(k)}")

    def _as_tensor(self, dtype: Any) -> Tensor:
        """Returns a tensor over this memory in a dtype, for as_tensor and asarray."""
        if dtype not in (None, self._kind):
            raise RuntimeError(f"asarray: the storage has elements of {self._kind}, not of {dtype}")
        return self._elements

    def __setitem__(self, k: Any, value: Any) -> None:
        self._elements[k] = value

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def tolist(self) -> list:
        return self._elements.tolist()

    def fill_(self, value: Any) -> Any:
        """Sets all elements, which tensors over this memory share."""
        self._elements.fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        """Copies the elements of another storage of the same size."""
        if len(source) != len(self):
            raise RuntimeError(f"copy_: expected {len(self)} elements, got {len(source)}")
        self._elements.copy_(source._elements)
        return self

    def clone(self) -> Any:
        """Returns a copy in separate memory."""
        return type(self)._of(self._elements.clone())

    def cpu(self) -> Any:
        return self

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        raise AssertionError("Facula not compiled with CUDA enabled")

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def get_device(self) -> int:
        return -1

    @property
    def is_cuda(self) -> bool:
        return False

    def resizable(self) -> bool:
        """Returns whether the memory may be moved: it belongs to this library and no array shares it."""
        return _C.is_storage_resizable(self._memory)

    def resize_(self, size: int) -> Any:
        """Changes the number of elements; tensors over the storage keep their shapes.

        A size of 0 releases the memory: reading a tensor over it raises until the storage gets a size again.
        """
        if not isinstance(size, int):
            raise RuntimeError(f"resize_ expects an int, but got {type(size).__name__}")
        _C.resize_storage(self._memory, size * self._kind.itemsize)
        return self

    def share_memory_(self) -> Any:
        """Moves the memory to where child processes share it."""
        self._over(self._elements.share_memory_(), self._kind)
        return self

    def _to(self, dtype: Any) -> Any:
        return TypedStorage._of(self._elements.to(dtype))

    def float(self) -> Any:
        return self._to(_C.float32)

    def double(self) -> Any:
        return self._to(_C.float64)

    def half(self) -> Any:
        return self._to(_C.float16)

    def bfloat16(self) -> Any:
        return self._to(_C.bfloat16)

    def long(self) -> Any:
        return self._to(_C.int64)

    def short(self) -> Any:
        return self._to(_C.int16)

    def char(self) -> Any:
        return self._to(_C.int8)

    def byte(self) -> Any:
        return self._to(_C.uint8)

    def complex_double(self) -> Any:
        return self._to(_C.complex128)

    def complex_float(self) -> Any:
        return self._to(_C.complex64)

    @classmethod
    def _of(cls, elements: Tensor) -> Any:
        storage = cls.__new__(cls)
        storage._over(elements, elements.dtype)
        return storage

    @property
    def filename(self) -> str | None:
        """The file that contains the memory, if ``from_file`` mapped it as shared."""
        return self._filename

    def is_shared(self) -> bool:
        """Returns whether the memory is shared with child processes."""
        return self._elements.is_shared()

    def __repr__(self) -> str:
        lines = "\n".join(f" {x}" for x in self.tolist())
        facts = f"{self._facts()}device={self.device}"
        return f"{lines}\n[{_C.package_name()}.storage.{type(self).__name__}({facts}) of size {len(self)}]"

    def __reduce__(self) -> tuple:
        from .serialization import save

        file = io.BytesIO()
        save(self, file, _use_new_zipfile_serialization=False)
        return _load_from_bytes, (file.getvalue(),)

    def _facts(self) -> str:
        return ""

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        byte_order: str | None = None,
        count: int = -1,
        offset: int = 0,
        *,
        dtype: Any = None,
    ) -> Any:
        """Returns a storage with a copy of the elements of a buffer.

        Args:
            byte_order: "little", "big" or "native"; bytes have none.
            count: the number of elements, by default all behind ``offset``.
            offset: the number of bytes that are left out.
            dtype: the dtype of the elements, by default that of the class, or bytes.
        Raises:
            ValueError: the buffer does not have so many elements, or there is no such order of bytes.

        >>> facula.UntypedStorage.from_buffer(bytes([1, 2]), "big", dtype=facula.int16).tolist()
        [2, 1]
        >>> facula.ShortStorage.from_buffer(bytes([0, 1, 2, 3]), "big").tolist()
        [1, 515]
        """
        elements = _elements_of(buffer, byte_order, count, offset, cls._kind_of_buffer(dtype))
        return UntypedStorage(elements) if issubclass(cls, UntypedStorage) else TypedStorage(elements)


class UntypedStorage(_Storage):
    """A storage as bytes."""

    dtype = _C.uint8

    def __init__(self, source: Any = 0, *, device: Any = None) -> None:
        self._over(_memory_of(source, _C.uint8), _C.uint8)

    def untyped(self) -> UntypedStorage:
        return self

    def _as_tensor(self, dtype: Any) -> Tensor:
        dtype = dtype or _C.int64  # PyTorch's dtype for a sequence of bytes
        return self._elements[: len(self) // dtype.itemsize * dtype.itemsize].view(dtype)

    def _part(self, k: Any) -> UntypedStorage:
        if not isinstance(k, slice):
            raise TypeError(f"can't index an UntypedStorage with {type(k).__name__}")
        start, stop, step = k.indices(len(self))
        if step != 1:
            raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
        if self.device.type != "cpu":
            raise NotImplementedError(f"Not available for '{self.device.type}' device type")
        # NumPy creates a separate storage of the part: tensors over it cannot exceed it.
        return UntypedStorage(_C.from_numpy(self._elements[start : max(start, stop)].numpy()))

    @classmethod
    def _kind_of_buffer(cls, dtype: Any) -> Any:
        return dtype or _C.uint8

    @staticmethod
    def from_file(filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """Maps the first ``nbytes`` bytes of a file into memory.

        Args:
            filename: path of the file; with ``shared`` it is created, or extended, if it is too short.
            shared: whether changes of the elements are written to the file; otherwise they stay in this
            process.
            nbytes: the number of bytes.
        Raises:
            RuntimeError: the file cannot be opened, or is too short.
        """
        mapped = UntypedStorage(map_file(filename, shared, nbytes))
        mapped._filename = filename if shared else None
        return mapped


class TypedStorage(_Storage):
    """A storage as elements of a tensor's dtype."""

    def __init__(
        self,
        *args: Any,
        wrap_storage: Any = None,
        dtype: Any = None,
        device: Any = None,
        _internal: Any = None,
    ) -> None:
        if wrap_storage is not None:
            return self._over(wrap_storage._memory, dtype or _C.get_default_dtype())
        source = args[0] if len(args) == 1 else args if args else 0
        wanted = dtype or (source.dtype if isinstance(source, (Tensor, TypedStorage)) else None)
        memory = _memory_of(source, wanted or _C.get_default_dtype())
        self._over(memory, source._kind if isinstance(source, _Storage) else memory.dtype)

    @property
    def dtype(self) -> Any:
        return self._kind

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Returns the name of the class of its dtype; with a dtype, converts the elements."""
        if dtype is not None:
            return self._to(dtype)
        return f"{__name__.partition('.')[0]}.{self.pickle_storage_type()}"

    def pickle_storage_type(self) -> str:
        for name, dtype in LEGACY.items():
            if dtype == self.dtype:
                return name
        raise KeyError(f"dtype {self.dtype} is not recognized: no class of storages is named after it")

    def _facts(self) -> str:
        return f"dtype={self.dtype}, "

    def untyped(self) -> UntypedStorage:
        return UntypedStorage(self)

    @classmethod
    def from_file(cls, filename: str, shared: bool, size: int) -> Any:
        """``size`` elements of a file, mapped into memory, as ``UntypedStorage.from_file`` does."""
        if cls is TypedStorage:
            raise RuntimeError("from_file can only be called on derived classes")
        width = cls.dtype.itemsize  # type: ignore[attr-defined]
        return cls(wrap_storage=UntypedStorage.from_file(filename, shared, size * width))

    @classmethod
    def _kind_of_buffer(cls, dtype: Any) -> Any:
        own = vars(cls).get("dtype")
        return own if isinstance(own, _C.dtype) else dtype or _C.get_default_dtype()


class QuantizedStorage(TypedStorage):
    """The integers of a quantised tensor."""

    def __init__(self, elements: Any, dtype: Any) -> None:
        self._quantized = dtype
        super().__init__(elements)

    @property
    def dtype(self) -> Any:
        return self._quantized

    def pickle_storage_type(self) -> str:
        return next(name for name, dtype in quantized_storages().items() if dtype is self._quantized)


def quantized_storages() -> dict[str, Any]:
    """Returns the quantised dtypes by the names of their storage classes in checkpoints."""
    from . import _types

    names = {"QUInt8Storage": "quint8", "QInt8Storage": "qint8", "QInt32Storage": "qint32",
             "QUInt4x2Storage": "quint4x2"}  # fmt: skip
    return {name: getattr(_types, dtype) for name, dtype in names.items()}


def _memory_of(source: Any, dtype: Any) -> Tensor:
    """Returns a tensor over the memory of a tensor or storage, of so many elements, or with the elements
    of a sequence.
    """
    if isinstance(source, Tensor):
        return source
    if isinstance(source, _Storage):
        return source._memory
    if isinstance(source, int):
        return _C.functions.empty([source], dtype=dtype)
    return _C.tensor(list(source), dtype=dtype)


def _elements_of(buffer: Any, byte_order: str | None, count: int, offset: int, dtype: Any) -> Tensor:
    """Returns a tensor with the elements of a buffer that has this order of bytes."""
    view, width = memoryview(buffer).cast("B"), dtype.itemsize
    if not 0 <= offset <= len(view):
        raise ValueError(
            f"from_buffer: the offset must be between 0 and the length of the buffer, {len(view)}: {offset}"
        )
    if dtype not in (_C.uint8, _C.int8) and byte_order not in ("big", "little", "native"):
        raise ValueError(
            f"from_buffer: the order of bytes of {dtype} is 'big', 'little' or 'native', not {byte_order!r}"
        )
    rest = len(view) - offset
    if count < 0 and rest % width:
        raise ValueError(f"from_buffer: {rest} bytes are no multiple of {width}, the bytes of a {dtype}")
    if count * width > rest:
        raise ValueError(f"from_buffer: {rest} bytes hold {rest // width} elements of {dtype}, not {count}")
    data = bytearray(view[offset : offset + (rest if count < 0 else count * width)])
    part = width // 2 if dtype.is_complex else width  # of a complex number, both parts are turned round
    if byte_order not in (None, "native", sys.byteorder):
        parts = [data[k::part] for k in range(part)]
        for k in range(part):
            data[k::part] = parts[part - 1 - k]
    if not data:
        return _C.functions.empty([0], dtype=dtype)
    elements = _C.frombuffer(data, dtype=_C.uint8)
    return elements != 0 if dtype == _C.bool else elements.clone().view(dtype)


LEGACY = {
    "FloatStorage": _C.float32,
    "DoubleStorage": _C.float64,
    "HalfStorage": _C.float16,
    "BFloat16Storage": _C.bfloat16,
    "LongStorage": _C.int64,
    "IntStorage": _C.int32,
    "ShortStorage": _C.int16,
    "CharStorage": _C.int8,
    "ByteStorage": _C.uint8,
    "BoolStorage": _C.bool,
    "ComplexFloatStorage": _C.complex64,
    "ComplexDoubleStorage": _C.complex128,
}


class _Maker(type):
    """The metaclass of ``FloatStorage`` and others: creates typed storages of one dtype, and supports
    isinstance.
    """

    dtype: Any

    def __call__(cls, *args: Any, **options: Any) -> TypedStorage:
        return TypedStorage(*args, dtype=cls.dtype, **options)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype == cls.dtype


TYPE_CHECKING = False
if TYPE_CHECKING:
    BFloat16Storage = BoolStorage = ByteStorage = CharStorage = ComplexDoubleStorage = TypedStorage
    ComplexFloatStorage = DoubleStorage = FloatStorage = HalfStorage = IntStorage = TypedStorage
    LongStorage = ShortStorage = TypedStorage

for _name, _dtype in LEGACY.items():
    globals()[_name] = _Maker(
        _name, (TypedStorage,), {"dtype": _dtype, "__module__": __name__.partition(".")[0]}
    )


def _load_from_bytes(b: bytes) -> Any:
    """Pickles refer to a storage by this name."""
    from .serialization import load

    return load(io.BytesIO(b), weights_only=False)
