"""Tests generated from the registry: every operator, on its samples, for every dtype and layout it takes.

Values are held against an oracle that is not the kernel: NumPy where it has the function, what PyTorch gave
for the same numbers (tests/golden/operators.jsonl), and the loop interpreter, which evaluates the definition
in double precision.
"""

import json
import math
import re
import zlib
from math import prod

import facula._C as C
import numpy as np
import pytest
import scipy.special
from support import recording, sparse
from support.operators import (
    COMPLEX,
    FLOATING,
    LAYOUTS,
    SMALL,
    arguments,
    bits,
    call,
    cases,
    dtype_of,
    is_real_tensor,
    laid_out,
    largest,
    literal,
    numpy_arguments,
    random_like,
    to_numpy,
)

import facula as F

ALL = cases()
BY_NAME = {c.name: c for c in ALL}
GOLDEN: dict = {}
for line in recording.read("operators.jsonl").splitlines():
    row = json.loads(line)
    GOLDEN[row["op"], row["sample"], row["dtype"]] = row["results"]

# NumPy's name where it differs; other element-wise operators are looked up by their own.
_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
NUMPY = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "neg": "negative",
    "pow": "power",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "amax": "max",
    "amin": "min",
    "t": "transpose",
    "erf": lambda self: _erf(self),
    "erfc": lambda self: _erfc(self),
    "sigmoid": lambda self: 1 / (1 + np.exp(-self)),
    "rsqrt": lambda self: 1 / np.sqrt(self),
    "reciprocal": lambda self: 1 / self,
    "relu": lambda self: np.maximum(self, 0),
    "rsub": lambda self, other: other - self,
    "round": lambda self: np.round(self),
    "add": lambda self, other: self + other,
    "lerp": lambda self, end, weight: self + weight * (end - self),
    "clone": lambda self: self,
    "polygamma": lambda n, self: scipy.special.polygamma(n, self),
    "silu": lambda self: self / (1 + np.exp(-self)),
    "where": lambda condition, self, other: np.where(condition, self, other),
    "gather": lambda self, dim, index: np.take_along_axis(self, index, dim),
    "index_select": lambda self, dim, index: np.take(self, index, dim),
    "cat": lambda tensors, dim=0: np.concatenate([t for t in tensors if t.shape != (0,)], dim),
    "stack": lambda tensors, dim=0: np.stack(tensors, dim),
    "flip": lambda self, dims: np.flip(self, tuple(dims)),
    "mm": lambda self, mat2: self @ mat2,
    "bmm": lambda self, mat2: self @ mat2,
    "matmul": lambda self, other: self @ other,
    "nonzero": lambda self: np.argwhere(self),
    "softmax": lambda self, dim: np.exp(self) / np.exp(self).sum(dim, keepdims=True),
    "cumsum": lambda self, dim: np.cumsum(self, dim) if self.ndim else self,
    "cumprod": lambda self, dim: np.cumprod(self, dim) if self.ndim else self,
    "sort": lambda self, dim=-1, descending=False, stable=False: (
        np.sort(self, dim)[(slice(None),) * (dim % self.ndim) + (slice(None, None, -1 if descending else 1),)]
        if self.ndim
        else self
    ),
    "fft_fft": lambda self, n=None, dim=-1, norm=None: np.fft.fft(self, n, dim, norm),
    "fft_ifft": lambda self, n=None, dim=-1, norm=None: np.fft.ifft(self, n, dim, norm),
    "fft_rfft": lambda self, n=None, dim=-1, norm=None: np.fft.rfft(self, n, dim, norm),
}
ELEMENTWISE = {
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "abs",
    "sign",
    "square",
    "floor",
    "ceil",
    "trunc",
    "round",
    "isnan",
    "isinf",
    "isfinite",
    "maximum",
    "minimum",
    "copysign",
    "remainder",
    "fmod",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "floor_divide",
}

