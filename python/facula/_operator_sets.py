"""Two sets of operators, and the way from the large one to the small one.

A compiler may retain every operator that is not defined by calls of others: :func:`graph_operators`. A back
end needs :data:`SMALL`. The definition of a pointwise or loop operator is an expression for one element of
its result (``loop/expr.h``); :func:`decompose` computes it with operators of the small set, on tensors that
have one dimension for each variable of the expression.

>>> facula._operator_sets.decompose("silu", facula.tensor([0.0, 2.0]))[0]
tensor([0.0000, 1.7616])
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from . import _C

F = _C.functions

# Scalar functions of expressions, by the operators that compute them; the same name where none is given.
_SCALAR: dict[str, str] = dict.fromkeys(
    """
    neg abs floor ceil trunc round sqrt exp expm1 log log2 log10 log1p sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv isnan real imag
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
    "hurwitz_zeta": "special_zeta",
    "igamma": "",
    "igammac": "",
    "airy_ai": "special_airy_ai",
    "bessel_i0": "i0",
    "bessel_i0e": "special_i0e",
    "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e",
    "bessel_k0e": "special_scaled_modified_bessel_k0",
    "bessel_k1e": "special_scaled_modified_bessel_k1",
    **{f"bessel_k{n}": f"special_modified_bessel_k{n}" for n in (0, 1)},
    **{f"bessel_{f}": f"special_bessel_{f}" for f in ("j0", "j1", "y0", "y1")},
    **{f"chebyshev_{k}": f"special_chebyshev_polynomial_{k}" for k in "tuvw"},
    **{
        f: f"special_{f.partition('_')[0]}_polynomial_{f.partition('_')[2]}"
        for f in ("hermite_h", "hermite_he", "laguerre_l", "legendre_p")
    },
}
_STRUCTURAL = """
    arange full empty reshape expand clone index_select index_put where to div clamp sum prod
    amax amin any all as_strided view_as_complex complex cat scatter_reduce
""".split()
# Operators of libraries that have no definition by elements, and those that draw random numbers.
_LIBRARY = """
    convolution sort topk nonzero logcumsumexp geqrf ormqr linalg_householder_product linalg_svd
    linalg_eigh linalg_eig linalg_slogdet linalg_matrix_exp linalg_inv
    _linalg_lu_factor _lu_permutation _linalg_lu_solve _linalg_ldl_factor _linalg_ldl_solve
    _linalg_cholesky _linalg_cholesky_ex _cholesky_inverse _linalg_inv_ex _linalg_solve_ex _linalg_solve
    _linalg_inv_adjoint _linalg_cofactor _linalg_triangular _linalg_lstsq _fft_c2c _fft_r2c _fft_c2r
    _attention _recurrence _ctc_loss _linear_cross_entropy _rng_take _torch_random
    _randperm _uniform _normal _randint _log_gamma_proposal _poisson_proposal
    _binomial_proposal
""".split()


def _sign(x: Any) -> Any:
    if x.dtype.is_complex:
        return F.where(x == 0, x, F.div(x, F.abs(x)))
    negative = F.full([], -1 if x.dtype.is_signed else 0, dtype=x.dtype)
    return F.where(x < 0, negative, (x > 0).to(x.dtype))


# Scalar functions that others compute.
_IDENTITIES_OF_FUNCTIONS: dict[str, Callable] = {
    "reciprocal": lambda x: F.div(1, x),
    "rsqrt": lambda x: F.div(1, F.sqrt(x)),
    "exp2": lambda x: F.exp(x * math.log(2)),
    "relu": lambda x: F.where(x < 0, F.full([], 0, dtype=x.dtype), x),
    "sigmoid": lambda x: F.div(1, F.exp(-x) + 1),
    "isinf": lambda x: F.eq(F.abs(x), math.inf),
    "sign": lambda x: _sign(x),
    "fma": lambda x, y, z: x * y + z,
}
# Operators of libraries that others compute.
_COMPOSED: dict[str, Callable] = {
    "linalg_svdvals": lambda A, driver=None: _C.ops.linalg_svd(A, False)[1],
    "linalg_eigvalsh": lambda self, UPLO="L": _C.ops.linalg_eigh(self, UPLO)[0],
    "linalg_eigvals": lambda self: _C.ops.linalg_eig(self)[0],
    "linalg_det": lambda A: (lambda sign, log: sign * F.exp(log))(*_C.ops.linalg_slogdet(A)),
}

SMALL = frozenset([*(n or k for k, n in _SCALAR.items()), *_STRUCTURAL, *_LIBRARY])


_KINDS = ("pointwise", "loop", "library", "view", "data_dependent")


class Tag(Enum):
    """The sets of operators. ``core``: a back end needs it; ``intermediate``: graphs contain it after
    composites are expanded; ``pointwise``: an element of the result depends on one element of each operand.
    """

    core = 0
    intermediate = 1
    pointwise = 2


def graph_operators() -> list[str]:
    """Returns the names of the operators that graphs may contain after composites are expanded."""
    return sorted({o["name"] for o in _C.operators() if o["kind"] in _KINDS and "_backward" not in o["name"]})


@functools.cache
def _kinds() -> dict[str, str]:
    return {o["name"] + ("." + o["overload"] if o["overload"] else ""): o["kind"] for o in _C.operators()}


Tag.__module__ = __package__


def tags_of(full_name: str) -> list[Tag]:
    """Returns the tags of an operator, by its full name."""
    kind = _kinds().get(full_name)
    tags = [Tag.core] if full_name.partition(".")[0] in SMALL else []
    tags += [Tag.intermediate] if kind in _KINDS else []
    return tags + ([Tag.pointwise] if kind == "pointwise" else [])


