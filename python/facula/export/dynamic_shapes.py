"""``Dim`` and ``dynamic_shapes``: which sizes of an exported program may change, and within which bounds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _C
from ..utils._pytree import tree_leaves

__all__ = [
    "AdditionalInputs",
    "Constraint",
    "Dim",
    "ShapesCollection",
    "ValueRanges",
    "dims",
    "refine_dynamic_shapes_from_suggested_fixes",
]

INFINITE = 2**63 - 1
_MOST = 1 << 60  # the largest size that a graph of a program may have


class _Hint:
    """``Dim.AUTO``, ``Dim.STATIC`` and ``Dim.DYNAMIC``; a call gives one with bounds."""

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        self.kind, self.min, self.max = kind, min, max

    def __call__(self, *, min: int | None = None, max: int | None = None) -> _Hint:
        if self.kind == "STATIC":
            raise TypeError("Dim.STATIC has no bounds")
        return _Hint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = "" if self.min is self.max is None else f"(min={self.min}, max={self.max})"
        return f"Dim.{self.kind}{bounds}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hint) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class Dim:
    """The name of a size that may change, within bounds, for ``dynamic_shapes``. The same Dim at several
    places means that these sizes are equal. ``Dim.AUTO``: may change if the module allows it;
    ``Dim.DYNAMIC``: must be able to change; ``Dim.STATIC``: is fixed.

    >>> batch = Dim("batch", min=2, max=8)
    >>> batch.__name__, batch.max
    ('batch', 8)
    """

    AUTO, STATIC, DYNAMIC = _Hint("AUTO"), _Hint("STATIC"), _Hint("DYNAMIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, INFINITE if max is None else max
        if high <= low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, low, high

    def __mul__(self, factor: int) -> Dim:
        return _DerivedDim(self, factor, 0)

    __rmul__ = __mul__

    def __add__(self, offset: int) -> Dim:
        return _DerivedDim(self, 1, offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> Dim:
        return _DerivedDim(self, 1, -offset)

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"


class _DerivedDim(Dim):
    """``factor*root + offset``."""

    def __init__(self, root: Dim, factor: int, offset: int) -> None:
        if type(factor) is not int or type(offset) is not int or factor <= 0:
            raise NotImplementedError(
                f"Dim: only positive whole factors and whole offsets of {root.__name__}"
            )
        if isinstance(root, _DerivedDim):
            root, factor, offset = root.root, root.factor * factor, root.offset * factor + offset
        self.root, self.factor, self.offset = root, factor, offset
        sign = f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""
        self.__name__ = f"{factor}*{root.__name__}{sign}" if factor != 1 else root.__name__ + sign
        self.min = root.min * factor + offset
        self.max = INFINITE if root.max == INFINITE else root.max * factor + offset


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Returns a Dim for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ValueRanges(NamedTuple):
    """The least and the largest value of a size."""

    lower: int
    upper: float

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper in (INFINITE, float('inf')) else self.upper}]"


class Constraint(NamedTuple):
    """A size of an input: the number of the tensor, its dimension, and its symbol or number."""

    tensor: int
    dim: int
    size: Any


class Symbol:
    """A size of an exported program that may change.

    Attributes:
        name: in the graph, ``s0``
        dim: the Dim that the user passed, or None for Dim.AUTO and Dim.DYNAMIC
        where: the argument that has it: ``"size 0 of x"``
        hint: the size in the example
        low, high: bounds; ``chosen`` is true if the user passed them
    """

    def __init__(self, name: str, dim: Any, where: str, hint: int) -> None:
        self.name, self.where, self.hint = name, where, hint
        self.dim = dim if isinstance(dim, Dim) else None
        self.required = (
            dim == Dim.DYNAMIC or isinstance(dim, _Hint) and dim.kind == "DYNAMIC" or self.dim is not None
        )
        self.low = dim.min or 0
        self.high = INFINITE if dim.max is None else dim.max
        self.chosen = (self.low, self.high) != (0, INFINITE)

    @property
    def title(self) -> str:
        return f"Dim {self.dim.__name__}" if self.dim else self.where

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self.name)


class ShapesCollection:
    """``dynamic_shapes`` by tensor: ``collection[tensor] = {0: Dim("batch")}``."""

    def __init__(self) -> None:
        self._by_tensor: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        if not isinstance(t, _C.Tensor):
            raise TypeError(f"Cannot assign shape to non-tensor type {type(t)}")
        self._by_tensor[id(t)] = t, shape

    def __getitem__(self, t: Any) -> Any:
        return self._by_tensor[id(t)][1]

    def __len__(self) -> int:
        return len(self._by_tensor)

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict | None = None) -> Any:
        """Returns the specification in the structure of the arguments."""
        from ..utils._pytree import tree_map

        def shape(x: Any) -> Any:
            return self._by_tensor[id(x)][1] if id(x) in self._by_tensor else None

        return {name: tree_map(shape, x) for name, x in arguments_by_name(m, args, kwargs or {}).items()}


class AdditionalInputs:
    """Example inputs whose sizes differ from those of export: sizes that differ may change."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple, dict]] = []

    def add(self, args: tuple, kwargs: dict | None = None) -> None:
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict | None = None) -> Any:
        from ..utils._pytree import tree_flatten, tree_unflatten

        first = arguments_by_name(m, args, kwargs or {})
        leaves, spec = tree_flatten(first)
        others = [tree_leaves(arguments_by_name(m, *e)) for e in self._examples]
        shapes = []
        for k, x in enumerate(leaves):
            varying = isinstance(x, _C.Tensor) and [
                Dim.DYNAMIC if any(o[k].size(d) != x.size(d) for o in others) else None
                for d in range(x.dim())
            ]
            shapes.append(tuple(varying) if varying else None)
        return tree_unflatten(shapes, spec)


