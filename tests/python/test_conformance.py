"""The operators answer a recorded part of PyTorch's own database of operators as PyTorch does;
tests/conformance tells the rest.
"""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(300)
def test_operators_answer_the_recorded_calls_of_the_peers_database():
    r = subprocess.run(
        [
            sys.executable,
            TESTS / "conformance" / "replay.py",
            TESTS / "golden" / "conformance.zip",
            "--known",
            TESTS / "golden" / "conformance.txt",
        ],
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stdout[-4000:] + r.stderr[-2000:]


def test_differences_that_stay_are_single_answers_with_a_reason():
    for line in (TESTS / "conformance" / "differences.txt").read_text().splitlines():
        if not line.startswith("#"):
            entry, call, given, reason = line.split(" | ")
            assert entry and given and len(call.split()) >= 2 and len(reason.split()) >= 3, line
