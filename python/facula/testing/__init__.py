"""Comparison of tensors in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _C
from .._file_check import FileCheck as FileCheck

Tensor = _C.Tensor

# (rtol, atol) by dtype; other dtypes are compared exactly.
_TOLERANCES = {
    _C.float16: (1e-3, 1e-5),
    _C.bfloat16: (1.6e-2, 1e-5),
    _C.float32: (1.3e-6, 1e-5),
    _C.float64: (1e-7, 1e-7),
    _C.complex32: (1e-3, 1e-5),
    _C.complex64: (1.3e-6, 1e-5),
    _C.complex128: (1e-7, 1e-7),
}
# The dtype in which differences are computed; for others, their own dtype.
_WIDER = {
    **dict.fromkeys((_C.float16, _C.bfloat16, _C.float32), _C.float64),
    **dict.fromkeys((_C.complex32, _C.complex64), _C.complex128),
    **dict.fromkeys((_C.uint16, _C.uint32, _C.uint64), _C.int64),
    **dict.fromkeys(
        (_C.float8_e4m3fn, _C.float8_e5m2, _C.float8_e4m3fnuz, _C.float8_e5m2fnuz, _C.float8_e8m0fnu),
        _C.float64,
    ),
}


def _tolerances(a: Tensor, b: Tensor) -> tuple[float, float]:
    pairs = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (a, b)]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def _is_numpy(x: Any) -> bool:
    return type(x).__module__ == "numpy"


class _Comparison:
    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)

    def fail(self, text: str, at: str) -> None:
        if at:
            text += f"\n\nThe failure occurred for item {at}"
        if callable(self.msg):
            text = self.msg(text)
        elif self.msg is not None:
            text = self.msg
        raise AssertionError(text)

    def items(self, a: Any, b: Any, at: str) -> None:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                self.fail(
                    f"The keys of the mappings do not match: {sorted(map(str, a))} and {sorted(map(str, b))}",
                    at,
                )
            for k in a:
                self.items(a[k], b[k], f"{at}[{k!r}]")
        elif all(isinstance(x, Sequence) and not isinstance(x, (str, bytes)) for x in (a, b)):
            if len(a) != len(b):
                self.fail(f"The length of the sequences mismatch: {len(a)} != {len(b)}", at)
            for k, (x, y) in enumerate(zip(a, b)):
                self.items(x, y, f"{at}[{k}]")
        else:
            self.leaves(a, b, at)

    def leaves(self, a: Any, b: Any, at: str) -> None:
        if a is None or b is None:
            if not (a is None and b is None):
                self.fail(f"None mismatch: {a!r} is not {b!r}", at)
            return
        numbers = (bool, int, float, complex)
        kinds = [
            "number" if isinstance(x, numbers) else "array" if _is_numpy(x) else "tensor" for x in (a, b)
        ]
        for x, kind in zip((a, b), kinds):
            if kind == "tensor" and not isinstance(x, Tensor):
                raise TypeError(
                    f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}; "
                    "tensors, arrays, numbers and containers of them can be compared"
                )
        related = self.allow_subclasses and isinstance(a, Tensor) and isinstance(b, Tensor)
        if kinds[0] != kinds[1] or (kinds[0] == "tensor" and not related and type(a) is not type(b)):
            raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}.")
        x, y = (v.detach() if isinstance(v, Tensor) else _C.as_tensor(v) for v in (a, b))
        if kinds[0] == "number":
            if type(a) is not type(b) and self.check_dtype and isinstance(a, bool) != isinstance(b, bool):
                self.fail(f"The (d)types do not match: {type(a)} != {type(b)}.", at)
            kind = complex if complex in (type(a), type(b)) else float if float in (type(a), type(b)) else int
            wide = {complex: _C.complex128, float: _C.float64, int: _C.int64}[kind]
            x, y = _C.tensor(a, dtype=wide), _C.tensor(b, dtype=wide)
        self.tensors(x, y, at, x.dim() == 0 and y.dim() == 0, kinds[0] == "number")

    def sparse(self, a: Tensor, b: Tensor, at: str) -> None:
        """Compares the parts of sparse tensors of one layout."""
        kind = "COO" if a.is_sparse else "CSR" if a.is_sparse_csr else "CSC"
        if a.is_sparse and a.is_coalesced() != b.is_coalesced():
            a, b = a.coalesce(), b.coalesce()
        if a._nnz() != b._nnz():
            self.fail(
                f"The number of specified values in sparse {kind} tensors does not match: {a._nnz()} != "
                f"{b._nnz()}", at
            )  # fmt: skip
        exact = _Comparison(**{**vars(self), "rtol": 0.0, "atol": 0.0})
        compressed = {"CSR": ("crow_indices", "col_indices"), "CSC": ("ccol_indices", "row_indices")}
        for part in compressed.get(kind, ("indices",)):
            x, y = (t._indices() if a.is_sparse else getattr(t, part)() for t in (a, b))
            exact.tensors(x, y, at, False, False, f"Sparse {kind} {part}")
        self.tensors(a._values(), b._values(), at, False, False, f"Sparse {kind} values")

    def tensors(
        self, a: Tensor, b: Tensor, at: str, scalar: bool, number: bool, called: str = "Tensor-likes"
    ) -> None:
        if a.shape != b.shape:
            self.fail(f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.", at)
        if self.check_dtype and not number and a.dtype != b.dtype:
            self.fail(f"The values for attribute 'dtype' do not match: {a.dtype} != {b.dtype}.", at)
        if a.layout is not b.layout and self.check_layout:
            self.fail(f"The values for attribute 'layout' do not match: {a.layout} != {b.layout}.", at)
        if a.layout is not b.layout:
            a, b = a.to_dense(), b.to_dense()
        if a.layout is not _C.strided:
            self.sparse(a, b, at)
            return
        if self.check_stride and a.stride() != b.stride():
            self.fail(f"The values for attribute 'stride()' do not match: {a.stride()} != {b.stride()}.", at)
        rtol, atol = (self.rtol, self.atol) if self.rtol is not None else _tolerances(a, b)
        exact = rtol == 0 and atol == 0
        wide = _C.promote_types(a.dtype, b.dtype)
        wide = _WIDER.get(wide, wide)
        a, b = a.to(wide), b.to(wide)
        close = a == b
        real = wide.is_floating_point or wide.is_complex
        if self.equal_nan and real:
            close = close | ((a != a) & (b != b))
        if wide == _C.bool:
            a, b = a.long(), b.long()
        error = (a - b).abs()
        if not exact:
            close = close | (error.isfinite() & (error <= atol + rtol * b.abs()))
        if bool(close.all()):
            return
        what = "Scalars" if scalar else called
        lines = [f"{what} are not {'equal' if exact else 'close'}!", ""]
        count, total = int((~close).sum()), close.numel()
        if scalar:
            lines = [
                f"{what} are not {'equal' if exact else 'close'}!",
                "",
                f"Expected {b.item()} but got {a.item()}.",
            ]
        else:
            lines.append(f"Mismatched elements: {count} / {total} ({count / total:.1%})")
        relative = error / b.abs()
        for name, values, limit in (("absolute", error, atol), ("relative", relative, rtol)):
            flat = values.masked_fill(close, 0).reshape(-1)
            k = int(flat.argmax())
            place, rest = [], k
            for n in reversed(values.shape):
                place.insert(0, rest % n)
                rest //= n
            largest = flat[k]
            if name == "relative" and largest.is_floating_point():
                largest = largest.to(_C.float32)  # with the significant digits of the operands
            where = "" if scalar else f" at index {tuple(place)}"
            allowed = "" if exact else f" (up to {limit} allowed)"
            lines.append(
                f"{name.capitalize()} difference: {largest.item()}{allowed}"
                if scalar
                else f"Greatest {name} difference: {largest.item()}{where}{allowed}"
            )
        self.fail("\n".join(lines), at)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    Accepts tensors, arrays, numbers, and sequences and mappings of them. The default rtol and atol depend
    on the dtypes; integers and booleans are compared exactly.

    >>> facula.testing.assert_close(facula.tensor([1.0, 2.0]), facula.tensor([1.0, 2.0000001]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"Both 'rtol' and 'atol' must be either specified or omitted, but got rtol={rtol} and atol={atol}"
        )
    _Comparison(
        allow_subclasses=allow_subclasses, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype,
        check_layout=check_layout, check_stride=check_stride, msg=msg,
    ).items(actual, expected, "")  # fmt: skip


_RANGES = {_C.uint8: (0, 10), _C.bool: (0, 2)}


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Returns a tensor of random elements from ``low`` to ``high``: -9 to 9 for numbers, 0 to 9 for
    bytes.

    ``noncontiguous`` uses every second element of its memory, ``exclude_zero`` replaces 0 by a small
    number.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
    floating = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"noncontiguous={noncontiguous!r} and memory_format={memory_format!r}"
        )
    least, most = _RANGES.get(dtype, (-9, 9 if floating else 10))
    low, high = least if low is None else low, most if high is None else high
    if low != low or high != high:
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    if low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    wanted = (*sizes[:-1], sizes[-1] * 2) if noncontiguous and sizes else sizes
    f = _C.functions
    if floating:
        real = dtype.to_real() if dtype.is_complex else dtype
        limit = _C.finfo_of(real)["max"]
        low, high = max(low, -limit), min(high, limit)
        wide = _C.float64 if real == _C.float64 else _C.float32

        def parts() -> Tensor:
            return (f.rand(wanted, dtype=wide) * (high - low) + low).to(real)

        elements = f.complex(parts(), parts()) if dtype.is_complex else parts()
    else:
        facts = (0, 2) if dtype == _C.bool else None
        if facts is None:
            limits = _C.iinfo_of(dtype)
            facts = limits["min"], limits["max"] + 1
        start, end = max(int(-(-low // 1)), facts[0]), min(int(-(-high // 1)), facts[1])
        elements = f.randint(start, max(end, start + 1), wanted, dtype=_C.int64).to(dtype)
    if noncontiguous and sizes:
        elements = elements[..., ::2]
    elif memory_format is not None:
        elements = elements.clone(memory_format=memory_format)
    if exclude_zero:
        elements[elements == 0] = (
            _C.finfo_of(dtype.to_real() if dtype.is_complex else dtype)["tiny"] if floating else 1
        )
    return elements.requires_grad_() if requires_grad else elements


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """:func:`assert_close` under its former name: dtypes are not compared."""
    actual, expected = (x if isinstance(x, Tensor) else _C.tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        pairs = {_C.float16: (1e-3, 1e-3), _C.float32: (1e-4, 1e-5), _C.float64: (1e-5, 1e-8)}
        rtol, atol = max(pairs.get(t.dtype, (0.0, 0.0)) for t in (actual, expected))
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )
