"""Every module against what PyTorch's shows and computes for the same parameters and arguments
(tests/golden/modules.jsonl, by tests/golden/record_modules.py)."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.modules import CASES, results

import facula

GOLDEN = {}
for line in (Path(__file__).parent.parent / "golden" / "modules.jsonl").read_text().splitlines():
    row = json.loads(line)
    GOLDEN[row.pop("module")] = row


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("constructor, arguments", CASES, ids=[c for c, _ in CASES])
def test_a_module_shows_and_computes_what_pytorch_does(constructor, arguments):
    ours, theirs = results(facula, constructor, arguments), GOLDEN[constructor]
    assert ours["repr"] == theirs["repr"].replace("torch.", "facula.")
    assert ours["state"] == theirs["state"]
    assert ours.keys() == theirs.keys()
    for what in ours.keys() - {"repr", "state"}:
        compare(what, ours[what], theirs[what])


def compare(what, ours, theirs):
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), what
        if all(isinstance(x, (int, float)) for x in theirs):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8, err_msg=what)
        else:
            for a, b in zip(ours, theirs):
                compare(what, a, b)
    else:
        assert ours == theirs, what
