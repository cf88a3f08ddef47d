"""Records what PyTorch answers to calls on uint16, uint32, uint64, float8 and complex32, for
tests/python/test_rare_dtypes.py.

Run where PyTorch can be imported: python tests/golden/record_rare_dtypes.py
"""

import base64
import io
import json
import sys
import warnings
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support import recording  # noqa: E402
from support.rare_dtypes import FLOAT8, LIMITED, calls, digests, evaluate  # noqa: E402

warnings.simplefilter("ignore")


def saved(value, **options) -> str:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return base64.b64encode(file.getvalue()).decode()


lines = [json.dumps([call, evaluate(torch, call)]) for call in calls()]
lines += [json.dumps([f"digests {d}", digests(torch, d)]) for d in FLOAT8]
for d in LIMITED:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]]).to(getattr(torch, d))
    value = {"t": x, "part": x[:, 1:], "dtype": x.dtype}
    lines.append(json.dumps([f"saved {d}", saved(value)]))
    lines.append(json.dumps([f"stream {d}", saved(value, _use_new_zipfile_serialization=False)]))
recording.write("rare_dtypes.jsonl", "\n".join(lines) + "\n")