# Outputs that nothing pins: uninitialised memory; bytes, which depend on the dtype that the tests vary
# (test_probes.py).
UNDEFINED = {
    "empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "_view_dtype", "view.dtype"
}  # fmt: skip
# The result that says which of equal elements was taken, where PyTorch's order is that of a partial sort.
UNSTABLE = {"topk": 1, "kthvalue": 1}
EPSILON = {
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
    "complex64": 2.0**-23,
    "complex128": 2.0**-52,
}
# A body of a dozen functions, each declared to be within 4 ULP at most, stays below this many units in the
# last place of the largest term; a sum of n terms has a tree of height log2(n). Results of 16 bits are
# rounded once, from float32.
ULPS = 48


def names(condition):
    return pytest.mark.parametrize("name", [c.name for c in ALL if condition(c)])


HIDDEN = {o["name"] for o in C.operators() if o["namespaces"] & 128}


def numpy_oracle(case, number, dtype):
    f = NUMPY.get(case.base, case.base if case.base in ELEMENTWISE else None)
    if f is None or "." in case.name or case.base == "prod":
        return None
    f = getattr(np, f) if isinstance(f, str) else f
    args = {}
    for name, x in numpy_arguments(case, number, dtype).items():
        args[name] = literal(x, F) if isinstance(x, str) else x
    if isinstance(f, np.ufunc):
        args = {k: v for k, v in args.items() if isinstance(v, (np.ndarray, int, float))}
        f_ = f
        f = lambda **kw: f_(*kw.values())  # noqa: E731
    if case.base in ("amax", "amin"):
        axis = tuple(args["dim"]) or None
        return f(args["self"], axis=axis if args["self"].ndim else None, keepdims=args["keepdim"])
    if case.base == "t":
        return f(args["self"])
    with np.errstate(all="ignore"):
        return np.asarray(f(**args))


def golden_oracle(case, number, dtype):
    if case.base == "polygamma":  # PyTorch's trigamma is 5e-10 off
        return []
    out = []
    for r in GOLDEN.get((case.name, number, dtype), ()):
        x = np.array(
            r["values"], dtype=np.float64 if r["dtype"] not in ("int64", "bool", "uint8") else np.int64
        )
        if r["dtype"] in COMPLEX:
            x = x.reshape(-1, 2)
            x = x[:, 0] + 1j * x[:, 1]
        out.append((r["dtype"], x.reshape(r["shape"])))
    return out


def interpreted(case, args):
    """The results of the definition itself, or None: composites and views have none."""
    if case.kind not in ("pointwise", "loop"):
        return None
    return list(C.inspect_interpret(case.name, *[], **args))


def close(got, want, dtype, terms=1, what=""):
    """`got` (a tensor) holds `want` (an array) within what its dtype can say."""
    x = to_numpy(got)
    assert x.shape == tuple(want.shape), f"{what}: shape {x.shape}, expected {tuple(want.shape)}"
    if dtype not in EPSILON or not np.issubdtype(x.dtype, np.inexact):
        np.testing.assert_array_equal(x, want, err_msg=what)
        return
    e = (
        EPSILON[dtype]
        * (ULPS if dtype not in ("float16", "bfloat16") else 2)
        * (1 + math.log2(max(terms, 1)))
    )
    finite = np.abs(want[np.isfinite(want)]) if want.size else np.zeros(0)
    scale = float(finite.max()) if finite.size else 1.0
    floor = 2.0**-24 if dtype == "float16" else 0.0
    np.testing.assert_allclose(
        x,
        want.astype(x.dtype if dtype != "bfloat16" or np.iscomplexobj(x) else np.float64),
        rtol=e,
        atol=e * scale + floor,
        err_msg=what,
    )


def terms_of(sample):
    return largest(sample)


