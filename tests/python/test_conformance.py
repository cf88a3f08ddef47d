"""The operators answer a recorded part of PyTorch's own database of operators as PyTorch does;
tests/conformance tells the rest.
"""

import pytest
from support.replays import GOLDEN, TESTS, passes


@pytest.mark.timeout(300)
def test_operators_answer_the_recorded_calls_of_the_peers_database():
    passes("conformance/replay.py", GOLDEN / "conformance.zip", "--known", GOLDEN / "conformance.txt")


def test_differences_that_stay_are_single_answers_with_a_reason():
    for line in (TESTS / "conformance" / "differences.txt").read_text().splitlines():
        if not line.startswith("#"):
            entry, call, given, reason = line.split(" | ")
            assert entry and given and len(call.split()) >= 2 and len(reason.split()) >= 3, line
