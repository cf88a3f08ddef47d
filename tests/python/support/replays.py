"""Starts the programs beside this folder that replay recorded calls in Facula."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "golden"


def passes(program, *arguments):
    """Runs tests/<program>; what it printed if it fails."""
    r = subprocess.run([sys.executable, TESTS / program, *arguments], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout[-4000:] + r.stderr[-2000:]
