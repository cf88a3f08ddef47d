"""Records what PyTorch's modules show and compute, for tests/python/test_modules.py: python
tests/golden/record_modules.py
"""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.modules import CASES, results  # noqa: E402

warnings.simplefilter("ignore")
rows = []
for constructor, arguments in CASES:
    rows.append(json.dumps({"module": constructor, **results(torch, constructor, arguments)}))
recording.write("modules.jsonl", "".join(row + "\n" for row in rows))
