"""Writes mapped_tables.h: polynomials for mapped.cpp, interpolated at Chebyshev's points with 60 digits.

    python mapped_tables.py > mapped_tables.h        (needs mpmath)

Every table is for an interval, in the distance from its middle, of the lowest degree whose error
is below the bound.
"""

import mpmath as mp

mp.mp.dps = 60
BOUND = mp.mpf("2e-17")


def fit(f, low, high, relative=True):
    low, high = mp.mpf(low), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    checks = [middle + half * mp.cos(mp.pi * (k + mp.mpf("0.5")) / 37) for k in range(37)] + [low, high]
    wanted = [f(t) for t in checks]
    for n in range(6, 44):
        nodes = [mp.cos(mp.pi * (k + mp.mpf("0.5")) / n) for k in range(n)]
        values = [f(middle + half * t) for t in nodes]
        matrix = mp.matrix(n, n)
        for i in range(n):
            for j in range(n):
                matrix[i, j] = nodes[i] ** j
        c = mp.lu_solve(matrix, mp.matrix(values))
        c = [c[j] / half**j for j in range(n)]
        error = 0
        for t, v in zip(checks, wanted):
            e = abs(mp.polyval(c[::-1], t - middle) - v)
            error = max(error, e / abs(v) if relative else e)
        if error < BOUND:
            return c, error
    raise SystemExit("no polynomial is good enough")


def show(name, f, cuts, relative=True):
    """Polynomials of f, or of one function for each pair of cuts."""
    of = f.get if isinstance(f, dict) else lambda _: f
    pieces = [fit(of((a, b)), a, b, relative) for a, b in zip(cuts, cuts[1:])]
    longest = max(len(c) for c, _ in pieces)
    worst = max(e for _, e in pieces)
    kind = "relative" if relative else "absolute"
    print(f"// From {cuts[0]} to {cuts[-1]}, {kind} error {mp.nstr(worst, 2)}.")
    print(f"inline constexpr double k{name}[][{longest}] = {{")
    for c, _ in pieces:
        numbers = [mp.nstr(x, 20) for x in c] + ["0"] * (longest - len(c))
        print("    {" + ", ".join(numbers) + "},")
    print("};")


def scaled(bessel, sign, order):
    def f(t):
        if t == 0:
            return mp.sqrt(mp.pi / 2) if sign > 0 else 1 / mp.sqrt(2 * mp.pi)
        x = 1 / t
        return bessel(order, x) * mp.exp(sign * x) * mp.sqrt(x)

    return f


def airy_right(t):
    if t == 0:
        return 1 / (2 * mp.sqrt(mp.pi))
    z = 1 / t
    x = (3 * z / 2) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(z) * x ** mp.mpf("0.25")


def airy_left(part):
    def f(t):
        if t == 0:
            return 1 / mp.sqrt(mp.pi) if part == 0 else mp.mpf(5) / 72 / mp.sqrt(mp.pi)
        z = 1 / t
        x = (3 * z / 2) ** (mp.mpf(2) / 3)
        a, b = mp.airyai(-x) * x ** mp.mpf("0.25"), mp.airybi(-x) * x ** mp.mpf("0.25")
        s, c = mp.sin(z - mp.pi / 4), mp.cos(z - mp.pi / 4)
        return c * a - s * b if part == 0 else (s * a + c * b) / t

    return f


def hankel(order, part):
    """P or Q / t of J = sqrt(2 / (pi x)) (P cos(u) - Q sin(u)), Y = sqrt(2 / (pi x)) (P sin(u) + Q cos(u)),
    u = x - (order / 2 + 1 / 4) pi (DLMF 10.17.3), in t = 1 / x."""

    def f(t):
        if t == 0:
            return mp.mpf(1) if part == 0 else mp.mpf(4 * order**2 - 1) / 8
        x = 1 / t
        j, y, angle = mp.besselj(order, x), mp.bessely(order, x), x - (2 * order + 1) * mp.pi / 4
        s, c = mp.sin(angle), mp.cos(angle)
        return mp.sqrt(mp.pi * x / 2) * (c * j + s * y if part == 0 else (c * y - s * j) * x)

    return f


def middle(name, f, cuts):
    """f over its distance from the zero that it has in each piece, and those zeros, of two doubles each."""
    pairs = list(zip(cuts, cuts[1:]))
    zeros = [mp.findroot(f, pair, solver="anderson", tol=mp.mpf("1e-110")) for pair in pairs]
    assert all(a < z < b for z, (a, b) in zip(zeros, pairs)), zeros
    piece = {pair: lambda x, z=z: f(x) / (x - z) for pair, z in zip(pairs, zeros)}
    show(f"Middle{name}", piece, cuts)
    print(f"inline constexpr double kZero{name}[][2] = {{")
    for z in zeros:
        print(f"    {{{float(z)!r}, {float(z - mp.mpf(float(z)))!r}}},")
    print("};")


def series(name, order, terms, psi=False, sign=1, first=0):
    """Coefficients sign^k / (k! (k + order)!) from term `first` on. For K and Y they are multiplied by
    psi(k + 1) + psi(k + 1 + order), plus 2 log 2 for Y, so that the other sum
    has the factor log(x) and fewer digits cancel."""
    numbers = []
    for k in range(first, first + terms):
        factor = (
            mp.psi(0, k + 1) + mp.psi(0, k + 1 + order) + (2 * mp.log(2) if sign < 0 else 0) if psi else 1
        )
        numbers.append(factor * mp.mpf(sign) ** k / (mp.factorial(k) * mp.factorial(k + order)))
    row(name, numbers)


def row(name, numbers):
    print(
        f"inline constexpr double k{name}[{len(numbers)}] = {{"
        + ", ".join(mp.nstr(x, 20) for x in numbers)
        + "};"
    )


