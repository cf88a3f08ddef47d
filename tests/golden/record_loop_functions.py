"""Records values and gradients of scalar functions as PyTorch gives them, for tests/cpp/loop_golden_test.cpp.

    python tests/golden/record_loop_functions.py > tests/golden/loop_functions.txt

in an environment with PyTorch.

Lines: function, dtype, operands, value, gradients of the operands for the seed 1 (complex: 0.5 + 2i).
"""

import random

import torch

UNARY = (
    "neg abs sign floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos "
    "tan asin "
    "acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid relu"
).split()
BINARY = ("add sub mul div remainder fmod pow atan2 max min fmax fmin copysign").split()
COMPLEX = (
    "neg abs sign sqrt rsqrt reciprocal exp log log2 log10 log1p expm1 exp2 sin cos tan asin acos atan sinh "
    "cosh tanh "
    "asinh acosh atanh sigmoid real imag conj"
).split()
COMPLEX_BINARY = "add sub mul div pow".split()
TORCH = {"max": torch.maximum, "min": torch.minimum, "sign": torch.sgn}
POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.75, 2.0, -2.5, 30.0, float("inf"), float("-inf"), float("nan")]
PAIRS = [0.0, 1.0, -1.0, 0.5, 2.0, float("inf"), float("nan")]


def text(x):
    x = x.item() if isinstance(x, torch.Tensor) else x
    if isinstance(x, complex):
        return f"{x.real!r} {x.imag!r}"
    return repr(float(x))


def record(name, dtype, *operands):
    f = TORCH.get(name) or getattr(torch, name)
    xs = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in operands]
    y = f(*xs)
    seed = torch.tensor(0.5 + 2j if y.is_complex() else 1.0, dtype=y.dtype)
    try:
        grads = torch.autograd.grad(y, xs, seed, allow_unused=True)
    except RuntimeError:
        return
    grads = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, xs)]
    kind = "complex128" if dtype.is_complex else "float64"
    print(name, kind, *map(text, xs), text(y), *map(text, grads))


for name in UNARY:
    for x in POINTS:
        record(name, torch.float64, x)
for name in BINARY:
    for x in PAIRS:
        for z in PAIRS:
            record(name, torch.float64, x, z)
rng = random.Random(1)
points = [complex(rng.uniform(-3, 3), rng.uniform(-3, 3)) for _ in range(6)] + [
    1e-9 + 2e-9j,
    40 + 1j,
    0.999 + 0.01j,
    -2 + 0j,
    0.3 + 0j,
]
for name in COMPLEX:
    for z in points:
        record(name, torch.complex128, z)
for name in COMPLEX_BINARY:
    for z in points[:6]:
        record(name, torch.complex128, z, complex(rng.uniform(-2, 2), rng.uniform(-2, 2)))
record("abs", torch.complex128, 0j)
