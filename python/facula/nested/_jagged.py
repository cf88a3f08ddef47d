"""NestedTensor: consecutive values, and the position where each row begins."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions


# By the identity of the offsets, which lengths without holes keep alive as long as they are here.
_owners: weakref.WeakValueDictionary[int, _Ragged] = weakref.WeakValueDictionary()


class _Ragged:
    """The length of a ragged dimension, equal only to itself. Row i has elements begins[i] to ends[i]."""

    _numbers = itertools.count(1)

    def __init__(self, offsets: Tensor, lengths: Tensor | None = None) -> None:
        self.offsets, self.given = offsets, lengths
        self._number = 0
        if lengths is None:
            _owners[id(offsets)] = self

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    def __repr__(self) -> str:
        self._number = self._number or next(_Ragged._numbers)
        return f"j{self._number}"

    @functools.cached_property
    def begins(self) -> Tensor:
        return self.offsets[:-1].to(_C.int64)

    @functools.cached_property
    def lengths(self) -> Tensor:
        return self.offsets.to(_C.int64).diff() if self.given is None else self.given.to(_C.int64)

    @functools.cached_property
    def ends(self) -> Tensor:
        return self.begins + self.lengths

    @functools.cached_property
    def longest(self) -> int:
        return int(self.lengths.max()) if len(self) else 0

    @functools.cached_property
    def rows(self) -> Tensor:
        """The row of each element."""

        return _f.repeat_interleave(_f.arange(len(self)), self.lengths)

    @functools.cached_property
    def within(self) -> Tensor:
        """The position of each element in its row."""
        before = self.lengths.cumsum(0) - self.lengths
        return _f.arange(self.rows.shape[0]) - before[self.rows]

    def fills(self, n: int) -> bool:
        """Returns whether the rows are consecutive and all have ``n`` elements."""
        return self.given is None and len(self) > 0 and self._ends == (0, n)

    @functools.cached_property
    def _ends(self) -> tuple[int, int]:
        return int(self.offsets[0]), int(self.offsets[-1])


_by_offsets: dict[int, tuple[Any, _Ragged]] = {}


def ragged_of(lengths: Tensor | None, offsets: Tensor | None = None) -> _Ragged:
    """Returns the ragged length for lengths or offsets: the same object for the same offsets tensor."""
    if offsets is None:
        zero = _f.zeros((1,), dtype=_C.int64)
        return _Ragged(_f.cat([zero, lengths.to(_C.int64).cumsum(0)]))  # type: ignore[union-attr]
    if lengths is not None:
        return _Ragged(offsets, lengths)
    owner = _owners.get(id(offsets))
    if owner is not None and owner.offsets is offsets:  # of another nested tensor, whose offsets() these are
        return owner
    offsets_ref, cached = _by_offsets.get(id(offsets), (None, None))
    if cached is not None and offsets_ref() is not None:
        return cached
    ragged = _Ragged(offsets.view(offsets.shape))  # another object, so that the entry goes with the given one
    key = id(offsets)
    _by_offsets[key] = (weakref.ref(offsets, lambda _: _by_offsets.pop(key, None)), ragged)
    return ragged


class _Size(tuple):
    """A shape with a ragged dimension."""

    def __repr__(self) -> str:
        return f"{_C.package_name()}.Size([{', '.join(map(repr, self))}])"


class NestedTensor(Tensor):
    """Rows of different lengths, created by the functions of :mod:`facula.nested`.

    ``_ragged_idx`` is the ragged dimension, whose size is a symbol that is equal only to itself.
    """

    _values: Tensor
    _ragged: _Ragged
    _ragged_idx: int

    def values(self) -> Tensor:
        """Returns the elements of all rows, one row after the other; differentiable."""
        return self._values

    def offsets(self) -> Tensor:
        """Returns the positions where rows begin, and where the last one ends: [rows + 1]."""
        return self._ragged.offsets

    def lengths(self) -> Tensor | None:
        """Returns the length of each row if there are gaps between the rows; else None."""
        return self._ragged.given

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Returns the rows."""
        if _dim("unbind", self, dim) != 0:
            raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
        both = zip(self._ragged.begins.tolist(), self._ragged.lengths.tolist())
        return tuple(self._values.narrow(self._ragged_idx - 1, a, n) for a, n in both)

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """Returns the rows as a dense tensor, padded with ``padding``."""
        n = self._ragged.longest if output_size is None else output_size[self._ragged_idx]
        y = _padded(self, padding, n)
        for d, size in enumerate(output_size or ()):
            if d in (0, self._ragged_idx):
                continue
            if size < y.shape[d]:
                raise RuntimeError(
                    f"to_padded_tensor: output_size {tuple(output_size)} is less than {y.shape}"
                )
            if size > y.shape[d]:
                more = [*y.shape[:d], size - y.shape[d], *y.shape[d + 1 :]]
                y = _f.cat([y, _f.full(more, padding, dtype=y.dtype)], d)
        return y

    # Overridden as methods: their arguments are parsed before overrides of subclasses are called.
    def view(self, *shape: Any) -> NestedTensor:  # type: ignore[override]
        return _rules["view"](Tensor.view, self, *shape)

    def reshape(self, *shape: Any) -> NestedTensor:  # type: ignore[override]
        return _rules["view"](Tensor.reshape, self, *shape)

    def expand(self, *shape: Any) -> NestedTensor:  # type: ignore[override]
        return _rules["expand"](Tensor.expand, self, *shape)

    def tolist(self) -> list:
        return [row.tolist() for row in self.unbind()]

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def __repr__(self) -> str:  # type: ignore[override]
        grad = f", grad_fn={self._values.grad_fn}" if self._values.grad_fn is not None else ""
        grad = grad or (", requires_grad=True" if self._values.requires_grad else "")
        return (
            f"NestedTensor(size={tuple(_shape(self))}, offsets={self._ragged.offsets}{grad}, "
            f"contiguous={_is_contiguous(self)})"
        )

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _again, (self._values, self._ragged.offsets, self._ragged.given, self._ragged_idx)

    def __deepcopy__(self, memo: dict) -> NestedTensor:
        import copy

        return memo.setdefault(id(self), _like(self, copy.deepcopy(self._values, memo)))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            return _property(func, args)
        short = name.strip("_")
        rule = _rules.get(name) or _rules.get(short)
        if rule is not None:
            return rule(func, *args, **kwargs)
        if short in _pointwise():
            return _elementwise(func, name, args, kwargs)
        raise _refused(name)


