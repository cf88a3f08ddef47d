"""Records what PyTorch makes of mixed operands, for tests/python/test_behaviours.py.

Run with PyTorch installed: python tests/golden/record_promotions.py
Lines: operator, left, right, result dtype, result. An operand is "dtype" (a vector of one element), "dtype()"
(0-d) or a number.
"""

import random
from pathlib import Path

import torch

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
OPERATORS = """
    add sub mul div floor_divide remainder pow maximum atan2 eq lt where bitwise_and lerp fmod copysign
""".split()
NUMBERS = ["True", "2", "1.5", "(1+2j)"]


def operand(text, value):
    if text in NUMBERS:
        return eval(text)
    d = getattr(torch, text.removesuffix("()"))
    t = torch.tensor(value).to(d)
    return t if text.endswith("()") else t.reshape(1)


def apply(name, a, b):
    if name == "where":
        return torch.where(torch.tensor([True]), a, b)
    if name == "lerp":
        return torch.lerp(a, b, 0.5)
    return getattr(torch, name)(a, b)


if __name__ == "__main__":
    pick = random.Random(11)
    seen, lines = set(), []
    while len(lines) < 420:
        name = pick.choice(OPERATORS)
        a, b = (pick.choice([*DTYPES, *(d + "()" for d in DTYPES), *NUMBERS]) for _ in range(2))
        if (name, a, b) in seen or (a in NUMBERS and b in NUMBERS):
            continue
        seen.add((name, a, b))
        try:
            r = apply(name, operand(a, 3), operand(b, 2))
            if r.dtype == torch.complex32:
                continue
            out = f"{str(r.dtype).split('.')[1]}\t{r.reshape(-1)[0].item()!r}"
        except Exception as e:
            out = f"error\t{type(e).__name__}"
        lines.append(f"{name}\t{a}\t{b}\t{out}")
    (Path(__file__).parent / "mixed_operands.txt").write_text("\n".join(lines) + "\n")
