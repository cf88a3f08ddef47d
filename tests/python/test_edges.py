"""The operators answer a recorded part of the calls with special values as PyTorch does; tests/edges
tells the rest.
"""

import re

import facula._C as C
import pytest
from support.replays import GOLDEN, passes


@pytest.mark.timeout(900)
def test_operators_answer_the_recorded_calls_at_the_edges():
    passes("edges/run.py", "--replay", GOLDEN / "edges.zip", "--known", GOLDEN / "edges.txt")


def test_a_declared_difference_says_where_and_why():
    """An expression for the beginning of a line, which names a dtype, and a reason of a sentence's worth."""
    for o in C.operators():
        name = o["name"] + ("." + o["overload"] if o["overload"] else "")
        for where, why in C.inspect_operator(name)["differences"]:
            assert re.match(where, "float32") is None and len(why) > 20, f"{name}: {where}: {why}"