def test_every_operator_has_samples():
    """Or, as samples are dense, is called by the programs with sparse tensors (test_sparse.py)."""
    called = "\n".join(map(str, sparse.PROGRAMS))
    unseen = [c.name for c in ALL if not c.samples and f"{c.name}(" not in called]
    # A product of float8 (test_rare_dtypes.py), two with tests of their own (test_sparse.py), one whose
    # scales are float32 beside any self (the script quantize.py), products of 8-bit integers
    # (test_quantization.py), and those of gradients and of sparse.sum, which the programs ask for.
    elsewhere = [
        "_scaled_mm",
        "_sparse_mm.reduce",
        "sparse_sampled_addmm",
        "fake_quantize_per_channel_affine",
        "_int_mm",
        "_int8_conv2d",
        "_int8_linear",
    ]
    called = ["_sparse_values", "_sparse_with_values", "_sparse_rows", "_sparse_sum", "_no_derivative"]
    assert {*unseen} == {*elsewhere, *called}


def test_every_operator_has_a_doc():
    # Operators of other namespaces are those that tests have added.
    ours = [o for o in C.operators() if "::" not in o["schema"].split("(")[0]]
    assert len(ours) > 1000
    assert [o["schema"] for o in ours if len(o["doc"]) < 4] == []


@names(lambda c: c.samples and not c.random and not c.writes and not {c.base, c.name} & UNDEFINED)
def test_values_in_float64(name):
    case = BY_NAME[name]
    dtype = "float64" if "float64" in case.dtypes else case.dtypes[-1]
    for number, sample in enumerate(case.samples):
        args = arguments(case, number, dtype)
        results = call(case, args)
        what = f"{name}, sample {number}"
        wide = dtype if dtype in EPSILON else "float64"
        for k, (recorded, want) in enumerate(golden_oracle(case, number, dtype)):
            assert dtype_of(results[k]) == recorded, what
            # An index into equal values, or a vector up to a factor, may differ; samples avoid both.
            close(
                results[k],
                want,
                coarser(wide, recorded) if recorded in EPSILON else recorded,
                1e3,
                f"{what}, result {k}, recorded",
            )
        expected = numpy_oracle(case, number, dtype)
        if expected is not None:
            close(
                results[0],
                expected,
                wide if dtype_of(results[0]) in EPSILON else dtype_of(results[0]),
                terms_of(sample),
                what + ", NumPy",
            )
        if largest(sample) <= 4096:
            slow = interpreted(case, args)
            for k, want in enumerate(slow or ()):
                close(
                    results[k],
                    to_numpy(want),
                    dtype_of(want),
                    terms_of(sample),
                    f"{what}, result {k}, interpreter",
                )


@names(lambda c: c.samples and not c.random and not c.writes and not {c.base, c.name} & UNDEFINED)
def test_values_in_every_dtype(name):
    """Against the interpreter, else against the same call in float64 or complex128."""
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        if not any(is_real_tensor(a) for a in sample.values()) or largest(sample) > 512:
            continue
        for dtype in case.dtypes:
            if dtype == "float64":
                continue
            args = arguments(case, number, dtype)
            what = f"{name}, sample {number}, {dtype}"
            try:
                results = call(case, args)
            except NotImplementedError:  # "not implemented for": by an operator that a composite calls
                assert case.kind in ("composite", "procedure"), what
                continue
            except (
                RuntimeError
            ) as e:  # a rule about dtypes that differ, or a number that the dtype cannot hold
                if (
                    case.kind not in ("composite", "procedure")
                    and "dtype" not in str(e)
                    and "integral" not in str(e)
                    and "not supported" not in str(e)
                ):
                    raise
                continue
            golden = golden_oracle(case, number, dtype)
            for k, (recorded, want) in enumerate(golden):
                assert dtype_of(results[k]) == recorded, what
                if k != UNSTABLE.get(case.base):
                    close(results[k], want, recorded, 1e3, f"{what}, result {k}, recorded")
            expected = interpreted(case, args)
            if (
                expected is None
                and dtype in FLOATING + COMPLEX
                and not set(case.dtypes).isdisjoint(("float64", "complex128"))
            ):
                wide = "complex128" if dtype in COMPLEX else "float64"
                exact = {k: raised(v, wide) for k, v in args.items()}
                expected = call(case, exact)
            for k, want in enumerate(expected or ()):
                if dtype_of(results[k]) in EPSILON:
                    close(
                        results[k],
                        to_numpy(want),
                        coarser(dtype, dtype_of(results[k])),
                        terms_of(sample),
                        f"{what}, result {k}",
                    )
                else:
                    close(results[k], to_numpy(want), dtype_of(results[k]), 1, f"{what}, result {k}")


