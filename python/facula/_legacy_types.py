"""torch.FloatTensor and similar classes: constructors of tensors of one dtype, which also support
isinstance.
"""

from __future__ import annotations

from typing import Any

from . import _C
from ._C import Tensor


class _Maker(type):
    dtype: Any

    def __call__(cls, *args: Any) -> Tensor:
        if not args:
            return _C.functions.empty([0], dtype=cls.dtype, device="cpu")
        if all(isinstance(a, int) and not isinstance(a, bool) for a in args):
            return _C.functions.empty(list(args), dtype=cls.dtype, device="cpu")
        if len(args) == 1 and isinstance(args[0], _C.Size):
            return _C.functions.empty(list(args[0]), dtype=cls.dtype, device="cpu")
        if len(args) != 1:
            raise TypeError(
                f"{cls.__name__}() takes sizes, a sequence or a tensor, got {len(args)} arguments"
            )
        if isinstance(args[0], Tensor):
            if args[0].dtype != cls.dtype:
                raise TypeError(f"expected {cls.dtype} (got {args[0].dtype}); convert it with .to()")
            return args[0].detach()
        return _C.tensor(args[0], dtype=cls.dtype, device="cpu")

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype


TYPE_CHECKING = False
if TYPE_CHECKING:
    BFloat16Tensor = BoolTensor = ByteTensor = CharTensor = DoubleTensor = FloatTensor = Tensor
    HalfTensor = IntTensor = LongTensor = ShortTensor = Tensor

_KINDS = {
    "FloatTensor": _C.float32,
    "DoubleTensor": _C.float64,
    "HalfTensor": _C.float16,
    "BFloat16Tensor": _C.bfloat16,
    "LongTensor": _C.int64,
    "IntTensor": _C.int32,
    "ShortTensor": _C.int16,
    "CharTensor": _C.int8,
    "ByteTensor": _C.uint8,
    "BoolTensor": _C.bool,
}
for _name, _dtype in _KINDS.items():
    globals()[_name] = _Maker(_name, (), {"dtype": _dtype, "__module__": "facula"})


def maker_of(dtype: Any) -> Any:
    """Returns the constructor of tensors of a dtype."""
    for name, d in _KINDS.items():
        if d == dtype:
            return globals()[name]
    raise TypeError(
        f"new: {dtype} has no maker; use {_C.package_name()}.tensor or {_C.package_name()}.empty with dtype="
    )


class _SparseMaker(type):
    """Constructors of sparse tensors from indices, values and sizes."""

    dtype: Any

    def __call__(cls, *args: Any) -> Tensor:
        from .sparse import sparse_coo_tensor

        if len(args) < 2:
            raise TypeError(f"{cls.__name__}() takes indices, values and a size")
        return sparse_coo_tensor(args[0], args[1], *args[2:3], dtype=cls.dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        sparse = isinstance(instance, Tensor) and instance.layout == _C.sparse_coo
        return sparse and instance.dtype == cls.dtype  # type: ignore[attr-defined]


def sparse_maker(name: str) -> Any:
    """Returns ``facula.sparse.FloatTensor`` and similar constructors; None for other names."""
    dtype = _KINDS.get(name)
    return dtype and _SparseMaker(name, (), {"dtype": dtype, "__module__": "facula.sparse"})


def set_default_tensor_type(t: Any) -> None:
    """Sets the default floating dtype, by a constructor of tensors or its name: ``facula.DoubleTensor``."""
    if isinstance(t, str):
        t = globals().get(t.rpartition(".")[2])
    if not isinstance(t, _Maker):
        raise TypeError(
            f"invalid type object: expected a maker as {_C.package_name()}.FloatTensor, or its name"
        )
    _C.set_default_dtype(t.dtype)
