"""Records what PyTorch's torch.fx makes of programs: run by an interpreter that has PyTorch.

    python tests/golden/record_fx.py > tests/golden/fx.txt

A line for each program or edit: its name and a text, as JSON.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.fx

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
from support import fx_programs  # noqa: E402

warnings.simplefilter("ignore")
for name, text in fx_programs.answers(torch).items():
    print(json.dumps([name, text]))
