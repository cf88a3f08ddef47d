"""Writes llvm_tables.h: polynomials on intervals. Needs mpmath.

    python llvm_tables.py > llvm_tables.h

A polynomial is in the distance to a centre, chosen so that its constant, the function's value there, is a float as it
stands. kTail: erfcx(a / sqrt 2) / 2, the normal distribution's tail by exp(-a^2 / 2); the interval is told by the bits of
a + 1, its exponent and the first bits of its mantissa. kNormal and kSigmoid: the functions at -a; the interval is the
integer nearest to a multiple of a.
"""

import struct

import mpmath

mpmath.mp.prec = 240


def tail(a):
    z = a / mpmath.sqrt(2)
    return mpmath.erfc(z) * mpmath.exp(z * z) / 2


def normal(a):
    return mpmath.erfc(a / mpmath.sqrt(2)) / 2


def sigmoid(a):
    return 1 / (1 + mpmath.exp(a))


def single(x):
    return mpmath.mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def double(x):
    return mpmath.mpf(float(x))


def centre(value, low, high, nearest, bits, tries):
    """Near the middle, with few bits, where the value is nearly a float."""
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
    """`constant`, and what interpolates the slope from the centre at Chebyshev nodes."""
    n = degree
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * n)) - c for k in range(n)
    ]
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
    element = "double" if nearest is double else "float"
    print("// By row: the centres, then the coefficients of each power.")
    print(f"constexpr {element} {name}[{degree + 2}][{len(rows)}] = {{")
    for j in range(degree + 2):
        line = "    {"
        for k, row in enumerate(rows):
            text = float(row[j]).hex() if element == "double" else f"{float(row[j]):.9g}"
            if "." not in text and "e" not in text and element == "float":
                text += ".0"
            text += "," if k + 1 < len(rows) else "},"
            if len(line) + len(text) > 118:
                print(line)
                line = "     "
            line += ("" if line.endswith(("{", "     ")) else " ") + text
        print(line)
    print("};")


def by_exponent(octaves, pieces):
    ends = [mpmath.mpf(2) ** k * (1 + mpmath.mpf(p) / pieces) - 1 for k in range(octaves) for p in range(pieces)]
    ends.append(mpmath.mpf(2) ** octaves - 1)
    return list(zip(ends, ends[1:]))


def by_nearest(count, scale):
    half = mpmath.mpf(1) / 2
    return [(max(0, k - half) / scale, (k + half) / scale) for k in range(count)]


print("// Made by llvm_tables.py.\n#pragma once\n")
print("namespace facula::codegen {\n")
table("kTail32", tail, by_exponent(4, 8), 5, single, 9, 30)
print()
table("kTail64", tail, by_exponent(6, 16), 9, double, 26, 100)
print()
table("kNormal32", normal, by_nearest(32, 7), 6, single, 10, 60)
print()
table("kSigmoid32", sigmoid, by_nearest(32, 3), 5, single, 10, 60)
print("\n}  // namespace facula::codegen")
