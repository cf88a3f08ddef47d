"""Evaluates scalar functions with PyTorch for codegen_math_test.cpp: python peer_functions.py FOLDER NAME...

FOLDER holds the arguments, x.float32, y.float32, x.float64 and y.float64; the results are written beside
them, as NAME.float32 and NAME.float64.
"""

import sys
from pathlib import Path

import torch

BY_NAME = {
    "ndtr": lambda x, y: torch.special.ndtr(x),
    "gelu": lambda x, y: torch.nn.functional.gelu(x),
    "silu": lambda x, y: torch.nn.functional.silu(x),
    "pow": torch.pow,
    "atan2": torch.atan2,
}

folder = Path(sys.argv[1])
for dtype in (torch.float32, torch.float64):
    end = str(dtype).removeprefix("torch.")
    x, y = (torch.frombuffer(bytearray((folder / f"{v}.{end}").read_bytes()), dtype=dtype) for v in "xy")
    for name in sys.argv[2:]:
        function = BY_NAME.get(name, lambda x, y, name=name: getattr(torch, name)(x))
        (folder / f"{name}.{end}").write_bytes(function(x, y).numpy().tobytes())