def raised(v, dtype):
    if isinstance(v, list):
        return [raised(x, dtype) for x in v]
    return (
        v.to(getattr(F, dtype))
        if isinstance(v, F.Tensor) and (v.is_floating_point() or v.is_complex())
        else v
    )


def coarser(a, b):
    return max((x for x in (a, b) if x in EPSILON), key=EPSILON.__getitem__)


@names(
    lambda c: (
        c.samples
        and not c.random
        and not c.writes
        and not {c.base, c.name} & UNDEFINED
        and c.base.removesuffix("_copy").removesuffix("_scatter")
        not in ("as_strided", "view", "view_as", "view_as_complex")
    )
)
def test_values_in_every_layout(name):
    """Strides are nobody's business but the kernel's: the same numbers in any memory give the same
    results.
    """
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        if not any(a["kind"] != "literal" for a in sample.values()):
            continue
        for dtype in ("float32", "int32", "complex64"):
            if dtype not in case.dtypes or (dtype != "float32" and number != 1):
                continue
            for layout in LAYOUTS:
                if layout == "expanded" and any(a.get("positive_definite") for a in sample.values()):
                    continue
                args = arguments(case, number, dtype, layout)
                plain = {k: plainly(v) for k, v in args.items()}
                what = f"{name}, sample {number}, {dtype}, {layout}"
                try:
                    wanted = call(case, plain)
                except RuntimeError:
                    continue
                for k, (got, want) in enumerate(zip(call(case, args), wanted, strict=True)):
                    assert got.dtype == want.dtype, what
                    close(got, to_numpy(want), dtype, terms_of(sample), f"{what}, result {k}")


def plainly(v):
    if isinstance(v, list):
        return [plainly(x) for x in v]
    return v.contiguous().clone(memory_format=F.contiguous_format) if isinstance(v, F.Tensor) else v


@names(lambda c: c.samples and not c.writes and c.kind not in ("composite", "procedure", "data_dependent"))
def test_shape_and_dtype_rules_say_what_comes_out(name):
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        for dtype in case.dtypes if any(is_real_tensor(a) for a in sample.values()) else case.dtypes[-1:]:
            if largest(sample) > 512:
                continue
            args = arguments(case, number, dtype)
            try:
                results = call(case, args)
            except (RuntimeError, NotImplementedError):
                continue
            metas = C.inspect_meta(case.name, **args)
            assert [(tuple(s), d) for s, d in metas] == [(tuple(r.shape), r.dtype) for r in results], (
                f"{name}, sample {number}, {dtype}"
            )


@names(lambda c: c.samples and c.in_place and not c.random)
def test_in_place_form_gives_what_the_function_gives(name):
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        for dtype in ("float32", "int64"):
            if dtype not in case.dtypes or largest(sample) > 512:
                continue
            args = arguments(case, number, dtype)
            want = call(case, args)[0]
            me = args.pop(next(iter(sample)))
            method = getattr(me, case.base + "_", None)
            if method is None or want.shape != me.shape:
                continue
            before = me._version
            if want.dtype != me.dtype:
                if F.can_cast(want.dtype, me.dtype):
                    continue
                with pytest.raises(RuntimeError, match="can't be cast|requires dtype"):
                    method(**args)
                continue
            assert method(**args) is me
            assert bits(me) == bits(want), f"{name}_, sample {number}, {dtype}"
            assert me._version > before, f"{name}_"


