"""Writes elementary_tables.h: polynomials on intervals. Needs mpmath.

    python elementary_tables.py > elementary_tables.h

A polynomial is in the distance to a centre, chosen so that its constant, the function's value there, is a
float as it stands. kTail: erfcx(a / sqrt 2) / 2, the normal distribution's tail by exp(-a^2 / 2), and kTanh;
the interval is told by the bits of a + 1, its exponent and the first bits of its mantissa. kNormal: the
function at -a; the interval is the integer nearest to a multiple of a. kInverseErf: erfinv(a) / a up to
1 - 1/256, the interval by the exponent of 1 - a and the first bits of its mantissa.
kInverseErfFar: erfinv by r = sqrt(-log(1 - a^2)) further out; the interval is the integer nearest to 4r.

kErf and kTailErfc, which is erfcx(a), have an exact slope at the centre besides.

The rest serves functions whose argument is brought near one of 8 or 16 points, with values to twice the
digits. What ends in Short64 is of float64 to more digits than float32 has, by far shorter polynomials.
"""

import struct

import mpmath

mpmath.mp.prec = 240


def erfcx(a):
    return mpmath.erfc(a) * mpmath.exp(a * a)


def erfcx_slope(a):
    return 2 * a * erfcx(a) - 2 / mpmath.sqrt(mpmath.pi)


def erf_slope(a):
    return 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-a * a)


def tail(a):
    z = a / mpmath.sqrt(2)
    return mpmath.erfc(z) * mpmath.exp(z * z) / 2


def normal(a):
    return mpmath.erfc(a / mpmath.sqrt(2)) / 2


def inverse(a):
    return mpmath.erfinv(a) / a if a else mpmath.sqrt(mpmath.pi) / 2


def inverse_far(r):
    """Inverse error function by Newton's method on erfc, because 1 - a has no digits left where a has."""
    small = -mpmath.expm1(mpmath.log1p(-mpmath.exp(-r * r)) / 2)  # 1 - a
    y = r
    for _ in range(60):
        step = (mpmath.erfc(y) - small) * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
        y += step
        if abs(step) < mpmath.mpf(10) ** -65:
            return y
    raise SystemExit("erfinv does not converge")


def single(x):
    return mpmath.mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def double(x):
    return mpmath.mpf(float(x))


def centre(value, low, high, nearest, bits, tries):
    """A centre near the middle of an interval, with few bits, at which the value is nearly a float."""
    middle, best = (low + high) / 2, None
    step = mpmath.mpf(2) ** -bits
    for k in range(-tries, tries + 1):
        c = mpmath.nint(middle / step) * step + k * step
        v = value(c)
        off = abs(v - nearest(v)) / v
        if best is None or off < best[0]:
            best = (off, c, nearest(v))
    return best[1:]


def coefficients(value, low, high, c, constant, degree, nearest):
    """Coefficients: `constant`, then an interpolation of the slope from the centre at Chebyshev nodes."""
    n = degree
    nodes = [x - c for x in chebyshev(low, high, n)]
    matrix, right = mpmath.matrix(n, n), mpmath.matrix(n, 1)
    for i, d in enumerate(nodes):
        d = d if abs(d) > 1e-12 else mpmath.mpf(1e-12)  # the function's slope there
        right[i] = (value(c + d) - value(c)) / d
        for j in range(n):
            matrix[i, j] = d**j
    return [constant] + [nearest(x) for x in mpmath.lu_solve(matrix, right)]


def table(name, value, intervals, degree, nearest, step, tries):
    rows = []
    for low, high in intervals:
        bits = int(mpmath.ceil(-mpmath.log(high - low, 2))) + step
        c, constant = centre(value, low, high, nearest, bits, tries)
        rows.append([c] + coefficients(value, low, high, c, constant, degree, nearest))
    print("// By row: the centres, then the coefficients of each power.")
    show(name, [[row[j] for row in rows] for j in range(degree + 2)], nearest)


