"""Functions on tensors that are no operators: questions, comparisons, conveniences over operators, random
state.
"""

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
    """Is it the memory of tensors, as bytes or elements?"""
    from .storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def is_floating_point(input: Tensor) -> bool:
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    return input.is_complex()


def is_conj(input: Tensor) -> bool:
    """Is it a view of the conjugates of its memory, as ``conj()`` gives it?"""
    return input.is_conj()


def is_neg(input: Tensor) -> bool:
    """Is it a view of the negatives of its memory, as the imaginary part of a ``conj()`` is?"""
    return input.is_neg()


def is_nonzero(input: Tensor) -> bool:
    """Is the only element non-zero?"""
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: expected one element, got shape {list(input.shape)}")
    return bool(input.item())


def numel(input: Tensor) -> int:
    return input.numel()


def typename(obj: Any) -> str:
    """The name of a class, or of an object's; of a tensor, its dtype's as well: facula.FloatTensor."""
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
    """Is every element close (isclose)?"""
    return bool(_f.isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Have both the same shape and elements?"""
    if input.shape != other.shape:
        return False
    if input.ndim and input.numel() > 1 << 17:  # most that differ do so at the beginning
        rows = max(1, (input.shape[0] << 14) // input.numel())
        if not (input[:rows] == other[:rows]).all():
            return False
    return bool((input == other).all())


# ---- positions


def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Positions of the non-zero elements: int64 ``[count, rank]``, or with ``as_tuple`` a vector for each
    dimension.

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
    """The common shape that these broadcast to."""
    return _C.broadcast_shapes(*shapes)


def _as_equation(given: tuple) -> tuple[str, tuple]:
    """Of einsum(a, [0, 1], b, [1, 2], [0, 2]): numbers and Ellipsis name dimensions."""
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
    """Sum of products in Einstein's notation, e.g. ``einsum("ij,jk->ik", a, b)``; operands also as one
    list, or in turn with lists of numbers of their dimensions.
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
    """The p-norms of the differences of all pairs of points ``[*, n, width]`` and ``[*, m, width]``.

    >>> facula.cdist(facula.zeros(1, 2), facula.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5., 1.]])
    """
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    return _C.ops._cdist_forward(x1, x2, float(p), modes.index(compute_mode))


def _several(tensors: tuple) -> Any:
    """The tensors that a function was given one by one, or as one list."""
    return tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of all tensors with their common shape."""
    return _f.broadcast_tensors(_several(tensors))


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of a grid from one vector for each dimension; 'xy' exchanges the first two dimensions."""
    return _f.meshgrid(_several(tensors), indexing=indexing)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of vectors, one a row."""
    return _f.cartesian_prod(tensors)


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """The tensor, or each of several, as a vector where it is 0-d."""
    return _f.atleast_1d(tensors[0] if len(tensors) == 1 else tensors)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """The tensor, or each of several, as a matrix of one row where it has fewer dimensions."""
    return _f.atleast_2d(tensors[0] if len(tensors) == 1 else tensors)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """The tensor, or each of several, with dimensions of size 1 in front and behind, up to 3."""
    return _f.atleast_3d(tensors[0] if len(tensors) == 1 else tensors)


def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """vstack under its older name."""
    return _f.vstack(tensors, out=out)


def adjoint(input: Tensor) -> Tensor:
    """Matrices in the last two dimensions transposed and conjugated: ``input.mH``."""
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
    """May a value of one dtype become another without losing its kind (bool, integer, real, complex)?"""

    def kind(d: Any) -> int:
        return 3 if d.is_complex else 2 if d.is_floating_point else 0 if d == _C.bool else 1

    return kind(from_) <= kind(to)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule over the tensor's memory."""
    return tensor.__dlpack__()


# ---- random state


def initial_seed() -> int:
    """The seed of the default generator."""
    return _C.default_generator.initial_seed()


def seed() -> int:
    """Seeds the default generator from the machine's entropy."""
    return _C.default_generator.seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, a uint8 tensor."""
    return _C.default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    _C.default_generator.set_state(new_state)


_namespace.overridable(
    globals(), lambda f: f.__name__ not in ("is_tensor", "is_storage", "typename", "einsum")
)
