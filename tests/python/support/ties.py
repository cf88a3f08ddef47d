"""Lines with equal elements, and which of them a library takes."""

import zlib

import numpy as np

DTYPES = ("float32", "float64", "bfloat16", "int64", "int32", "uint8")
SIZES = (1, 2, 3, 10, 24, 25, 64, 129, 200, 1500, 6000)


def line(lib, dtype, n, kinds):
    """n numbers of so many kinds; floats have NaNs and zeros of both signs among them."""
    i = np.arange(n)
    x = ((i * i * 7919 + i * 104729) % 1000003 % kinds).astype("float64")
    if "float" not in dtype:
        return lib.from_numpy(x.astype(dtype))
    x[x == 1] = np.nan
    x[(x == 0) & (i % 2 == 1)] = -0.0
    return lib.from_numpy(x).to(getattr(lib, dtype))


def cases(dtype):
    """(number of elements, kinds, k)"""
    for n in SIZES:
        for kinds in (2, 5, 60) if dtype == "uint8" else (2, 5, 60, 10**5):
            for k in sorted({1, 3, 20, n // 64 + 1, n // 9, n // 3, n - 1, n}):
                if 0 < k <= n:
                    yield n, kinds, k


def picks(lib, dtype, n, kinds, k):
    """Checksums of the indices of topk, of the largest and the smallest, and the index of kthvalue."""
    x = line(lib, dtype, n, kinds)
    top = [x.topk(k, largest=largest)[1] for largest in (True, False)]
    return [zlib.crc32(t.numpy().astype("<i8").tobytes()) for t in top] + [int(x.kthvalue(k)[1])]