@names(lambda c: c.samples and c.out and not c.random and not {c.base, c.name} & UNDEFINED)
def test_out_form_gives_what_the_function_gives(name):
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        if largest(sample) > 512:
            continue
        tried = [d for d in ("float32", "complex64", "int64") if d in case.dtypes] or [case.dtypes[-1]]
        for dtype in tried:
            check_out_form(case, number, arguments(case, number, dtype))


WITH_SIZES = {
    "softmax": lambda x, **out: F.softmax(x, 1, **out),
    "log_softmax": lambda x, **out: F.log_softmax(x, 1, **out),
    "logsumexp": lambda x, **out: F.logsumexp(x, 1, **out),
    "var": lambda x, **out: F.var(x, 1, **out),
    "norm": lambda x, **out: F.norm(x, 2, 1, **out),
    "nanmean": lambda x, **out: F.nanmean(x, 0, **out),
    "cat": lambda x, **out: F.cat([x, x], 1, **out),
    "addmm": lambda x, **out: F.addmm(x, x, F.eye(x.shape[1]), **out),
    "tensordot": lambda x, **out: F.tensordot(x, x, ([1], [1]), **out),
    "hstack": lambda x, **out: F.hstack([x, x], **out),
}


@pytest.mark.parametrize("name", WITH_SIZES)
def test_out_form_follows_the_sizes_of_each_call(name):
    f = WITH_SIZES[name]
    for rows, columns in ((3, 4), (2, 3), (5, 2), (7, 6)):
        x = F.arange(float(rows * columns)).reshape(rows, columns).sin()
        want = f(x)
        for out in (F.empty(want.shape), F.empty(0), F.empty(*want.shape, 2)[..., 0]):
            r = f(x, out=out)
            assert r is out and r.shape == want.shape and F.equal(r, want)


def check_out_form(case, number, args):
    try:
        results = call(case, args)
    except (RuntimeError, NotImplementedError):  # mean of integers
        return
    what = f"{case.name}, sample {number}"
    if len(results) > 1 or case.schema.endswith("[]"):  # a tuple, of which each is written
        outs = tuple(F.empty(0, dtype=r.dtype) for r in results)
        assert getattr(C.ops, case.base)(**args, out=outs) is outs, case.name
        assert all(bits(a) == bits(b) for a, b in zip(outs, results)), what
        return
    want = results[0]
    terms = terms_of(case.samples[number])
    for out in (
        F.empty(0, dtype=want.dtype),
        F.empty_like(want),
        laid_out(F.zeros(want.shape, dtype=want.dtype), "gaps", F),
    ):
        if out.numel() == 0 and want.numel() == 0 and out.shape != want.shape:
            continue
        r = getattr(C.ops, case.base)(**args, out=out)
        assert r is out, case.name
        if out.is_contiguous() == want.is_contiguous():
            assert bits(out) == bits(want), what
        close(out, to_numpy(want), dtype_of(want), terms, what)
    # Memory of a wider dtype gets the same values, or an error says that it does not.
    for wider in ("complex128",) if want.is_complex() else ("float64", "complex128"):
        out = F.empty(want.shape, dtype=getattr(F, wider))
        try:
            getattr(C.ops, case.base)(**args, out=out)
        except (RuntimeError, NotImplementedError) as e:
            said = (
                str(e).partition(":")[0].replace(".", "_")
            )  # hidden ones speak of a function that users call
            assert said == case.base or (case.base in HIDDEN and re.fullmatch("[a-z]\\w*[a-z0-9]", said)), e
            continue
        held = want.to(out.dtype).to(want.dtype)  # float64 does not hold every int64
        close(out.to(want.dtype), to_numpy(held), dtype_of(want), terms, f"{what}, out= of {wider}")


def differentiable(c):
    return (
        c.samples
        and c.differentiable
        and not c.random
        and not c.writes
        and c.compared
        and not {c.base, c.name} & UNDEFINED
        and "float64" in c.dtypes
    )