def temme(rows, columns):
    """d[k][n] of Temme's expansion, from mu - log(1 + mu) = eta^2 / 2 (DLMF 8.12.11 ff.)."""
    terms = columns + 2 * rows + 3
    # (1 + mu) eta = mu mu': coefficients of mu in eta.
    alpha = [mp.mpf(0), mp.mpf(1)]
    for n in range(2, terms):
        # mu' = eta (1 + mu) / mu gives sum_{i+j=n+1} j alpha_i alpha_j = [n = 1] + alpha_{n-1}
        known = sum(j * alpha[n + 1 - j] * alpha[j] for j in range(2, n))
        alpha.append((alpha[n - 1] - known) / (n + 1))
    double = mp.mpf(1)
    stirling = []
    for k in range(rows):
        # g_k = (2k + 1)!! alpha_{2k+1}
        if k:
            double *= 2 * k + 1
        stirling.append(double * alpha[2 * k + 1])
    d = [[(n + 2) * alpha[n + 2] for n in range(terms - 3)]]
    d[0][0] = mp.mpf(-1) / 3
    first = list(d[0])
    for k in range(1, rows):
        d.append(
            [(-1) ** k * stirling[k] * first[n] + (n + 2) * d[k - 1][n + 2] for n in range(len(d[k - 1]) - 2)]
        )
    print("// Temme's expansion of the incomplete gamma functions: powers of 1/a, then of eta.")
    print(f"inline constexpr double kTemme[][{columns}] = {{")
    for row in d:
        print("    {" + ", ".join(mp.nstr(x, 20) for x in row[:columns]) + "},")
    print("};")
    # eta = 0.3, a = 30
    a, eta = mp.mpf(150), mp.mpf("-0.3")
    mu = mp.findroot(lambda m: m - mp.log(1 + m) - eta**2 / 2, -0.27)
    total = sum(a**-k * sum(d[k][n] * eta**n for n in range(columns)) for k in range(rows))
    q = mp.erfc(eta * mp.sqrt(a / 2)) / 2 + mp.exp(-a * eta**2 / 2) / mp.sqrt(2 * mp.pi * a) * total
    assert abs(q / mp.gammainc(a, a * (1 + mu), regularized=True) - 1) < mp.mpf("1e-19"), (
        q,
        mp.gammainc(a, a * (1 + mu), regularized=True),
    )


def main():
    print("// Written by mapped_tables.py: polynomials in the distance from the middle of each piece.")
    print("#pragma once\n\nnamespace facula::loop::mapped {\n")
    eighth = mp.mpf(1) / 8
    print("// sqrt(x) exp(-x) I(x) in 1/x.")
    show("ScaledI0", scaled(mp.besseli, -1, 0), [0, eighth / 4, eighth])
    show("ScaledI1", scaled(mp.besseli, -1, 1), [0, eighth / 4, eighth])
    print("// sqrt(x) exp(x) K(x) in 1/x.")
    cuts = [0, eighth, 3 * eighth, 1]
    show("ScaledK0", scaled(mp.besselk, 1, 0), cuts)
    show("ScaledK1", scaled(mp.besselk, 1, 1), cuts)
    print("// Ai(x).")
    show("Airy", mp.airyai, list(range(-6, 3)), False)
    print("// x^(1/4) exp(z) Ai(x) in 1/z, z = 2/3 x^(3/2).")
    show("AiryRight", airy_right, [0, mp.mpf(1) / 16, mp.mpf(1) / 5, mp.mpf("0.54")])
    print("// x^(1/4) Ai(-x) = cos(z - pi/4) p + sin(z - pi/4) q / z: p and q in 1/z.")
    show("AiryCosine", airy_left(0), [0, mp.mpf("0.103")])
    show("AirySine", airy_left(1), [0, mp.mpf("0.103")])
    print("// 1 / Gamma(1 + t), and log(Gamma(1 + t)) / t.")
    show("GammaReciprocal", lambda t: mp.rgamma(1 + t), [0, 1])
    show("LogGammaSlope", lambda t: mp.loggamma(1 + t) / t if t else -mp.euler, [0, mp.mpf("1.25")], False)
    print("// J and Y over the distance from the one zero in each piece.")
    for order in (0, 1):
        middle(f"J{order}", lambda x, n=order: mp.besselj(n, x), [2, 5, 8])
        middle(f"Y{order}", lambda x, n=order: mp.bessely(n, x), [2, 5, 8])
    print("// J = sqrt(2 / (pi x)) (p cos(u) - q sin(u) / x), u = x - pi/4 or x - 3 pi/4: p and q in 1/x.")
    for order in (0, 1):
        for part, kind in enumerate(("Cosine", "Sine")):
            show(f"Hankel{kind}{order}", hankel(order, part), [0, eighth])
    print(
        "// Power series in y = x^2 / 4 (DLMF 10.2.2, 10.8, 10.25.2, 10.31);"
        " of I and K for y <= 1/4, else for y <= 1."
    )
    for order in (0, 1):
        series(f"NearI{order}", order, 11)
        series(f"NearK{order}", order, 11, psi=True)
        series(f"NearJ{order}", order, 12, sign=-1, first=2 - order)
        series(f"NearY{order}", order, 13, psi=True, sign=-1)
    print("// 1 / k.")
    row("Reciprocals", [mp.mpf(0)] + [1 / mp.mpf(k) for k in range(1, 32)])
    print("// B_2k / (2k)!.")
    row("EulerMaclaurin", [mp.bernoulli(2 * k) / mp.factorial(2 * k) for k in range(1, 13)])
    temme(9, 24)
    print("\n}  // namespace facula::loop::mapped")


main()
