"""Records what PyTorch says about printing, promotion and the strides of results, for
tests/cpp/tensor_*_test.cpp.

Run with PyTorch installed: python tests/golden/record_tensor.py
"""

import random
from pathlib import Path

import torch

HERE = Path(__file__).parent
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


def dtype(name):
    return getattr(torch, name)


def number(text):
    """'1.5' or '1.5:-2' (real:imaginary), as the C++ test reads it."""
    parts = [float(p) if any(c in p for c in ".enif") else int(p) for p in text.split(":")]
    return complex(*parts) if len(parts) == 2 else parts[0]


def record_printing():
    """Blocks of `dtype | sizes | elements or a fill | suffix`, the text of PyTorch, and a line of ---."""
    cases = [
        ("float32", "", "1.5"),
        ("float32", "", "3"),
        ("float32", "", "nan"),
        ("float32", "", "1e-5"),
        ("int64", "", "7"),
        ("bool", "", "1"),
        ("complex64", "", "1.5:-2"),
        ("complex128", "", "0:1"),
        ("float16", "", "0.1"),
        ("float32", "0", ""),
        ("float32", "0 3", ""),
        ("int64", "0", ""),
        ("int32", "2 0", ""),
        ("bool", "0", ""),
        ("complex64", "3 0 2", ""),
        ("float64", "0", ""),
        ("float32", "3", "1 2 3"),
        ("float32", "3", "1 2.5 3"),
        ("float32", "4", "nan inf -inf 0"),
        ("float32", "4", "nan inf -inf 1"),
        ("float32", "4", "nan inf -inf 0.5"),
        ("float32", "3", "0 -0.0 0"),
        ("float32", "2", "-0.0 5"),
        ("float32", "2", "0.0001 0.0002"),
        ("float64", "2", "0.0001 0.0002"),
        ("float32", "3", "1 1000 1001"),
        ("float32", "3", "1 1001 -5"),
        ("float32", "3", "0.5 501 0"),
        ("float32", "3", "1e8 1e8 2e8"),
        ("float32", "2", "1e9 1e9"),
        ("float64", "3", "1e100 2e-300 nan"),
        ("float32", "3", "-1e10 inf nan"),
        ("float64", "2", "123456.789 1000"),
        ("float32", "2", "0.00001 0.5"),
        ("float16", "3", "0.1 65504 -3"),
        ("bfloat16", "2 2", "0.1 2 300 4.5"),
        ("float64", "2 2", "1 -2 3 4"),
        ("int64", "2 3", "1 -20 300 4 5 6"),
        ("int64", "2", "9223372036854775807 -9223372036854775808"),
        ("uint8", "4", "0 1 255 17"),
        ("int8", "2 2", "-128 127 0 5"),
        ("int16", "3", "1 2 3"),
        ("int32", "1", "9"),
        ("bool", "2 2", "1 0 0 1"),
        ("bool", "3", "1 1 1"),
        ("complex64", "3", "1:2 -3.5:0 0:-1"),
        ("complex64", "2", "1:2 3:-4"),
        ("complex128", "2", "1e-5:1 1:1e5"),
        ("complex64", "2 2", "1:10 100:-1 0:0 -5:5"),
        ("complex64", "3", "nan:1 inf:-inf 1:nan"),
        ("complex64", "2", "0:-0.0 -0.0:0"),
        ("float32", "1 1 1", "2.5"),
        ("float32", "2 1 2 2", "count"),
        ("float32", "2 2 2 2 2", "count"),
        ("float32", "40", "count"),
        ("float32", "40", "sevenths"),
        ("int64", "60", "count"),
        ("bool", "30", "parity"),
        ("complex64", "12", "spiral"),
        ("float32", "3 30", "sevenths"),
        ("float32", "2 2 17", "sevenths"),
        ("float32", "1000", "count"),
        ("float32", "1001", "count"),
        ("int64", "10 101", "count"),
        ("float32", "40 30", "sevenths"),
        ("float64", "2 600", "sevenths"),
        ("float32", "5 201", "sevenths"),
        ("int64", "11 10 10", "count"),
        ("float32", "1100 1", "sevenths"),
        ("float32", "7 7 7 7", "sevenths"),
        ("complex64", "20 60", "spiral"),
        ("bool", "2000", "parity"),
        ("int32", "100 100", "count"),
        ("float32", "6 200", "squares"),
        ("bfloat16", "1200", "sevenths"),
    ]
    for suffix in ("requires_grad=True", "grad_fn=<AddBackward0>"):
        cases += [
            ("float32", "3", "1 2 3", suffix),
            ("float32", "8", "sevenths", suffix),
            ("float32", "7", "sevenths", suffix),
            ("float32", "6", "sevenths", suffix),
            ("float64", "2 4", "sevenths", suffix),
            ("float64", "5", "sevenths", suffix),
            ("float32", "0 3", "", suffix),
            ("float16", "", "2", suffix),
            ("bfloat16", "2 9", "sevenths", suffix),
        ]
    out = []
    for name, sizes, elements, *suffix in cases:
        shape = [int(s) for s in sizes.split()]
        n = int(torch.Size(shape).numel())
        fills = {
            "count": range(n),
            "sevenths": [k / 7 - 1 for k in range(n)],
            "parity": [k % 2 for k in range(n)],
            "spiral": [complex(k / 2, 3 - k) for k in range(n)],
            "squares": [k * k for k in range(n)],
        }
        values = fills.get(elements) or [number(e) for e in elements.split()]
        t = torch.tensor(list(values), dtype=dtype(name)).reshape(shape)
        text = repr(t)
        if suffix and suffix[0].startswith("requires"):
            text = repr(t.requires_grad_())
        elif suffix:
            text = repr(t.requires_grad_() + 0)
        out.append(f"{name} | {sizes} | {elements} | {''.join(suffix)}\n{text}\n---\n")
    (HERE / "printing.txt").write_text("".join(out))