@names(differentiable)
def test_gradient_agrees_with_finite_differences(name):
    """<gradient, direction> against the central difference along that direction, in float64 and
    complex128.
    """
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        if largest(sample) > SMALL or sample.get("dtype", {}).get("literal") in (
            "float16",
            "int32",
        ):  # rounding is no slope
            continue
        for dtype in ("float64", "complex128"):
            if dtype not in case.dtypes:
                continue
            args = arguments(case, number, dtype)
            inputs = [
                t
                for v in args.values()
                for t in (v if isinstance(v, list) else [v])
                if isinstance(t, F.Tensor) and dtype_of(t) == dtype
            ]
            if not inputs or not any(t.numel() for t in inputs):
                continue
            check_direction(case, args, inputs, f"{name}, sample {number}, {dtype}")


# An operator without a derivative, which test_missing_derivatives.py lists.
NO_DERIVATIVE = re.compile("derivative for .* is not implemented")


def check_direction(case, args, inputs, what):
    rng = np.random.default_rng(zlib.crc32(what.encode()))

    def outputs():
        return [
            r
            for k, r in enumerate(call(case, args))
            if k not in case.non_differentiable and (r.is_floating_point() or r.is_complex())
        ]

    for t in inputs:
        t.requires_grad_()
    try:
        got = outputs()
    except RuntimeError as e:
        if inputs[0].is_complex() and ("not implemented" in str(e) or "complex" in str(e)):
            return
        raise
    got = [r for r in got if r.requires_grad]
    if not got:
        return
    along = [random_like(t, rng, case) for t in inputs]
    weights = [random_like(r, rng) for r in got]
    try:
        grads = F.autograd.grad(got, inputs, weights, allow_unused=True)
    except NotImplementedError as e:
        assert inputs[0].is_complex() or NO_DERIVATIVE.search(str(e)), what
        return
    for t, g in zip(inputs, grads, strict=True):
        assert g is None or (g.shape == t.shape and g.dtype == t.dtype), what
    analytic = sum(
        (np.vdot(to_numpy(g), to_numpy(d)).real for g, d in zip(grads, along, strict=True) if g is not None),
        0.0,
    )
    h = 1e-6
    keep = [t.detach().clone() for t in inputs]

    def value(step):
        with F.no_grad():
            for t, k, d in zip(inputs, keep, along, strict=True):
                t.copy_(k + d * step)
            r = [
                x
                for k, x in enumerate(call(case, args))
                if k not in case.non_differentiable and (x.is_floating_point() or x.is_complex())
            ]
            return sum(np.vdot(to_numpy(w), to_numpy(x)).real for w, x in zip(weights, r, strict=False))

    numeric = (value(h) - value(-h)) / (2 * h)
    assert analytic == pytest.approx(numeric, rel=2e-5, abs=2e-6, nan_ok=True), what


@names(differentiable)
def test_tangent_agrees_with_finite_differences(name):
    """What forward mode gives along a direction against the central difference along it."""
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        if largest(sample) > SMALL or sample.get("dtype", {}).get("literal") in ("float16", "int32"):
            continue
        for dtype in ("float64", "complex128"):
            if dtype in case.dtypes:
                check_tangent(
                    case, arguments(case, number, dtype), dtype, f"{name}, sample {number}, {dtype}"
                )


