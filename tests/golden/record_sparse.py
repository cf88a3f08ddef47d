"""Records what PyTorch gives for the programs of tests/python/support/sparse.py.

Run with PyTorch installed: python tests/golden/record_sparse.py
"""

import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.sparse import PROGRAMS, result  # noqa: E402

rows = []
for program in PROGRAMS:
    rows.append(json.dumps({"program": program, "result": result(torch, program)}))
recording.write("sparse.jsonl", "".join(row + "\n" for row in rows))
