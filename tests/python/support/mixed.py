"""Calls with operands of different kinds, made alike for PyTorch (tests/golden/record_promotions.py) and
Facula (tests/python/test_implicit_behaviours.py).

An operand is "dtype" (a vector of the values below), "dtype()" (0-d, the second of them) or a number.
"""

import json
import operator
from math import inf, nan

import numpy as np

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
NUMBERS = ["True", "2", "-3", "0", "300", "1.5", "-0.25", "(1+2j)"]
OPERATORS = """
    add sub mul div floor_divide remainder pow maximum atan2 eq lt where bitwise_and lerp fmod copysign
""".split()
# The form of an operator that takes a number on its left.
PYTHON = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": operator.pow,
    "eq": operator.eq,
    "lt": operator.lt,
    "bitwise_and": operator.and_,
}
# Left and right: extremes that wrap, numbers that a wider type holds and a narrower one does not, signs for
# division and remainders. No integer divisor is 0: that is an error of its own.
FLOATS = [3.0, -7.5, 0.0, 100.25, -0.0, inf, 2.5], [2.0, -3.5, -4.0, nan, 7.0, 0.1, inf]
VALUES = {
    "bool": ([True, False, True, True, False, False, True], [True, True, True, True, True, True, True]),
    "uint8": ([3, 200, 0, 100, 255, 5, 17], [2, 3, 250, 7, 1, 9, 4]),
    "int8": ([3, -7, 0, 100, -128, 5, 127], [2, 3, -4, 7, 1, -9, 5]),
    "int16": ([3, -7, 0, 30000, -32768, 5, 1001], [2, 3, -4, 7, 1, -9, 5]),
    "int32": ([3, -7, 0, 2**31 - 1, -(2**31), 5, 16777217], [2, 3, -4, 7, 1, -9, 5]),
    "int64": ([3, -7, 0, 2**53 + 1, -(2**63), 5, 2**40 + 3], [2, 3, -4, 7, 1, -9, 5]),
}
COMPLEX = (
    [3 + 1j, -7.5 - 2j, 0j, 1j, 2 - 0.5j, -1 + 0j, 0.25 + 4j],
    [2 + 0j, -3 + 1j, 1j, 0.5 - 2j, 7 + 7j, 1 + 0j, -1j],
)


def operand(lib, text, side):
    if text in NUMBERS:
        return eval(text)
    name = text.removesuffix("()")
    values = VALUES.get(name, COMPLEX if name.startswith("complex") else FLOATS)[side]
    kind = "complex128" if name.startswith("complex") else "float64" if name not in VALUES else name
    t = lib.from_numpy(np.array(values, dtype=kind)).to(getattr(lib, name))
    return t[1].clone() if text.endswith("()") else t


def call(lib, name, a, b):
    if name == "where":
        return lib.where(lib.tensor([True, False, True, False, True, False, True]), a, b)
    if name == "lerp":
        return lib.lerp(a, b, 0.5)
    if not isinstance(a, lib.Tensor) and name in PYTHON:
        return PYTHON[name](a, b)
    return getattr(lib, name)(a, b)


def outcome(lib, name, left, right):
    """(dtype, values as JSON) or ("error", its type)."""
    try:
        r = call(lib, name, operand(lib, left, 0), operand(lib, right, 1))
    except Exception as e:  # noqa: BLE001  the type is what is compared
        return "error", type(e).__name__
    dtype = str(r.dtype).split(".")[-1]
    values = lib.view_as_real(r.to(lib.complex128)) if dtype.startswith("complex") else r
    return dtype, json.dumps(values.reshape(-1).tolist(), separators=(",", ":"))
