"""Sobol sequences: points that fill the unit cube more evenly than random ones.

Sources: Sobol, 1967; the order of Antonov and Saleev, 1979; direction numbers of Joe and Kuo,
"Constructing Sobol sequences with better two-dimensional projections", 2008; scrambling of Matousek,
1998.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from . import _C
from ._C import default_generator, get_default_dtype, tensor

__all__ = ["SobolEngine"]

Tensor = _C.Tensor
f = _C.functions

# For dimensions from 2 on: the coefficients of the primitive polynomial, without the first and last ones,
# which are 1, and the first direction numbers. SciPy has the remainder of new-joe-kuo-6.21201.
_FIRST = """
1  1
2 1  1 3
3 1  1 3 1
3 2  1 1 1
4 1  1 1 3 3
4 4  1 3 5 13
5 2  1 1 5 5 17
5 4  1 1 5 5 5
5 7  1 1 7 11 19
5 11  1 1 5 1 1
5 13  1 1 1 3 11
5 14  1 3 5 5 31
6 1  1 3 3 9 7 49
6 13  1 1 1 15 21 21
6 16  1 3 1 13 27 49
6 19  1 1 1 15 7 5
6 22  1 3 1 15 13 25
6 25  1 1 5 5 19 61
7 1  1 3 7 11 23 15 103
7 4  1 3 7 13 13 15 69
"""


def _built_in() -> list[tuple[int, list[int]]]:
    """Returns (polynomial as bits, direction numbers) by dimension, from the second on."""
    rows: list[tuple[int, list[int]]] = []
    for line in _FIRST.strip().split("\n"):
        head, _, numbers = line.partition("  ")
        degree, *middle = map(int, head.split())
        between = middle[0] if middle else 0
        rows.append((1 << degree | between << 1 | 1, list(map(int, numbers.split()))))
    return rows


@functools.cache
def _table(dimension: int) -> list[tuple[int, list[int]]]:
    if dimension <= len(_built_in()) + 1:
        return _built_in()[: dimension - 1]
    try:
        import numpy
        import scipy.stats  # type: ignore[import-not-found, import-untyped, unused-ignore]

        file = Path(scipy.stats.__file__).parent / "_sobol_direction_numbers.npz"
        with numpy.load(file) as table:
            polynomials, numbers = table["poly"], table["vinit"]
    except (ImportError, OSError, KeyError) as e:
        raise NotImplementedError(
            f"SobolEngine: {dimension} dimensions need the direction numbers of Joe and Kuo beyond the "
            f"{len(_built_in()) + 1}th, which are read from SciPy's ({e})\n  hint: pip install scipy"
        ) from e
    rows = []
    for k in range(1, dimension):
        p = int(polynomials[k])
        rows.append((p, [int(v) for v in numbers[k][: p.bit_length() - 1]]))
    return rows


def _directions(dimension: int, bits: int) -> list[list[int]]:
    """Returns the direction numbers: row d, bit 0 first, as integers of that many bits."""
    rows = [[1 << (bits - 1 - j) for j in range(bits)]]
    for polynomial, first in _table(dimension):
        degree = polynomial.bit_length() - 1
        m = list(first)
        for j in range(degree, bits):
            v = m[j - degree] ^ m[j - degree] << degree
            for k in range(1, degree):
                if polynomial >> (degree - k) & 1:
                    v ^= m[j - k] << k
            m.append(v)
        rows.append([v << (bits - 1 - j) for j, v in enumerate(m[:bits])])
    return rows


class SobolEngine:
    """Draws from a Sobol sequence of up to 21201 dimensions (more than 21 require SciPy).

    ``scramble`` permutes it at random, by ``seed`` or the default generator, without changing how evenly
    the points are distributed.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = tensor(_directions(dimension, self.MAXBIT), dtype=_C.int64)
        self.shift = f.zeros(dimension, dtype=_C.int64)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: _C.dtype | None = None) -> Tensor:
        """Returns the next ``n`` points, ``[n, dimension]``, in [0, 1)."""
        dtype = get_default_dtype() if dtype is None else dtype
        if self.num_generated == 0:
            if n == 1:
                result = self._first_point.to(dtype)
            else:
                result = f.cat((self._first_point.to(dtype), self._points(n - 1).to(dtype)), -2)
        else:
            result = self._points(n).to(dtype)
        self.num_generated += n
        if out is not None:
            out.resize_as_(result).copy_(result)
            return out
        return result

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: _C.dtype | None = None) -> Tensor:
        """Returns the next ``2**m`` points, which are balanced: their total number must become a power of
        2.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1) != 0:
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def _points(self, n: int) -> Tensor:
        """Returns ``n`` points: point k + 1 is point k xor the direction number of the lowest 0 bit of k."""
        begin = max(self.num_generated - 1, 0)
        k = f.arange(begin, begin + n, dtype=_C.int64)
        lowest = f.zeros_like(k)
        for bit in range(self.MAXBIT):
            lowest = f.where((k & ((1 << (bit + 1)) - 1)) == (1 << bit) - 1, bit, lowest)
        steps = self.sobolstate.index_select(1, lowest)  # [dimension, n]
        gathered = f.zeros_like(steps)
        for bit in range(self.MAXBIT):  # accumulated xor, bit by bit: parities of sums
            ones = ((steps >> bit) & 1).cumsum(1) & 1
            gathered |= ones << bit
        points = gathered ^ self.quasi.unsqueeze(1)
        if n:
            self.quasi = points[:, -1].clone()
        return points.t() / 2**self.MAXBIT

    def fast_forward(self, n: int) -> SobolEngine:
        """Skips ``n`` points."""
        steps = n - 1 if self.num_generated == 0 else n
        begin = max(self.num_generated - 1, 0)
        if steps > 0:
            # Gray code: the direction numbers that are applied an odd number of times.
            before, after = begin ^ begin >> 1, (begin + steps) ^ (begin + steps) >> 1
            for bit in range(self.MAXBIT):
                if (before ^ after) >> bit & 1:
                    self.quasi = self.quasi ^ self.sobolstate[:, bit]
        self.num_generated += n
        return self

    def reset(self) -> SobolEngine:
        """Returns to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def _scramble(self) -> None:
        g: Any = default_generator
        if self.seed is not None:
            g = _C.Generator()
            g.manual_seed(self.seed)
        bits, size = self.MAXBIT, self.dimension
        weights = 2 ** f.arange(bits, dtype=_C.int64)
        shifts = f.randint(2, (size, bits), generator=g, dtype=_C.int64)
        self.shift = (shifts * weights).sum(1)
        # For each dimension, a random lower triangular matrix over GF(2) with ones on its diagonal.
        lower = f.randint(2, (size, bits, bits), generator=g, dtype=_C.int64).tril(-1) + f.eye(
            bits, dtype=_C.int64
        )
        places = f.arange(bits - 1, -1, -1, dtype=_C.int64)
        columns = (self.sobolstate.unsqueeze(2) >> places) & 1  # [dimension, number, bit], the highest first
        turned = (columns @ lower.mT) & 1
        self.sobolstate = (turned << places).sum(2)

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        if self.scramble:
            shown.append("scramble=True")
        if self.seed is not None:
            shown.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(shown)})"