def _refused(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name}: not supported for nested tensors\n"
        "  hint: values() and to_padded_tensor(padding) give tensors that all functions take"
    )


def _nested(values: Tensor, ragged: _Ragged, axis: int) -> NestedTensor:
    nested = _C.make_subclass(NestedTensor, values.detach())
    nested.__dict__.update(_values=values, _ragged=ragged, _ragged_idx=axis)
    return nested


def _again(values: Tensor, offsets: Tensor, lengths: Tensor | None, axis: int) -> NestedTensor:
    return _nested(values, _Ragged(offsets, lengths), axis)


def _like(x: NestedTensor, values: Tensor, axis: int | None = None) -> NestedTensor:
    return _nested(values, x._ragged, x._ragged_idx if axis is None else axis)


def as_tensors(source: Any) -> list:
    return list(source.unbind(0)) if isinstance(source, Tensor) else list(source)


def lengths_of(x: NestedTensor) -> Tensor:
    return x._ragged.lengths


def _rank(x: NestedTensor) -> int:
    return x._values.dim() + 1


def _shape(x: NestedTensor) -> _Size:
    sizes = [len(x._ragged), *x._values.shape]
    sizes[x._ragged_idx] = x._ragged
    return _Size(sizes)


def _dim(name: str, x: NestedTensor, dim: int) -> int:
    n = _rank(x)
    if not -n <= dim < n:
        raise IndexError(
            f"{name}: Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})"
        )
    return dim % n


def _inner(name: str, x: NestedTensor, dim: int) -> int:
    """Returns the corresponding dimension of the values for one that is neither that of rows nor ragged."""
    d = _dim(name, x, dim)
    if d in (0, x._ragged_idx):
        raise RuntimeError(
            f"{name}(): not supported for NestedTensor on {'dim=0' if d == 0 else 'ragged dim'}"
        )
    return d - 1


def _is_contiguous(x: NestedTensor) -> bool:
    return x._ragged.given is None and x._values.is_contiguous() and x._ragged_idx == 1


def _packed(x: NestedTensor) -> Tensor:
    """Returns the elements of the rows without gaps, one row after the other."""
    r, n = x._ragged, x._values.shape[x._ragged_idx - 1]
    if r.fills(n):
        return x._values
    return x._values.index_select(x._ragged_idx - 1, r.begins[r.rows] + r.within)


def _padded(x: NestedTensor, fill: Any, n: int | None = None) -> Tensor:
    """[rows, ..., longest at the ragged dimension, ...]"""
    r, d = x._ragged, x._ragged_idx - 1
    n = r.longest if n is None else n
    if not x._values.shape[d]:
        sizes = [len(r), *x._values.shape]
        sizes[d + 1] = n
        return _f.full(sizes, fill, dtype=x._values.dtype)
    position = _f.arange(n)
    at = (r.begins.unsqueeze(1) + position).clamp(max=x._values.shape[d] - 1)
    there = position < r.lengths.unsqueeze(1)
    y = x._values.index_select(d, at.flatten()).unflatten(d, (len(r), n)).movedim(d, 0)
    shape = [1] * y.dim()
    shape[0], shape[d + 1] = len(r), n
    return y.masked_fill(~there.reshape(shape), fill)


