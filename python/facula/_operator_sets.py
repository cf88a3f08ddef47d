"""Two sets of operators, and the way from the large one to the small one.

A compiler may keep every operator that is not defined by calls of others: :func:`kept`. A back end needs
:data:`SMALL`. The definition of a pointwise or loop operator is an expression for one element of its result
(``loop/expr.h``); :func:`decompose` computes it with operators of the small set, on tensors that have one
dimension for each variable of the expression.

>>> facula._operator_sets.decompose("silu", facula.tensor([0.0, 2.0]))[0]
tensor([0.0000, 1.7616])
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from . import _C

F = _C.functions

# Scalar functions of expressions, by the operators that compute them; the same name where none is given.
_SCALAR: dict[str, str] = dict.fromkeys(
    """
    neg abs sign floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv sigmoid relu isnan isinf real imag
    add sub mul remainder fmod pow atan2 fmax fmin copysign eq ne lt le gt ge gcd
    """.split(),
    "",
) | {
    "bit_not": "bitwise_not",
    "bit_and": "bitwise_and",
    "bit_or": "bitwise_or",
    "bit_xor": "bitwise_xor",
    "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift",
    "max": "maximum",
    "min": "minimum",
    "conj": "conj_physical",
    "ndtr": "special_ndtr",
}
_STRUCTURAL = """
    arange full empty reshape expand permute slice clone index_select index_put where to div clamp sum prod
    amax amin any all as_strided view_as_real view_as_complex cat scatter_reduce
""".split()
# Operators of libraries that have no definition by elements, and those that draw random numbers.
_LIBRARY = """
    mm bmm convolution sort topk linalg_svd linalg_eigh linalg_eig linalg_lu_factor linalg_lu_solve
    linalg_cholesky linalg_householder_product geqrf _fft_c2c _fft_r2c _fft_c2r nonzero _rng_take _randperm
    linalg_ldl_factor linalg_ldl_solve searchsorted
