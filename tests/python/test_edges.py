"""The operators answer a recorded part of the calls with special values as PyTorch does; tests/edges
tells the rest.
"""

import re

import facula._C as C
import numpy as np
import pytest
from support.replays import GOLDEN, TESTS, passes


@pytest.mark.timeout(900)
def test_operators_answer_the_recorded_calls_at_the_edges():
    passes("edges/run.py", "--replay", GOLDEN / "edges.zip", "--known", GOLDEN / "edges.txt")


def test_a_declared_difference_says_where_and_why():
    """An expression for the beginning of a line, which names a dtype, and a reason of a sentence's worth."""
    for o in C.operators():
        name = o["name"] + ("." + o["overload"] if o["overload"] else "")
        for where, why in C.inspect_operator(name)["differences"]:
            assert re.match(where, "float32") is None and len(why) > 20, f"{name}: {where}: {why}"


def test_only_numbers_no_further_from_the_exact_one_than_the_peers_are_nearer(monkeypatch):
    for folder in ("conformance", "edges"):
        monkeypatch.syspath_prepend(TESTS / folder)
    from compare import nearer

    inf, nan = np.inf, np.nan
    rows = [  # ours, the peer's, the exact one
        (1.0, 1.5, 1.1, True),
        (1.5, 1.0, 1.1, False),
        (1.2, 1.0, 1.1, True),  # as far on the other side
        (1.0, nan, 1.1, True),
        (nan, 1.5, 1.1, False),
        (nan, inf, 1.1, False),
        (nan, inf, nan, True),
        (inf, nan, 1.1, False),
        (inf, nan, inf, True),
        (inf, 3.0, inf, True),
        (3.0, nan, inf, False),
        (-inf, inf, inf, False),
        (0.0, -0.0, -0.0, False),
        (-0.0, 0.0, -0.0, True),
        (0.0, 1.0, 0.5, True),
    ]
    ours, peers, exact, wanted = map(np.array, zip(*rows))
    assert (nearer(ours, peers, exact, True) == wanted).all()
    assert nearer(np.array([0.0]), np.array([-0.0]), np.array([-0.0]), False).all()
    assert not nearer(np.array([1]), np.array([2]), np.array([1]), True).any()  # integers are equal or not
    assert nearer(*(np.array([x + 1j]) for x in (1.0, 2.0, 1.4)), True).all()