def exact_table(name, value, slope, intervals, degree, nearest, parts):
    """For sums whose linear terms are exact: the slope at the centre is nearly a float too. 0 is a centre."""
    rows = []
    for low, high in intervals:
        candidates = [
            nearest(low + (high - low) * (mpmath.mpf(k) / parts + 0.45)) for k in range(parts // 10)
        ]
        if value(low) == 0:
            candidates = [low]
        off = {c: max(abs(v - nearest(v)) / v for v in (value(c), slope(c)) if v) for c in candidates}
        c = min(off, key=off.get)
        constant, first = nearest(value(c)), nearest(slope(c))
        # Fits the remainder by least squares of the relative error.
        nodes, count = chebyshev(low, high, 100), degree - 1
        matrix, right = mpmath.matrix(len(nodes), count), mpmath.matrix(len(nodes), 1)
        for i, x in enumerate(nodes):
            right[i] = (value(x) - constant - first * (x - c)) / value(x)
            for j in range(count):
                matrix[i, j] = (x - c) ** (j + 2) / value(x)
        rows.append([c, constant, first, *map(nearest, mpmath.lu_solve(matrix, right))])
    print("// By row: the centres, then the coefficients of each power.")
    show(name, [[row[j] for row in rows] for j in range(degree + 2)], nearest)


def sum_table(name, value, slope, intervals, degree, nearest, bits):
    """For constant + slope t, added exactly, + t (...), with what rounding the slope loses. 0 is a centre."""
    rows = []
    for low, high in intervals:
        step = mpmath.mpf(2) ** -bits
        candidates = [mpmath.nint((low + (high - low) * (0.45 + k / 1e4)) / step) * step for k in range(1000)]
        c = min(candidates, key=lambda c: abs(value(c) - nearest(value(c))) / value(c)) if value(low) else low
        constant, first = nearest(value(c)), nearest(slope(c))
        nodes = [x - c for x in chebyshev(low, high, 3 * degree)]
        weights = [abs(d / value(c + d)) for d in nodes]
        matrix, right = mpmath.matrix(len(nodes), degree), mpmath.matrix(len(nodes), 1)
        for i, (d, w) in enumerate(zip(nodes, weights)):
            right[i] = ((value(c + d) - constant) / d - first) * w
            for j in range(degree):
                matrix[i, j] = d**j * w
        rows.append([c, constant, first, *map(nearest, mpmath.lu_solve(matrix, right))])
    print("// By row: the centres, the constants, the slopes, then the coefficients of what is beyond.")
    show(name, [[row[j] for row in rows] for j in range(degree + 3)], nearest)


def show(name, rows, nearest):
    element = "double" if nearest is double else "float"
    size = f"[{len(rows)}]" if len(rows) > 1 else ""
    print(
        f"constexpr {element} {name}{size}[{len(rows[0])}] = {{" + ("" if size else "\n    "),
        end="\n" if size else "",
    )
    for row in rows:
        line = "    {" if size else ""
        for k, value in enumerate(row):
            text = float(value).hex() if element == "double" else f"{float(value):.9g}"
            if "." not in text and "e" not in text and element == "float":
                text += ".0"
            text += "," if k + 1 < len(row) else "}," if size else "};"
            if len(line) + len(text) > (118 if size else 106):
                print(line)
                line = "     " if size else "    "
            line += ("" if line.endswith(("{", "     ")) or not line else " ") + text
        print(line)
    if size:
        print("};")


def pair(x, nearest):
    """x as a sum of two numbers."""
    high = nearest(x)
    return [high, nearest(x - high)]


def columns(values, nearest):
    """Rows of highs and lows, 16 entries."""
    pairs = [pair(v, nearest) for v in values]
    pairs += [[0, 0]] * (16 - len(pairs))
    return [list(row) for row in zip(*pairs)]


def chebyshev(low, high, n):
    return [
        (low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * n)) for k in range(n)
    ]


def near_best(value, low, high, count, power=0):
    """Interpolates at Chebyshev nodes; errors are weighted by x^power (then low = -high)."""
    nodes = sorted(chebyshev(low, high, count + power), key=abs)[power:]
    matrix, right = mpmath.matrix(count, count), mpmath.matrix(count, 1)
    for i, x in enumerate(nodes):
        x = x if abs(x) > 1e-12 else mpmath.mpf(1e-12)
        right[i] = value(x)
        for j in range(count):
            matrix[i, j] = x**j
    return list(mpmath.lu_solve(matrix, right))


def by_exponent(octaves, pieces):
    ends = [
        mpmath.mpf(2) ** k * (1 + mpmath.mpf(p) / pieces) - 1 for k in range(octaves) for p in range(pieces)
    ]
    ends.append(mpmath.mpf(2) ** octaves - 1)
    return list(zip(ends, ends[1:]))


def below_one(octaves, pieces):
    """Intervals by the last bits of the exponent of 1 - a and the first of its mantissa; biased by ones."""
    intervals = []
    for k in range(octaves):
        low = mpmath.mpf(2) ** ((k + 1) % octaves - octaves)
        ends = [1 - low * (1 + mpmath.mpf(p) / pieces) for p in range(pieces + 1)]
        intervals += list(zip(ends[1:], ends))
    return intervals


