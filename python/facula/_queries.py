"""Functions on tensors that are not operators: queries, comparisons, convenience functions, random state."""

from __future__ import annotations

from . import _C, _namespace
from ._C import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_f = _C.functions


def is_tensor(obj: object) -> bool:
    return isinstance(obj, Tensor)


def is_storage(obj: object) -> bool:
    """Returns whether ``obj`` is the storage of a tensor, as bytes or elements."""
    from .storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def is_floating_point(input: Tensor) -> bool:
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    return input.is_complex()


def is_conj(input: Tensor) -> bool:
    """Returns whether the tensor is a lazily conjugated view, as ``conj()`` returns."""
    return input.is_conj()


def is_neg(input: Tensor) -> bool:
    """Returns whether the tensor is a lazily negated view, such as the imaginary part of a ``conj()``."""
    return input.is_neg()


def is_nonzero(input: Tensor) -> bool:
    """Returns whether the only element is not zero."""
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: expected one element, got shape {list(input.shape)}")
    return bool(input.item())


def numel(input: Tensor) -> int:
    return input.numel()


def typename(obj: Any) -> str:
    """Returns the name of a class or of an object's class; for a tensor including its dtype:
    facula.FloatTensor.
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") and hasattr(obj, "__module__") else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _TypeFacts:
    _read: Any
    _shown: tuple[str, ...]

    def __init__(self, type: Any = None) -> None:
        facts = self._read(_C.get_default_dtype() if type is None else type)
        for name, value in facts.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        facts = ((n, getattr(self, n)) for n in self._shown)
        return (
            f"{type(self).__name__}("
            + ", ".join(f"{n}={v:g}" if isinstance(v, float) else f"{n}={v}" for n, v in facts)
            + ")"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.dtype)


class finfo(_TypeFacts):
    """Limits of a floating type: bits, eps, min, max, tiny, resolution."""

    _read = staticmethod(_C.finfo_of)
    _shown = ("resolution", "min", "max", "eps", "smallest_normal", "tiny", "dtype")


class iinfo(_TypeFacts):
    """Limits of an integer type: bits, min, max."""

    _read = staticmethod(_C.iinfo_of)
    _shown = ("min", "max", "dtype")


# ---- comparing


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Returns whether every element is close (isclose)."""
    return bool(_f.isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Returns whether both have the same shape and elements."""
    if input.shape != other.shape:
        return False
    if input.ndim and input.numel() > 1 << 17:  # most unequal tensors differ at the beginning
        rows = max(1, (input.shape[0] << 14) // input.numel())
        if not (input[:rows] == other[:rows]).all():
            return False
    return bool((input == other).all())


# ---- positions


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Returns the positions of non-zero elements: int64 ``[count, rank]``, or with ``as_tuple`` a vector
    for each dimension.

    >>> facula.nonzero(facula.tensor([0, 5, 3]))
    tensor([[1],
            [2]])
    >>> facula.nonzero(facula.tensor([0, 5, 3]), as_tuple=True)
    (tensor([1, 2]),)
    """
    if as_tuple:
        return _f.where(input)
    return _C.ops.nonzero(input) if out is None else _C.ops.nonzero(input, out=out)


# ---- shapes


def broadcast_shapes(*shapes: Any) -> Any:
    """Returns the common shape after broadcasting."""
    return _C.broadcast_shapes(*shapes)


def _as_equation(given: tuple) -> tuple[str, tuple]:
    """Converts the form einsum(a, [0, 1], b, [1, 2], [0, 2]), in which numbers and Ellipsis name
    dimensions.
    """
    if not all(isinstance(t, Tensor) for t in given[: len(given) // 2 * 2 : 2]):
        raise TypeError("einsum(): operands and lists of their dimensions must come in turn")

    def text(dims: Any) -> str:
        for d in dims:
            if d is not Ellipsis and not 0 <= d < 52:
                raise RuntimeError(f"einsum(): subscripts must be in the range [0, 52), but got {d}")
        return "".join(
            "..." if d is Ellipsis else "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[d]
            for d in dims
        )

    n = len(given) // 2
    equation = ",".join(text(given[2 * k + 1]) for k in range(n))
    return equation + ("->" + text(given[-1]) if len(given) % 2 else ""), given[: 2 * n : 2]


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Returns a sum of products in Einstein's notation, e.g. ``einsum("ij,jk->ik", a, b)``; operands may
    also be one list, or alternate with lists of their dimensions' numbers.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if _C.has_torch_function((equation, *operands)):  # which see the operands one by one
        return _C.handle_torch_function(einsum, (equation, *operands), equation, *operands)
    if isinstance(equation, Tensor):
        equation, operands = _as_equation((equation, *operands))
    return _f.einsum(equation, list(operands))


einsum.asks_overrides = True  # type: ignore[attr-defined]


def cdist(
    x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Tensor:
    """Returns the p-norms of the differences of all pairs of points ``[*, n, width]`` and ``[*, m,
    width]``.

    >>> facula.cdist(facula.zeros(1, 2), facula.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    return _C.ops._cdist_forward(x1, x2, float(p), modes.index(compute_mode))


def _several(tensors: tuple) -> Any:
    """Returns the tensors, which may be separate arguments or one list."""
    return tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Returns views of all tensors with their common shape."""
    return _f.broadcast_tensors(_several(tensors))


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Returns the coordinates of a grid from one vector for each dimension; 'xy' swaps the first two
    dimensions.
    """
    return _f.meshgrid(_several(tensors), indexing=indexing)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Returns all combinations of the elements of vectors, one per row."""
    return _f.cartesian_prod(tensors)


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Returns each tensor with at least one dimension."""
    return _f.atleast_1d(tensors[0] if len(tensors) == 1 else tensors)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Returns each tensor with at least two dimensions; a vector becomes a matrix of one row."""
    return _f.atleast_2d(tensors[0] if len(tensors) == 1 else tensors)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Returns each tensor with at least three dimensions; dimensions of size 1 are added in front and
    behind.
    """
    return _f.atleast_3d(tensors[0] if len(tensors) == 1 else tensors)


def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """vstack under its former name."""
    return _f.vstack(tensors, out=out)


def adjoint(input: Tensor) -> Tensor:
    """Returns transposed and conjugated matrices: ``input.mH``."""
    return input.mH


def result_type(*operands: Tensor | complex, **named: Tensor | complex) -> Any:
    """The dtype of an arithmetic result of two: tensors with dimensions before 0-d ones before numbers.

    By keyword they are ``tensor``, ``tensor1`` or ``scalar``, and ``other``, ``tensor2`` or ``scalar2``.
    """
    names = ("tensor", "tensor1", "scalar", "scalar1", "other", "tensor2", "scalar2")
    given = [*operands, *(named[n] for n in names if n in named)]
    if len(given) != 2 or len(operands) + len(named) != 2:
        raise TypeError(
            f"result_type() takes two tensors or numbers, got {len(operands)} and {sorted(named)}"
        )
    a, b = (x.flatten()[:0] if isinstance(x, Tensor) and x.dim() else x for x in given)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a, b = _C.tensor(a), _C.tensor(b)
    return (a * b).dtype


def can_cast(from_: Any, to: Any) -> bool:
    """Returns whether a dtype can be cast to another one of the same or a wider kind (bool, int, real,
    complex).
    """

    def kind(d: Any) -> int:
        return 3 if d.is_complex else 2 if d.is_floating_point else 0 if d == _C.bool else 1

    return kind(from_) <= kind(to)


def to_dlpack(tensor: Tensor) -> Any:
    """Returns a DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()


# ---- random state


def initial_seed() -> int:
    """Returns the seed of the default generator."""
    return _C.default_generator.initial_seed()


def seed() -> int:
    """Seeds the default generator from the machine's entropy."""
    return _C.default_generator.seed()


def get_rng_state() -> Tensor:
    """Returns the state of the default generator, a uint8 tensor."""
    return _C.default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    _C.default_generator.set_state(new_state)


_namespace.overridable(
    globals(), lambda f: f.__name__ not in ("is_tensor", "is_storage", "typename", "einsum")
)
