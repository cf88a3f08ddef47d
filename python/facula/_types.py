"""Classes of PyTorch's native module that programs name in annotations, ``isinstance`` and ``except``.

No object is an instance of TorchScript's types or of symbolic numbers other than SymInt, so that
``isinstance`` gives False.
"""

from __future__ import annotations

from . import _C


def _public(kind: type) -> type:
    """The class, which shows the package as its home."""
    kind.__module__ = __package__ or kind.__module__
    return kind


@_public
class OutOfMemoryError(RuntimeError):
    """An accelerator has no memory left. The CPU's allocator raises RuntimeError."""


@_public
class Future:
    """The base of ``futures.Future``."""


@_public
class ScriptModule:
    """A module of TorchScript."""


@_public
class SymFloat:
    """A number of a recorded program; numbers that are not integers are Python's here."""


@_public
class SymBool:
    """A condition of a recorded program; conditions are Python's here."""


@_public
class JitType:
    """A type of TorchScript."""


def _type_of_script(name: str) -> type:
    return _public(type(name, (JitType,), {"__doc__": "A type of TorchScript."}))


AnyType = _type_of_script("AnyType")
BoolType = _type_of_script("BoolType")
DeviceObjType = _type_of_script("DeviceObjType")
DictType = _type_of_script("DictType")
FloatType = _type_of_script("FloatType")
IntType = _type_of_script("IntType")
ListType = _type_of_script("ListType")
NoneType = _type_of_script("NoneType")
NumberType = _type_of_script("NumberType")
OptionalType = _type_of_script("OptionalType")
StringType = _type_of_script("StringType")
TensorType = _type_of_script("TensorType")
TupleType = _type_of_script("TupleType")


class _QuantizedDtype:
    """A dtype of quantised tensors (_quantized.py)."""

    is_floating_point = is_complex = False
    is_signed = True
    __module__ = __package__  # checkpoints refer to the dtypes by it

    def __init__(self, name: str, itemsize: int) -> None:
        self._name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"{_C.package_name()}.{self._name}"

    def __reduce__(self) -> str:
        return self._name


qint8, quint8, quint4x2, quint2x4 = (_QuantizedDtype(n, 1) for n in "qint8 quint8 quint4x2 quint2x4".split())
qint32 = _QuantizedDtype("qint32", 4)