def by_nearest(count, scale):
    half = mpmath.mpf(1) / 2
    return [(max(0, k - half) / scale, (k + half) / scale) for k in range(count)]


print("// Made by elementary_tables.py.\n#pragma once\n")
print("namespace facula::loop {\n")
table("kTail32", tail, by_exponent(4, 8), 5, single, 9, 30)
print()
table("kTail64", tail, by_exponent(6, 16), 9, double, 26, 100)
print()
table("kNormal32", normal, by_nearest(32, 7), 6, single, 10, 60)
print()
exact_table("kTanh32", mpmath.tanh, lambda a: 1 - mpmath.tanh(a) ** 2, by_exponent(4, 4), 7, single, 2**17)

print()
for name, pieces, degree, nearest, bits, tries in (
    ("kInverseErf32", 4, 6, single, 10, 60),
    ("kInverseErf64", 2, 16, double, 26, 100),
):
    table(name, inverse, below_one(8, pieces), degree, nearest, bits, tries)
    print()
for name, degree, nearest, bits, tries in (
    ("kInverseErfFar32", 5, single, 10, 60),
    ("kInverseErfFar64", 10, double, 26, 100),
):
    table(
        name,
        inverse_far,
        [((j - 0.5) / 4, (j + 0.5) / 4) for j in [*range(16, 25), *range(9, 16)]],
        degree,
        nearest,
        bits,
        tries,
    )
    print()

print("\n// 2^(j/16): highs, lows.")
powers = [mpmath.mpf(2) ** (mpmath.mpf(j) / 16) for j in range(16)]
show("kPower32", columns(powers, single), single)
show("kPower64", columns(powers, double), double)
print("// (exp(r) - 1 - r) / r^2 for |r| <= ln2 / 32.")
reach = mpmath.log(2) / 32 * 1.001
show("kExp32", [near_best(lambda r: (mpmath.exp(r) - 1 - r) / r**2, -reach, reach, 2, 2)], single)
show("kExp64", [near_best(lambda r: (mpmath.exp(r) - 1 - r) / r**2, -reach, reach, 6, 2)], double)
show("kExpShort64", [near_best(lambda r: (mpmath.exp(r) - 1 - r) / r**2, -reach, reach, 4, 2)], double)

print(
    "\n// By j mod 16, for 9 <= j <= 24: 16 / j; negative logarithms to bases e, 2, 10, "
    "whose highs end at 2^-42."
)
reciprocals = [double(mpmath.mpf(16) / (j if j > 8 else j + 16)) for j in range(16)]
rows = [reciprocals]
for base in (mpmath.e, 2, 10):
    logarithms = [-mpmath.log(r) / mpmath.log(base) for r in reciprocals]
    highs = [mpmath.nint(v * 2**42) / 2**42 for v in logarithms]
    rows += [highs, [double(v - h) for v, h in zip(logarithms, highs)]]
show("kLogarithm64", rows, double)
print("// (log(1 + f) - f + f^2 / 2) / f^3 for |f| <= 1 / 22.")
show(
    "kLog64",
    [
        near_best(
            lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
            -mpmath.mpf(1) / 21.9,
            mpmath.mpf(1) / 21.9,
            10,
        )
    ],
    double,
)

show(
    "kLogShort64",
    [
        near_best(
            lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
            -mpmath.mpf(1) / 21.9,
            mpmath.mpf(1) / 21.9,
            5,
        )
    ],
    double,
)
print(
    "// By j mod 16, 12 <= j <= 24: nearly 16 / j, in eight digits with which logarithms come out nearest; "
    "negative logarithms to\n// bases e, 2, 10, whose highs end at 2^-15."
)
short = dict(zip(range(12, 25), (168, 160, 144, 136, 128, 120, 114, 108, 102, 98, 92, 88, 86)))
reciprocals = [mpmath.mpf(short.get(j if j > 8 else j + 16, 128)) / 128 for j in range(16)]
rows = [reciprocals]
for base in (mpmath.e, 2, 10):
    logarithms = [-mpmath.log(r) / mpmath.log(base) for r in reciprocals]
    highs = [mpmath.nint(v * 2**15) / 2**15 for v in logarithms]
    rows += [highs, [single(v - h) for v, h in zip(logarithms, highs)]]
show("kLogarithm32", rows, single)


def half_circle(count, nearest):
    """sin and cos of multiples: highs, lows of each."""
    pairs = [
        [
            *pair(mpmath.sinpi(mpmath.mpf(j) / count), nearest),
            *pair(mpmath.cospi(mpmath.mpf(j) / count), nearest),
        ]
        for j in range(count)
    ]
    return [list(row) for row in zip(*pairs)]


