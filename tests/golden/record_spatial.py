"""Records what PyTorch gives for tests/python/support/spatial.py: python tests/golden/record_spatial.py"""

import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.spatial import CASES, byte_images, interpolated_bytes, results  # noqa: E402

warnings.simplefilter("ignore")
rows = []
for name, f, shapes in CASES:
    rows.append(json.dumps({"case": name, **results(torch, f, shapes)}))
for name, settings, shape in byte_images():
    rows.append(json.dumps({"case": name, "bytes": interpolated_bytes(torch, settings, shape)}))
recording.write("spatial.jsonl", "".join(row + "\n" for row in rows))