def _of_padded(like: NestedTensor, y: Tensor, axis: int) -> NestedTensor:
    """Returns the elements of a padded tensor that belong to rows."""
    r = like._ragged
    lines = y.movedim(0, axis - 1).flatten(axis - 1, axis)
    at = r.rows * y.shape[axis] + r.within
    ragged = r if r.given is None and r._ends[0] == 0 else ragged_of(r.lengths)
    return _nested(lines.index_select(axis - 1, at), ragged, axis)


def _each_row(x: NestedTensor, t: Tensor) -> Tensor:
    """Aligns a dense operand with as many dimensions as x with the values of x."""
    r, axis = x._ragged, x._ragged_idx
    rows, n = t.shape[0], t.shape[axis]
    if rows == 1 and n == 1:
        return t.squeeze(0)
    if rows == len(r) and n == 1:
        holes = not r.fills(x._values.shape[axis - 1])
        if holes:
            raise NotImplementedError("a dense operand of one element for each row needs rows without holes")
        return t.squeeze(axis).index_select(0, r.rows).movedim(0, axis - 1)
    if n == r.longest and rows in (1, len(r)) and r.fills(x._values.shape[axis - 1]):
        full = t.expand(len(r), *t.shape[1:])
        return _of_padded(x, full, axis)._values
    raise ValueError


@functools.cache
def _pointwise() -> frozenset[str]:
    names = set(_SAME.split())
    for o in _C.operators():
        if o["kind"] == "pointwise" and not o["name"].startswith("_"):
            names |= {o["name"], *o["aliases"]}
    return frozenset(names)


# Further functions whose result has an element for each element: not pointwise, or under other names.
_SAME = """
    alpha_dropout bernoulli bfloat16 bool byte cdouble cfloat char conj cpu detach double
    dropout empty_like feature_dropout float full_like half int isclose logsigmoid long normal ones_like
    rand_like randn_like relu6 requires_grad resolve_conj resolve_neg short softsign tanhshrink to type
    uniform zeros_like
"""


def _elementwise(func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
    operands = [*args, *kwargs.values()]
    first = next((a for a in operands if isinstance(a, NestedTensor)), None)
    if first is None:
        raise _refused(name)

    def operand(a: Any) -> Any:
        if isinstance(a, NestedTensor):
            same = (
                a._ragged is first._ragged and a._ragged_idx == first._ragged_idx and _rank(a) == _rank(first)
            )
            if not same:
                raise RuntimeError(
                    f"cannot call binary pointwise function {name} with inputs of shapes "
                    f"{tuple(_shape(first))} and {tuple(_shape(a))}\n"
                    "  hint: nested_tensor_from_jagged(values, nt.offsets()) makes one whose rows fit"
                )
            return a._values
        if not isinstance(a, Tensor) or a.dim() == 0:
            return a
        try:
            if a.dim() == _rank(first):
                return _each_row(first, a)
            if a.dim() < _rank(first) - first._ragged_idx or a.shape[first._ragged_idx - _rank(first)] == 1:
                return a
        except ValueError:
            pass
        raise RuntimeError(
            f"cannot call binary pointwise function {name} with inputs of shapes {tuple(_shape(first))} and "
            f"{tuple(a.shape)}"
        )

    in_place = (
        name.endswith("_") and not name.startswith("__") or name in ("__iadd__", "__isub__", "__imul__")
    )
    result = func(*map(operand, args), **{k: operand(v) for k, v in kwargs.items()})
    if in_place:
        return args[0]
    if isinstance(result, tuple):
        return type(result)(_like(first, y) for y in result)
    return _like(first, result) if isinstance(result, Tensor) else result


# Attributes that are taken from the values.
_FACTS = """
    dtype device is_leaf grad_fn is_cuda is_cpu is_meta is_mps is_xpu is_quantized retains_grad output_nr
    requires_grad itemsize nbytes _version name is_sparse is_sparse_csr is_mkldnn
""".split()


def _property(func: Any, args: tuple) -> Any:
    x, name = args[0], getattr(func.__self__, "__name__", "")
    if func.__name__ == "__set__":
        if name == "requires_grad":
            x._values.requires_grad_(args[1])
        elif name == "grad":
            x._values.grad = None if args[1] is None else args[1]._values
        else:
            raise _refused(name)
        return None
    own: dict[str, Callable[[], Any]] = {
        "shape": lambda: _shape(x),
        "ndim": lambda: _rank(x),
        "layout": lambda: _C.jagged,
        "is_nested": lambda: True,
        "grad": lambda: None if x._values.grad is None else _like(x, x._values.grad),
        "data": lambda: _like(x, x._values.data),
    }
    if name in own:
        return own[name]()
    if name in ("real", "imag"):
        return _like(x, func(x._values))
    if name in _FACTS:
        return func(x._values)
    raise _refused(name)


_rules: dict[str, Callable[..., Any]] = {}


def rule(*names: str) -> Callable[[Callable], Callable]:
    def note(f: Callable) -> Callable:
        _rules.update(dict.fromkeys(names, f))
        return f

    return note


from . import _rules as _functions  # noqa: E402, F401  registers all others by name
