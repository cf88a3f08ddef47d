"""Records which of several equal elements PyTorch's topk and kthvalue take, of the lines of
tests/python/support/ties.py.

Run with PyTorch installed: python tests/golden/record_ties.py
"""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support.ties import DTYPES, cases, picks  # noqa: E402

with open(HERE / "ties.jsonl", "w") as f:
    for dtype in DTYPES:
        for case in cases(dtype):
            f.write(json.dumps([dtype, *case, picks(torch, dtype, *case)]) + "\n")
