"""Programs as tutorials have them, unmodified behind the alias: they print what PyTorch made them print; of
what random numbers change, that a loss falls and that most answers are right.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import facula

SCRIPTS = sorted(p for p in (Path(__file__).parents[1] / "zoo/scripts").glob("*.py") if p.name[0] != "_")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_script_prints_what_it_does_with_pytorch(script, tmp_path):
    command = [sys.executable, "-m", "facula.torch", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.with_suffix(".txt").read_text()