def record_promotion():
    """Lines of two operands and the dtype of their result; t: with dimensions, z: 0-d, n: a Python number."""
    names = [f"{kind}:{d}" for kind in "tz" for d in DTYPES] + [
        "n:bool",
        "n:int64",
        "n:float32",
        "n:complex64",
    ]

    def operand(text):
        kind, d = text.split(":")
        if kind == "n":
            return {"bool": True, "int64": 2, "float32": 2.5, "complex64": 2j}[d]
        return torch.ones([1] if kind == "t" else [], dtype=dtype(d))

    out = [f"{a} {b} {str(torch.result_type(operand(a), operand(b)))[6:]}\n" for a in names for b in names]
    casts = [f"cast {a} {b} {int(torch.can_cast(dtype(a), dtype(b)))}\n" for a in DTYPES for b in DTYPES]
    (HERE / "promotion.txt").write_text("".join(out + casts))


def record_strides():
    """Lines `sizes/strides [; sizes/strides] = strides of the sum`: results of pointwise operators of 1 to
    3 operands.
    """
    rng = random.Random(5)

    def operand(shape):
        kept = [
            1 if rng.random() < 0.2 else n
            for n in shape[(rng.randrange(len(shape)) if rng.random() < 0.25 else 0) :]
        ]
        order = list(range(len(kept)))
        if rng.random() < 0.7:
            rng.shuffle(order)
        t = torch.empty([kept[k] * (2 if rng.random() < 0.15 else 1) for k in order])
        t = t.permute([order.index(k) for k in range(len(kept))])
        for k, n in enumerate(kept):
            t = t.narrow(k, 0, n) if rng.random() < 0.7 or t.shape[k] == n else t.unfold(k, 1, 2).squeeze(-1)
            if n > 1 and rng.random() < 0.08:
                t = t.narrow(k, 0, 1).expand([n if j == k else m for j, m in enumerate(t.shape)])
        return t

    lines = set()
    while len(lines) < 600:
        shape = [
            rng.choice([0, 1, 2, 2, 3, 3, 4, 5] if rng.random() < 0.1 else [1, 2, 2, 3, 3, 4, 5])
            for _ in range(rng.randint(1, 5))
        ]
        operands = [operand(shape) for _ in range(rng.randint(1, 3))]
        result = (
            -operands[0]
            if len(operands) == 1
            else operands[0] + operands[1]
            if len(operands) == 2
            else torch.addcmul(*operands)
        )

        def text(t):
            return " ".join(map(str, t.shape)) + "/" + " ".join(map(str, t.stride()))

        lines.add("; ".join(map(text, operands)) + " = " + text(result) + "\n")
    (HERE / "strides.txt").write_text("".join(sorted(lines)))


record_printing()
record_promotion()
record_strides()
