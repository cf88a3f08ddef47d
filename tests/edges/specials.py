"""Numbers at the edges of each dtype, as NumPy arrays. bfloat16 is held as the float32 of the same value."""

import numpy as np
from support.operators import COMPLEX, FLOATING, bfloat16

INTEGRAL = ("uint8", "int8", "int16", "int32", "int64")
PART = {"complex64": "float32", "complex128": "float64"}
HOLDS = {"bfloat16": "float32"}


def numpy_dtype(dtype):
    return np.dtype(HOLDS.get(dtype, dtype))


class Limits:
    """What np.finfo tells, bfloat16 included."""

    def __init__(self, dtype):
        if dtype == "bfloat16":
            self.max, self.tiny, self.subnormal, self.eps = 2.0**128 - 2.0**120, 2.0**-126, 2.0**-133, 2.0**-7
        else:
            f = np.finfo(dtype)
            self.max, self.tiny, self.subnormal, self.eps = (
                float(v) for v in (f.max, f.tiny, f.smallest_subnormal, f.eps)
            )


def held(values, dtype):
    """`values` as numbers of the dtype, those it cannot tell apart once."""
    with np.errstate(all="ignore"):
        x = np.asarray(values, np.float64)
        x = bfloat16(x) if dtype == "bfloat16" else x.astype(dtype)
    seen, out = set(), []
    for v in x:
        key = v.tobytes()
        if key not in seen:
            seen.add(key)
            out.append(v)
    return np.array(out, numpy_dtype(dtype))


def neighbours(v, dtype):
    """v as the dtype has it, and the numbers beside it."""
    x = held([v], dtype)[0]
    if not np.isfinite(x):
        return [float(x)]
    if dtype == "bfloat16":
        step = max(abs(float(x)) * 2.0**-8, 2.0**-133)
        return [float(x), float(bfloat16(x + 1.01 * step)), float(bfloat16(x - 1.01 * step))]
    return [
        float(x),
        float(np.nextafter(x, x.dtype.type(np.inf))),
        float(np.nextafter(x, x.dtype.type(-np.inf))),
    ]


def reals(dtype, branches=()):
    """Everything that a function of one variable may trip over."""
    f = Limits(dtype)
    out = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    for v in (
        f.subnormal,
        f.tiny - f.subnormal,
        f.tiny,
        f.eps,
        f.max,
        np.sqrt(f.max),
        np.log(f.max),
        np.cbrt(f.max),
    ):
        out += [v, -v]
    for v in (
        0.1,
        0.5,
        1.5,
        2.5,
        3.5,
        1,
        2,
        3,
        7,
        10,
        20,
        33,
        100,
        170.6,
        1e4,
        0.5 / f.eps + 0.5,
        2 / f.eps,
        3e9,
        1e19,
    ):
        out += [v, -v]
    for v in (1, -1, *branches):
        out += neighbours(v, dtype)
    return held([v for v in out if not np.isfinite(v) or abs(v) <= f.max], dtype)


def few_reals(dtype, branches=()):
    """Those of which all pairs are taken."""
    f = Limits(dtype)
    out = [np.nan, np.inf, -np.inf, 0.0, -0.0, f.subnormal, -f.subnormal, f.tiny, f.max, -f.max]
    out += [1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 2, 3, -3, 0.1, 10, np.sqrt(f.max), 1 + f.eps]
    for v in branches:
        out += neighbours(v, dtype)[:1]
    return held(out, dtype)


def fewest_reals(dtype):
    f = Limits(dtype)
    return held([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, 2, f.max, f.subnormal], dtype)


def pairs_of_parts(parts, dtype):
    re, im = np.repeat(parts, len(parts)), np.tile(parts, len(parts))
    out = np.empty(len(re), dtype)
    out.real, out.imag = re, im
    return out


def complexes(dtype):
    f = Limits(PART[dtype])
    return pairs_of_parts(
        held(
            [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 0.5, -2.5, 3, 1e-3, 100, f.max, f.tiny], PART[dtype]
        ),
        dtype,
    )


def few_complexes(dtype):
    f = Limits(PART[dtype])
    parts = [
        (np.nan, 0),
        (0, np.nan),
        (np.inf, 0),
        (-np.inf, 0),
        (0, np.inf),
        (np.inf, -np.inf),
        (np.inf, np.nan),
    ]
    parts += [
        (0, 0),
        (-0.0, 0),
        (0, -0.0),
        (1, 0),
        (0, 1),
        (-1, 0),
        (2, -3),
        (0.5, 0.5),
        (f.max, 1),
        (f.tiny, 0),
    ]
    out = np.empty(len(parts), dtype)
    out.real, out.imag = np.array(parts).T
    return out


def integers(dtype):
    i = np.iinfo(dtype)
    out = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, -1, -2, -3, -5, -8, -31, -100]
    out += [
        i.max,
        i.max - 1,
        i.max // 2,
        i.max // 2 + 1,
        i.min,
        i.min + 1,
        i.min // 2,
        2**24 + 1,
        -(2**24) - 1,
        2**53 + 1,
    ]
    return np.array(sorted({v for v in out if i.min <= v <= i.max}), dtype)


def few_integers(dtype):
    i = np.iinfo(dtype)
    out = [0, 1, 2, 3, 7, 8, 31, 64, 100, -1, -2, -3, -7, i.max, i.max - 1, i.min, i.min + 1]
    return np.array(sorted({v for v in out if i.min <= v <= i.max}), dtype)