def check_tangent(case, args, dtype, what):
    rng = np.random.default_rng(zlib.crc32(what.encode()))
    directions = {}

    def moved(v, f):
        if isinstance(v, list):
            return [moved(x, f) for x in v]
        if not isinstance(v, F.Tensor) or dtype_of(v) != dtype:
            return v
        return f(v, directions.setdefault(id(v), random_like(v, rng, case)))

    def outputs(f):
        return [
            r
            for k, r in enumerate(call(case, {k: moved(v, f) for k, v in args.items()}))
            if k not in case.non_differentiable
        ]

    with F.autograd.forward_ad.dual_level():
        try:
            duals = outputs(F.autograd.forward_ad.make_dual)
        except RuntimeError as e:
            if dtype == "complex128" and ("not implemented" in str(e) or "complex" in str(e)):
                return
            if NO_DERIVATIVE.search(str(e)):
                return
            raise
        tangents = [F.autograd.forward_ad.unpack_dual(r).tangent for r in duals]
    if not any(d.numel() for d in directions.values()):
        return
    h = 1e-6
    for tangent, above, below in zip(
        tangents, outputs(lambda v, d: v + d * h), outputs(lambda v, d: v - d * h), strict=True
    ):
        if not (above.is_floating_point() or above.is_complex()):
            assert tangent is None, what
            continue
        numeric = (to_numpy(above) - to_numpy(below)) / (2 * h)
        tangent = np.zeros_like(numeric) if tangent is None else to_numpy(tangent)
        assert tangent.dtype == numeric.dtype, what
        np.testing.assert_allclose(
            tangent, numeric, rtol=2e-5, atol=1e-6 * (1 + np.abs(numeric).max(initial=0)), err_msg=what
        )


@names(
    lambda c: (
        c.samples and not c.writes and not {c.base, c.name} & UNDEFINED and c.kind not in ("library", "view")
    )
)
def test_bits_do_not_depend_on_the_number_of_threads(name):
    case = BY_NAME[name]
    threads = F.get_num_threads()
    try:
        for number, sample in enumerate(case.samples):
            if largest(sample) < 512 and number:
                continue
            seen = set()
            for n in (1, 2, 3, 7):
                F.set_num_threads(n)
                F.manual_seed(5)
                seen.add(
                    tuple(
                        bits(r)
                        for r in call(
                            case,
                            arguments(
                                case, number, "float32" if "float32" in case.dtypes else case.dtypes[-1]
                            ),
                        )
                    )
                )
            assert len(seen) == 1, f"{name}, sample {number}"
    finally:
        F.set_num_threads(threads)


LARGE = {
    "sum": lambda x: x.sum(),
    "sum_rows": lambda x: x.sum(1),
    "sum_columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "prod": lambda x: x.prod(0),
    "max": lambda x: x.max(),
    "argmax": lambda x: x.argmax(),
    "var": lambda x: x.var(),
    "norm": lambda x: x.norm(),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum_long": lambda x: x.view(-1).cumsum(0),
    "softmax": lambda x: x.softmax(1),
    "logsumexp": lambda x: x.logsumexp(0),
    "layer_norm": lambda x: F.nn.functional.layer_norm(x, (x.shape[1],)),
    "exp": lambda x: x.exp(),
    "transposed": lambda x: (x.t() * 2).contiguous(),
    "index_add": lambda x: F.zeros(7, x.shape[1]).index_add(0, F.arange(x.shape[0]) % 7, x),
    "dropout": lambda x: F.nn.functional.dropout(x, 0.5),
    "scatter_add": lambda x: F.zeros(x.shape[0], 5).scatter_add(1, F.arange(x.numel()).view(x.shape) % 5, x),
    "randn": lambda x: F.randn(x.shape),
    "cross_entropy": lambda x: F.nn.functional.cross_entropy(x, F.arange(x.shape[0]) % x.shape[1]),
    "sort": lambda x: x.sort(1)[0],
}


@pytest.mark.parametrize("name", LARGE)
def test_bits_of_large_results_do_not_depend_on_the_number_of_threads(name):
    threads = F.get_num_threads()
    x = F.tensor(np.random.default_rng(3).normal(size=(1031, 517)).astype(np.float32)).requires_grad_()
    try:
        seen = set()
        for n in (1, 2, 3, 7):
            F.set_num_threads(n)
            F.manual_seed(5)
            y = LARGE[name](x)
            g = F.autograd.grad(y, x, F.ones_like(y))[0] if y.requires_grad else y
            seen.add((bits(y), bits(g)))
        assert len(seen) == 1
    finally:
        F.set_num_threads(threads)