def arguments_by_name(m: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Returns the arguments of a call of a module by the names of the parameters of its ``forward``."""
    signature = inspect.signature(getattr(m, "forward", m))
    return dict(signature.bind(*args, **kwargs).arguments)


def sizes_of_inputs(
    m: Any, args: tuple, kwargs: dict, dynamic_shapes: Any
) -> tuple[list[list], dict[str, Symbol]]:
    """Returns the sizes of each tensor among the arguments, numbers or Symbols, and the symbols by name."""
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(m, args, kwargs)
    by_name = arguments_by_name(m, args, kwargs)
    if dynamic_shapes is None or isinstance(dynamic_shapes, (tuple, list)) and not dynamic_shapes:
        specs = [None] * len(by_name)
    elif isinstance(dynamic_shapes, dict):
        if set(dynamic_shapes) != set(by_name):
            raise UserError(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                f"{list(by_name)} of `inputs`, but here they are {list(dynamic_shapes)}. Alternatively, "
                f"you could also "
                "ignore arg names entirely and specify `dynamic_shapes` as a list/tuple matching `inputs`."
            )
        specs = [dynamic_shapes[name] for name in by_name]
    else:
        specs = list(dynamic_shapes)
        if len(specs) != len(by_name):
            raise UserError(
                f"dynamic_shapes has {len(specs)} items, and the module takes the arguments {list(by_name)}"
            )
    symbols: dict[str, Symbol] = {}
    by_tensor: dict[int, list] = {}
    for (name, value), spec in zip(by_name.items(), specs):
        for tensor, of_tensor, path in _pairs(value, spec, name):
            by_tensor[id(tensor)] = _tensor_sizes(tensor, of_tensor, path, symbols)
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, _C.Tensor)]
    return [by_tensor.get(id(t)) or list(t.shape) for t in tensors], symbols


class UserError(RuntimeError):
    """An error in the arguments of export, or a module that cannot be exported with them."""


def _pairs(value: Any, spec: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Yields the tensors in an argument with their specifications."""
    if isinstance(value, _C.Tensor):
        yield value, spec, path
    elif spec is None or isinstance(spec, (_Hint, Dim)):
        for leaf in tree_leaves(value):
            if isinstance(leaf, _C.Tensor):
                yield leaf, None, path
            elif (
                isinstance(spec, (_Hint, Dim))
                and spec != Dim.STATIC
                and isinstance(leaf, int)
                and leaf is value
            ):
                raise NotImplementedError(
                    f"export: the integer argument {path} as {spec}: numbers are constants of an exported "
                    f"program\n"
                    "  hint: pass it as a tensor, or as the size of a tensor"
                )
    elif isinstance(value, dict):
        for key, x in value.items():
            yield from _pairs(x, _item(spec, key, path), f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        if len(spec) != len(value):
            raise UserError(
                f"dynamic_shapes: {path} has {len(value)} items, and its specification {len(spec)}"
            )
        for k, x in enumerate(value):
            yield from _pairs(x, spec[k], f"{path}[{k}]")
    else:
        leaves = [x for x in tree_leaves(value) if isinstance(x, _C.Tensor)]
        shapes = list(spec) if isinstance(spec, (list, tuple)) else [spec] * len(leaves)
        yield from ((x, s, path) for x, s in zip(leaves, shapes, strict=True))


def _item(spec: Any, key: Any, path: str) -> Any:
    if not isinstance(spec, dict) or key not in spec:
        raise UserError(f"dynamic_shapes: {path} has the key {key!r}, which its specification {spec!r} lacks")
    return spec[key]


def _tensor_sizes(t: Any, spec: Any, path: str, symbols: dict[str, Symbol]) -> list:
    sizes: list[Any] = list(t.shape)
    if spec is None or isinstance(spec, _Hint):
        entries = {} if spec is None or spec.kind == "STATIC" else dict.fromkeys(range(t.dim()), spec)
    elif isinstance(spec, dict):
        entries = spec
    elif isinstance(spec, (tuple, list)) and len(spec) == t.dim():
        entries = dict(enumerate(spec))
    else:
        raise UserError(
            f"dynamic_shapes: expected a dict, or {t.dim()} entries, for the sizes of {path}, got {spec!r}"
        )
    for d, dim in entries.items():
        if not -t.dim() <= d < t.dim():
            raise UserError(
                f"dynamic_shapes: {path} has {t.dim()} dimensions, and its specification names {d}"
            )
        d %= t.dim()
        if isinstance(dim, int) and not isinstance(dim, bool) and dim != sizes[d]:
            raise UserError(
                f"dynamic_shapes: size {d} of {path} is {sizes[d]} in the example, and {dim} here"
            )
        if isinstance(dim, Dim) or isinstance(dim, _Hint) and dim.kind != "STATIC":
            sizes[d] = _symbol(dim, f"size {d} of {path}", sizes[d], symbols)
        elif dim is not None and not isinstance(dim, (int, _Hint)):
            raise UserError(f"dynamic_shapes: {dim!r} for size {d} of {path}: expected a Dim, None or an int")
    return sizes


def _symbol(dim: Any, where: str, size: int, symbols: dict[str, Symbol]) -> Symbol:
    if isinstance(dim, Dim):
        for s in symbols.values():
            if s.dim is not None and s.dim.__name__ == dim.__name__:
                if s.hint != size:
                    raise UserError(
                        f"{where} is {size}, and {s.where} is {s.hint}; both are Dim {dim.__name__}"
                    )
                return s
    symbol = Symbol(f"s{len(symbols)}", dim, where, size)
    if not symbol.low <= size <= symbol.high:
        raise UserError(f"{where} is {size}, and {symbol.title} is from {symbol.low} to {symbol.high}")
    symbols[symbol.name] = symbol
    return symbol


def hints_for(symbols: dict[str, Symbol], numbers: set[int]) -> dict[str, int]:
    """Returns a size for each symbol to trace with: that of the example, unless it is 0 or 1, which a
    program might take for sizes that broadcast.
    """
    hints = {name: s.hint for name, s in symbols.items()}
    for name, s in symbols.items():
        if s.hint < 2 and s.high >= 2:
            n = max(2, s.low)
            while n in numbers or n in hints.values():
                n += 1
            hints[name] = n if n <= s.high else max(2, s.low)
    return hints


def bounds(s: Symbol) -> tuple[int, int]:
    return s.low, min(s.high, _MOST)


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    raise NotImplementedError(
        "refine_dynamic_shapes_from_suggested_fixes: change dynamic_shapes as the error suggests"
    )


Find = Callable[[Any], Any]
