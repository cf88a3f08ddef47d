"""The operators answer a recorded part of the calls with special values as PyTorch does; tests/edges
tells the rest.
"""

import re
import subprocess
import sys
from pathlib import Path

import facula._C as C
import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.timeout(900)
def test_operators_answer_the_recorded_calls_at_the_edges():
    r = subprocess.run(
        [
            sys.executable,
            TESTS / "edges" / "run.py",
            "--replay",
            TESTS / "golden" / "edges.zip",
            "--known",
            TESTS / "golden" / "edges.txt",
        ],
        capture_output=True,
        text=True,
    )
    assert r.returncode == 0, r.stdout[-4000:] + r.stderr[-2000:]


def test_a_declared_difference_says_where_and_why():
    """An expression for the beginning of a line, which names a dtype, and a reason of a sentence's worth."""
    for o in C.operators():
        name = o["name"] + ("." + o["overload"] if o["overload"] else "")
        for where, why in C.inspect_operator(name)["differences"]:
            assert re.match(where, "float32") is None and len(why) > 20, f"{name}: {where}: {why}"