@names(lambda c: c.samples and c.kind == "composite" and not c.writes and c.base != "_without_derivative")
def test_composite_gives_the_same_fused_and_unfused(name):
    case = BY_NAME[name]
    for number, sample in enumerate(case.samples):
        for dtype in ("float32", "float64"):
            if dtype not in case.dtypes:
                continue

            def run(fuse, number=number, dtype=dtype):
                C.set_setting("fuse", fuse)
                F.manual_seed(5)
                args = arguments(case, number, dtype)
                inputs = [
                    t.requires_grad_()
                    for v in args.values()
                    for t in (v if isinstance(v, list) else [v])
                    if isinstance(t, F.Tensor) and t.is_floating_point()
                ]
                try:
                    r = call(case, args)
                    loss = [x for x in r if x.requires_grad]
                    weights = [random_like(x, np.random.default_rng(1)) for x in loss]
                    g = F.autograd.grad(loss, inputs, weights, allow_unused=True) if loss else []
                except NotImplementedError as e:
                    assert NO_DERIVATIVE.search(str(e)), name
                    g = []
                finally:
                    C.set_setting("fuse", True)
                return [*r, *(x for x in g if x is not None)]

            for got, want in zip(run(True), run(False), strict=True):
                close(got, to_numpy(want), dtype, terms_of(sample) * 16, f"{name}, sample {number}, {dtype}")


OF_EQUAL = ("topk", "_kth")


def along(args, index):
    """The elements of the first argument at `index`."""
    self, dim = args["self"], args.get("dim", -1)
    return (
        self
        if self.dim() == 0
        else self.gather(dim, index if index.dim() == self.dim() else index.unsqueeze(dim))
    )


@names(lambda c: c.samples and c.kind in ("library", "data_dependent") and not c.random)
def test_library_gives_what_its_slow_reference_gives(name):
    case = BY_NAME[name]
    for number in range(len(case.samples)):
        for dtype in ("float32", "float64", "complex128", "int64"):
            if dtype not in case.dtypes:
                continue
            args = arguments(case, number, dtype)
            got = call(case, args)
            C.set_setting("libraries", False)
            try:
                want = call(case, args)
            finally:
                C.set_setting("libraries", True)
            if (
                case.base in OF_EQUAL
            ):  # which of equal elements is the peer's choice (test_selection_and_moves.py)
                got, want = ([*r[:-1], along(args, r[-1])] for r in (got, want))
            for k, (a, b) in enumerate(zip(got, want, strict=True)):
                assert a.dtype == b.dtype
                close(a, to_numpy(b), dtype_of(a), 1e3, f"{name}, sample {number}, {dtype}, result {k}")


@names(lambda c: c.samples and c.kind == "view" and not {c.base, c.name} & UNDEFINED)
def test_view_shares_the_memory_of_its_input(name):
    case = BY_NAME[name]
    for number in range(len(case.samples)):
        args = arguments(case, number, "float32" if "float32" in case.dtypes else case.dtypes[-1])
        self = args["self"]
        for r in call(case, args):
            if r.numel():
                with F.no_grad():
                    self.fill_(7 + 7j if self.is_complex() else 7)
                seen = 7 - 7j if r.is_conj() else 7 + 7j if r.is_complex() else 7
                assert (r == (-seen if r.is_neg() else seen)).all(), name


@names(
    lambda c: (
        any(largest(s) == 0 or prod([0]) == 0 for s in c.samples)
        and not c.random
        and not {c.base, c.name} & UNDEFINED
        and c.kind == "pointwise"
        and c.name != "_accepted"  # refuses ones
    )
)
def test_element_wise_operators_take_scalars_and_nothing(name):
    """0-d and empty inputs of every tensor argument."""
    case = BY_NAME[name]
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[-1]
    for shape in ((), (0,), (2, 0, 3), (1, 1, 1, 1, 1)):
        args = arguments(case, 0, dtype)
        for k, a in case.samples[0].items():
            if a["kind"] == "tensor":
                args[k] = F.ones(shape, dtype=F.bool if a["boolean"] else getattr(F, dtype))
        for r in call(case, args):
            assert tuple(r.shape) == shape, name