def fewest_integers(dtype):
    i = np.iinfo(dtype)
    return np.array(sorted({v for v in (0, 1, 2, 3, -1, -3, i.max, i.min) if i.min <= v <= i.max}), dtype)


def alone(dtype, branches=()):
    if dtype in FLOATING:
        return reals(dtype, branches)
    if dtype in COMPLEX:
        return complexes(dtype)
    return np.array([False, True]) if dtype == "bool" else integers(dtype)


def paired(dtype, branches=()):
    if dtype in FLOATING:
        return few_reals(dtype, branches)
    if dtype in COMPLEX:
        return few_complexes(dtype)
    return np.array([False, True]) if dtype == "bool" else few_integers(dtype)


def many(dtype):
    """Of which all triples are taken."""
    if dtype in FLOATING:
        return fewest_reals(dtype)
    if dtype in COMPLEX:
        return few_complexes(dtype)[[0, 2, 4, 7, 10, 11, 13]]
    return np.array([False, True]) if dtype == "bool" else fewest_integers(dtype)


def placed(dtype):
    """(what it is called, the number) that are put into an ordinary tensor, one at a time."""
    if dtype in FLOATING:
        f = Limits(dtype)
        return [
            ("nan", np.nan),
            ("inf", np.inf),
            ("-inf", -np.inf),
            ("max", f.max),
            ("lowest", -f.max),
            ("-0", -0.0),
            ("0", 0.0),
            ("subnormal", f.subnormal),
        ]
    if dtype in COMPLEX:
        f = Limits(PART[dtype])
        return [
            ("nan", complex(np.nan, 0)),
            ("nanj", complex(0, np.nan)),
            ("inf", complex(np.inf, 0)),
            ("-infj", complex(0, -np.inf)),
            ("max", complex(f.max, 0)),
            ("0", 0j),
        ]
    if dtype == "bool":
        return []
    i = np.iinfo(dtype)
    return [("max", i.max), ("lowest", i.min), ("0", 0)]


def wholes(dtype):
    """(what it is called, f(n) -> array): tensors that are special as a whole."""
    nd = numpy_dtype(dtype)

    def full(v):
        return lambda n: np.full(n, v, nd)

    def alternating(a, b):
        return lambda n: np.where(np.arange(n) % 2 == 0, a, b).astype(nd)

    out = [("all 0", full(0)), ("all 1", full(1))]
    if dtype in FLOATING:
        f = Limits(dtype)
        out += [
            ("all nan", full(np.nan)),
            ("all inf", full(np.inf)),
            ("all -inf", full(-np.inf)),
            ("inf and -inf", alternating(np.inf, -np.inf)),
            ("all max", full(f.max)),
            ("all -0", full(-0.0)),
            ("0 and -0", alternating(0.0, -0.0)),
            ("max and lowest", alternating(f.max, -f.max)),
            ("all subnormal", full(f.subnormal)),
            ("1 and nan", alternating(1, np.nan)),
            ("all -2.5", full(-2.5)),
        ]
    elif dtype in COMPLEX:
        f = Limits(PART[dtype])
        out += [
            ("all nan", full(complex(np.nan, np.nan))),
            ("all inf", full(complex(np.inf, 0))),
            ("all max", full(complex(f.max, f.max))),
            ("all 1j", full(1j)),
            ("all tiny", full(complex(f.tiny, f.tiny))),
        ]
    elif dtype == "bool":
        out += [("alternating", alternating(True, False))]
    else:
        i = np.iinfo(dtype)
        out += [
            ("all max", full(i.max)),
            ("all lowest", full(i.min)),
            ("max and lowest", alternating(i.max, i.min)),
        ]
    return out


def matrices(dtype):
    """(what it is called, f(shape) -> array): square and other matrices that decompositions trip over."""
    nd = numpy_dtype(dtype)

    def make(f):
        def made(shape):
            x = np.zeros(shape, nd)
            with np.errstate(all="ignore"):
                x[...] = f(shape[-2], shape[-1])
            return x

        return made

    def with_corner(v):
        def f(n, m):
            x = np.eye(n, m) * 2 + 0.5
            x[0, 0] = v
            return x

        return f

    def spoilt_last(v):
        def f(n, m):
            x = np.eye(n, m) * 2 + 0.5
            x[-1, -1] = v
            return x

        return f

    return [
        ("identity", make(np.eye)),
        ("rank 1", make(lambda n, m: np.outer(np.arange(1, n + 1), np.arange(1, m + 1)))),
        (
            "zero row",
            make(lambda n, m: np.eye(n, m) + np.where(np.arange(n)[:, None] == 0, -np.eye(n, m), 0)),
        ),
        ("negative", make(lambda n, m: -np.eye(n, m))),
        ("repeated", make(lambda n, m: 2 * np.eye(n, m) + (np.arange(n)[:, None] + 1 == np.arange(m)))),
        ("exchange", make(lambda n, m: np.eye(n, m)[::-1])),
        ("nan in the corner", make(with_corner(np.nan))),
        ("inf in the corner", make(with_corner(np.inf))),
        ("nan at the end", make(spoilt_last(np.nan))),
        ("scaled small", make(lambda n, m: 1e-30 * (np.eye(n, m) * 2 + 0.5))),
        ("scaled large", make(lambda n, m: 1e30 * (np.eye(n, m) * 2 + 0.5))),
    ]
