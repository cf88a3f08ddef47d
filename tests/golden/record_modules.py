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
from support.modules import CASES, results  # noqa: E402

warnings.simplefilter("ignore")
with open(HERE / "modules.jsonl", "w") as file:
    for constructor, arguments in CASES:
        file.write(json.dumps({"module": constructor, **results(torch, constructor, arguments)}) + "\n")