""".split()

SMALL = frozenset([*(n or k for k, n in _SCALAR.items()), *_STRUCTURAL, *_LIBRARY])


def kept() -> list[str]:
    """Returns the names of the operators that graphs may contain after composites are expanded."""
    kinds = ("pointwise", "loop", "library", "view", "data_dependent")
    return sorted({o["name"] for o in _C.operators() if o["kind"] in kinds and "_backward" not in o["name"]})


class _Parser:
    """Reads the text form of an expression into nested tuples: (head, bound variables, operands)."""

    _TOKENS = re.compile(
        r"\s*((?:load|cast|reduce|scan|part|size)\[[^\]]*\]|%\d+|-?inf:\w+|nan:\w+"
        r"|-?[\d.]+(?:e[-+]?\d+)?(?::\w+)?|\w+|[(),;<=])"
    )

    def __init__(self, text: str) -> None:
        *lines, last = text.strip().split("\n")
        self.named: dict[str, Any] = {}
        for line in lines:
            name, _, definition = line.strip().partition(" = ")
            self.named[name] = self._read(definition)
        self.tree = self._read(last)

    def _read(self, text: str) -> Any:
        self.tokens, self.at = self._TOKENS.findall(text), 0
        return self._expression()

    def _take(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def _expression(self) -> Any:
        head = self.tokens[self.at]
        self.at += 1
        if head in self.named:
            return self.named[head]
        if head == "(":  # a complex number
            real = self._expression()
            self._take(",")
            imaginary = self._expression()
            self._take(")")
            return ("complex", [], [real, imaginary])
        if not self._take("("):
            return (head, [], [])
        bound, operands = [], []
        while not self._take(")"):
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1] == "<":
                name = self.tokens[self.at]
                self.at += 2
                bound.append((name, self._expression()))
            else:
                operands.append(self._expression())
            self._take(",") or self._take(";")
        return (head, bound, operands)


_IDENTITIES = {"sum": 0, "prod": 1, "any": False, "all": True}


class _Evaluator:
    """Computes expressions on tensors with a dimension for each variable in `order`."""

    def __init__(self, operands: list, sizes: dict[str, int]) -> None:
        self.operands, self.order, self.sizes = operands, list(sizes), dict(sizes)
        self.cache: dict[Any, Any] = {}

    def value(self, tree: Any) -> Any:
        key = (id(tree), len(self.order))
        if key not in self.cache:
            self.cache[key] = (tree, self._value(*tree))
        return self._aligned(self.cache[key][1])

    def _aligned(self, t: Any) -> Any:
        while isinstance(t, _C.Tensor) and t.dim() < len(self.order):
            t = t.reshape([*t.shape, 1])
        return t

    def _number(self, text: str) -> Any:
        if text in ("true", "false"):
            return self._constant(text == "true", _C.bool)
        number, _, dtype = text.partition(":")
        kind = getattr(_C, dtype) if dtype else _C.int64
        return self._constant(float(number) if kind.is_floating_point else int(number), kind)

    def _constant(self, number: Any, dtype: Any) -> Any:
        return F.full([1] * len(self.order), number, dtype=dtype)

    def _variable(self, name: str) -> Any:
        k = self.order.index(name)
        shape = [1] * len(self.order)
        shape[k] = self.sizes[name]
        return F.arange(self.sizes[name]).reshape(shape)

    def _value(self, head: str, bound: list, operands: list) -> Any:
        name, _, detail = head.rstrip("]").partition("[")
        if re.fullmatch(r"i\d+", head):
            return self._variable(head)
        if name == "size":
            return self._constant(int(detail), _C.int64)
        if not operands and not bound and name != "load":
            return self._number(head)
        if name == "load":
            return self._load(detail, [self.value(x) for x in operands])
        if name == "reduce":
            return self._reduce(detail, bound, operands, None)
        if name == "scan":
            monoid, axis = detail.split(", ")
            return self._reduce(monoid, bound, operands, f"i{axis}")
        values = [self.value(x) for x in operands]
        if name == "part":
            return values[0][int(detail)] if isinstance(values[0], tuple) else values[0]
        return self._call(name, detail, values)

    def _call(self, name: str, detail: str, values: list) -> Any:
        if name == "cast":
            return values[0].to(getattr(_C, detail)).to(_compute(getattr(_C, detail)))
        if name == "select":
            return F.where(*values)
        if name in ("check", "within"):
            i, n = values
            return F.where(i < 0, i + n, i) if name == "check" else i
        if name == "divisor":
            return F.where(values[0] == 0, F.full([], 1, dtype=values[0].dtype), values[0])
        if name == "div":
            return F.div(*values)
        if name in ("floordiv", "truncdiv"):
            return F.div(*values, rounding_mode="floor" if name == "floordiv" else "trunc")
        if name == "fma":
            return values[0] * values[1] + values[2]
        if name == "complex":
            return F.view_as_complex(F.cat([v.reshape([*v.shape, 1]) for v in values], -1))
        if name not in _SCALAR:
            raise NotImplementedError(f"the function {name} of expressions has no operator in the small set")
        return getattr(F, _SCALAR[name] or name)(*values)

    def _load(self, detail: str, indices: list) -> Any:
        slot, _, rest = detail.partition(":")
        operand = self.operands[int(slot)]
        dtype, _, component = rest.partition(".")
        if not isinstance(operand, _C.Tensor):
            return self._constant(operand, _compute(getattr(_C, dtype)))
        if not operand.dim():
            t = operand.reshape([1] * max(len(self.order), 0))
        elif operand.numel() == 0:
            t = F.full([1] * len(self.order), 0, dtype=operand.dtype)
        else:
            flat = self._constant(0, _C.int64)
            for i, n in zip(indices, operand.shape, strict=True):
                flat = flat * n + F.clamp(i, 0, n - 1)
            t = F.index_select(operand.reshape([-1]), 0, flat.reshape([-1])).reshape(flat.shape)
        if component:
            t = t.real if component == "re" else t.imag
        return t.to(_compute(t.dtype))

    def _reduce(self, monoid: str, bound: list, operands: list, axis: str | None) -> Any:
        outer, count = list(self.order), len(self.order)
        mask = None
        for name, extent in bound:
            size = (
                self.sizes[axis]
                if axis
                else int(self.value(extent).max())
                if count
                else int(self.value(extent))
            )
            self.order.append(name)
            self.sizes[name] = size
        values = [self.value(x) for x in operands]
        if axis:
            mask = self._variable(bound[0][0]) <= self._variable(axis)
        shape = [max(v.shape[d] for v in values) for d in range(len(self.order))]
        for d, (name, _) in enumerate(bound, count):
            shape[d] = self.sizes[name]
        if axis:
            shape[outer.index(axis)] = self.sizes[axis]
        values = [v.expand(shape) for v in values]
        self.order = outer
        self.cache = {k: v for k, v in self.cache.items() if k[1] <= count}
        return _fold(monoid, values, mask, list(range(count, len(shape))))


def _compute(dtype: Any) -> Any:
    small = (_C.float16, _C.bfloat16)
    return _C.float32 if dtype in small else _C.complex64 if dtype is _C.complex32 else dtype


def _lowest(dtype: Any, sign: int) -> Any:
    if dtype.is_floating_point:
        return sign * math.inf
    return 0 if dtype is _C.bool else (_C.iinfo(dtype).min if sign < 0 else _C.iinfo(dtype).max)


def _fold(monoid: str, values: list, mask: Any, dims: list[int]) -> Any:
    x = values[0]
    empty = math.prod(x.shape[d] for d in dims) == 0
    if monoid in _IDENTITIES:
        if mask is not None:
            x = F.where(mask, x, F.full([], _IDENTITIES[monoid], dtype=x.dtype))
        if monoid == "prod":
            for d in reversed(dims):
                x = F.prod(x, d, dtype=x.dtype)
            return x
        if monoid == "sum":
            return F.sum(x, dims, dtype=x.dtype)
        return (F.any if monoid == "any" else F.all)(x, dims)
    if monoid in ("max", "min"):
        sign = -1 if monoid == "max" else 1
        if mask is not None:
            x = F.where(mask, x, F.full([], _lowest(x.dtype, sign), dtype=x.dtype))
        if empty:
            return F.full(
                [n for d, n in enumerate(x.shape) if d not in dims], _lowest(x.dtype, sign), dtype=x.dtype
            )
        return (F.amax if monoid == "max" else F.amin)(x, dims)
    raise NotImplementedError(f"a fold over the monoid {monoid} has no form in the small set")


def decompose(name: str, *args: Any, **kwargs: Any) -> tuple:
    """Returns the results of a pointwise, loop or library operator, by operators of the small set."""
    operands, results, texts, scatter = _C.lower_operator(name, *args, **kwargs)
    if scatter is not None:
        return (_scattered(operands, results[0], scatter),)
    outputs = []
    for (sizes, dtype), text in zip(results, texts):
        names = {f"i{d}": n for d, n in enumerate(sizes)}
        if 0 in sizes:
            outputs.append(F.empty(list(sizes), dtype=dtype))
            continue
        value = _Evaluator(operands, names).value(_Parser(text).tree)
        outputs.append(value.expand(list(sizes)).to(dtype).clone() if sizes else value.reshape([]).to(dtype))
    return tuple(outputs)


def _scattered(operands: list, result: tuple, scatter: tuple) -> Any:
    (sizes, dtype), (combine, base, domain, targets, text) = result, scatter
    names = {f"i{d}": n for d, n in enumerate(domain)}
    into = (
        operands[base].to(_compute(dtype)).clone()
        if base >= 0
        else F.full(list(sizes), 0, dtype=_compute(dtype))
    )
    if 0 in domain or 0 in sizes:
        return into.to(dtype)
    value = _Evaluator(operands, names).value(_Parser(text).tree).expand(list(domain)).reshape([-1])
    flat = F.full([1] * len(domain), 0, dtype=_C.int64)
    for target, n in zip(targets, sizes):
        flat = flat * n + _Evaluator(operands, names).value(_Parser(target).tree)
    flat = flat.expand(list(domain)).reshape([-1])
    if combine == "assign":
        raise NotImplementedError("writes of several values to one place have no form in the small set")
    kind = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}[combine]
    value = value.to(into.dtype)
    return F.scatter_reduce(into.reshape([-1]), 0, flat, value, kind).reshape(list(sizes)).to(dtype)


def decomposition_of(name: str) -> Callable:
    """Returns the function that computes an operator by the small set."""
    return lambda *args, **kwargs: decompose(name, *args, **kwargs)