def page() -> str:
    """Returns docs/operator_sets.md."""
    large = graph_operators()
    small = sorted(SMALL)
    rows = [" ".join(f"`{n}`" for n in names) for names in (small, large)]
    return f"""# Operator sets

Written by `python -m facula._operator_sets`.

A graph contains composites, which are functions of other operators, until they are expanded. What remains
are the {len(large)} operators that a compiler may retain (`facula.Tag.intermediate`): each has a definition.
A back end needs {len(small)} (`facula.Tag.core`): the others are decomposed into these by their definitions
(`facula._operator_sets.decompose`), which a test compares with eager results. Views are geometry: a back
end sees them as `as_strided`.

## The small set

{rows[0]}

## The large set

{rows[1]}
"""


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
        if head == "(":  # a complex number: (0, 1):complex64
            real, _, imaginary, _, dtype = self.tokens[self.at : self.at + 5]
            self.at += 5
            return (f"complex {real} {imaginary} {dtype}", [], [])
        if not self._take("("):
            return (head, [], [])
        bound, operands = [], []
        while not self._take(")"):
            if self._take(";"):
                continue
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1] == "<":
                name = self.tokens[self.at]
                self.at += 2
                bound.append((name, self._expression()))
            else:
                operands.append(self._expression())
            self._take(",")
        return (head, bound, operands)


_IDENTITIES = {"sum": 0, "prod": 1, "any": False, "all": True}


class _Evaluator:
    """Computes expressions on tensors with a dimension for each variable in `order`."""

    def __init__(self, operands: list, sizes: dict[str, int]) -> None:
        self.operands, self.order, self.sizes = operands, list(sizes), dict(sizes)
        self.results = list(sizes)
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
        if text.startswith("complex "):
            _, real, imaginary, dtype = text.split()
            number = complex(float(real), float(imaginary))
            return F.full([1] * len(self.order), number, dtype=getattr(_C, dtype))
        number, _, dtype = text.partition(":")
        kind = getattr(_C, dtype) if dtype else _C.int64
        return self._constant(float(number) if kind.is_floating_point else int(number), kind)

    def _constant(self, number: Any, dtype: Any) -> Any:
        wide = _C.float64 if dtype.is_floating_point else dtype
        return F.full([1] * len(self.order), number, dtype=wide).to(dtype)

    def _variable(self, name: str) -> Any:
        k = self.order.index(name)
        shape = [1] * len(self.order)
        shape[k] = self.sizes[name]
        return F.arange(self.sizes[name]).reshape(shape)

    def _value(self, head: str, bound: list, operands: list) -> Any:
        name, _, detail = head.rstrip("]").partition("[")
        if re.fullmatch(r"i\d+", head):
            return self._variable(head)
        if head == "position":
            at = self._constant(0, _C.int64)
            for variable in self.results:
                at = at * self.sizes[variable] + self._variable(variable)
            return at
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
        if name in ("remainder", "fmod") and not values[1].dtype.is_floating_point:
            values[1] = self._call("divisor", "", [values[1]])
        if name == "div":
            return F.div(*values)
        if name in ("floordiv", "truncdiv"):
            if not values[
                1
            ].dtype.is_floating_point:  # a side of a select that is not taken may divide by zero
                values[1] = self._call("divisor", "", [values[1]])
            return F.div(*values, rounding_mode="floor" if name == "floordiv" else "trunc")
        if name in _IDENTITIES_OF_FUNCTIONS:
            return _IDENTITIES_OF_FUNCTIONS[name](*values)
        if name == "complex":
            return F.complex(*values)
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
    from . import iinfo

    return dtype is not _C.bool and (iinfo(dtype).min if sign < 0 else iinfo(dtype).max)


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
    if mask is not None:
        raise NotImplementedError(f"a scan over the monoid {monoid} has no form in the small set")
    if monoid in ("argmax", "argmin", "argmax_pool"):
        best = (F.amin if monoid == "argmin" else F.amax)(x, dims, keepdim=True)
        at, is_best = values[1], (x == best) | (F.isnan(x) & F.isnan(best))
        far = F.full([], _lowest(at.dtype, 1), dtype=at.dtype)
        first = F.amin(F.where(is_best, at, far), dims)
        if monoid == "argmax_pool":
            last = F.amax(F.where(is_best, at, -far), dims)
            first = F.where(F.isnan(best).reshape(first.shape), last, first)
        return best.reshape(first.shape), first
    if monoid == "logsumexp":
        most = F.amax(x, dims, keepdim=True)
        return most.reshape([n for d, n in enumerate(x.shape) if d not in dims]), F.sum(F.exp(x - most), dims)
    if monoid == "welford":
        count = math.prod(x.shape[d] for d in dims)
        mean = F.div(F.sum(x, dims, True), count)
        rest = [n for d, n in enumerate(x.shape) if d not in dims]
        return mean.reshape(rest), F.sum((x - mean) * (x - mean), dims), F.full(rest, count, dtype=x.dtype)
    raise NotImplementedError(f"a fold over the monoid {monoid} has no form in the small set")


def decompose(name: str, *args: Any, **kwargs: Any) -> tuple:
    """Returns the results of a pointwise, loop or library operator, by operators of the small set."""
    if name in _COMPOSED:
        return (_COMPOSED[name](*args, **kwargs),)
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
        written = F.index_put(into.reshape([-1]), [flat], value.to(into.dtype))
        return written.reshape(list(sizes)).to(dtype)
    kind = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}[combine]
    value = value.to(into.dtype)
    return F.scatter_reduce(into.reshape([-1]), 0, flat, value, kind).reshape(list(sizes)).to(dtype)


if __name__ == "__main__":
    print(page(), end="")