print("\n// sin(j pi/8), cos(j pi/8), then of j pi/16: highs, lows of each.")
for suffix, nearest in (("32", single), ("64", double)):
    show("kEighths" + suffix, half_circle(8, nearest), nearest)
    show("kSixteenths" + suffix, half_circle(16, nearest), nearest)


def odd_rest(f):
    return lambda z: (f(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z


def even_rest(z):
    return (mpmath.cos(mpmath.sqrt(z)) - 1) / z


print(
    "// (f(x) - x) / x^3 by x^2, (cos(x) - 1) / x^2: to pi/16; of a tangent to pi/32, an arc sine to 1/2, an"
)
print("// arc tangent to 1/4.")
eighth, sixteenth = (mpmath.pi / 16) ** 2 * 1.0001, (mpmath.pi / 32) ** 2 * 1.0001
for name, f, reach, count, nearest in (
    ("kSin32", odd_rest(mpmath.sin), eighth, 2, single),
    ("kSin64", odd_rest(mpmath.sin), eighth, 5, double),
    ("kCos32", even_rest, eighth, 3, single),
    ("kCos64", even_rest, eighth, 5, double),
    ("kTan32", odd_rest(mpmath.tan), sixteenth, 2, single),
    ("kTan64", odd_rest(mpmath.tan), sixteenth, 6, double),
    ("kAsin32", odd_rest(mpmath.asin), mpmath.mpf(1) / 4, 6, single),
    ("kAsin64", odd_rest(mpmath.asin), mpmath.mpf(1) / 4, 13, double),
    ("kAtan32", odd_rest(mpmath.atan), mpmath.mpf(1) / 16, 4, single),
    ("kAtan64", odd_rest(mpmath.atan), mpmath.mpf(1) / 16, 9, double),
):
    show(name, [near_best(f, 0, reach, count)], nearest)
print("// To pi/2 and to 1, to float32's digits.")
for name, f, reach, count in (
    ("kSinShort64", mpmath.sin, mpmath.pi**2 / 4 * 1.0001, 5),
    ("kAtanShort64", mpmath.atan, mpmath.mpf(1), 12),
):
    show(name, [near_best(odd_rest(f), 0, reach, count)], double)

# Intervals by the last bits of the exponent of a + 1 and the first bits of its mantissa.
by_last_bits = by_exponent(4, 4)[4:] + by_exponent(4, 4)[:4]


def point(low, high, nearest):
    if low >= 7:
        return [0, 1, *pair(mpmath.pi / 2, nearest)]
    c = (low + high) / 2 if low else low
    return [1, c, *pair(mpmath.atan(c), nearest)]


print(
    "\n// (1, c) in the middle of an interval, (0, 1) from 7 on, and the angles of these points: highs, lows."
)
for suffix, nearest in (("32", single), ("64", double)):
    points = [point(low, high, nearest) for low, high in by_last_bits]
    show("kPoints" + suffix, [list(row) for row in zip(*points)], nearest)
print("\n// atan(j/16): highs, lows.")
angles = [mpmath.mpf(j) / 16 for j in range(16)]
show("kArc64", columns(map(mpmath.atan, angles), double), double)
print("// (atan(q) - q) / q^3 by q^2, for |q| <= 0.033.")
show(
    "kAtanNear64",
    [
        near_best(
            lambda z: (mpmath.atan(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1) / z, 0, mpmath.mpf(0.033) ** 2, 6
        )
    ],
    double,
)

print()
sum_table("kErf32", mpmath.erf, erf_slope, by_nearest(16, mpmath.mpf(3.9375)), 7, single, 12)
sum_table("kErf64", mpmath.erf, erf_slope, by_nearest(16, mpmath.mpf(2.609375)), 13, double, 26)
print()
exact_table("kTailErfc32", erfcx, erfcx_slope, by_last_bits, 7, single, 10000)
exact_table("kTailErfc64", erfcx, erfcx_slope, by_last_bits, 13, double, 10000)
print("\n// -2^(j/16), to whose bits j 2^19 or j 2^48 is to be added, and what it misses, relatively.")
points = {"32": (single, 19, "i", "f"), "64": (double, 48, "q", "d")}
for suffix, (nearest, place, whole, real) in points.items():
    highs = [nearest(p) for p in powers]
    lower = [
        struct.unpack(
            real, struct.pack(whole, struct.unpack(whole, struct.pack(real, -float(h)))[0] - (j << place))
        )[0]
        for j, h in enumerate(highs)
    ]
    show("kScaled" + suffix, [lower, [nearest((p - h) / h) for p, h in zip(powers, highs)]], nearest)

print("\n}  // namespace facula::loop")
