"""Records what PyTorch makes of mixed operands, for tests/python/test_implicit_behaviours.py.

Run with PyTorch installed: python tests/golden/record_promotions.py
Lines: operator, left, right, dtype of the result or "error", values (complex ones as pairs) or the type
of the error.
tests/python/support/mixed.py says what the operands are.
"""

import random
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.mixed import DTYPES, NUMBERS, OPERATORS, outcome  # noqa: E402

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    pick = random.Random(11)
    kinds = [*DTYPES, *(d + "()" for d in DTYPES), *NUMBERS]
    seen, lines = set(), []
    while len(lines) < 1500:
        name, a, b = pick.choice(OPERATORS), pick.choice(kinds), pick.choice(kinds)
        if (name, a, b) in seen or (a in NUMBERS and b in NUMBERS):
            continue
        seen.add((name, a, b))
        found = outcome(torch, name, a, b)
        if found[0] != "complex32":
            lines.append("\t".join((name, a, b, *found)))
    recording.write("mixed_operands.txt", "\n".join(lines) + "\n")
