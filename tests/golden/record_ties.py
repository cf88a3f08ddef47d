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
from support import recording  # noqa: E402
from support.ties import DTYPES, cases, picks  # noqa: E402

rows = []
for dtype in DTYPES:
    for case in cases(dtype):
        rows.append(json.dumps([dtype, *case, picks(torch, dtype, *case)]))
recording.write("ties.jsonl", "".join(row + "\n" for row in rows))
