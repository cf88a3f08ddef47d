"""Calls in all their forms: the answers that record_call_forms.py recorded from PyTorch."""

import json
import sys
from pathlib import Path

import pytest

import facula

GOLDEN = Path(__file__).parent.parent / "golden"
sys.path.insert(0, str(GOLDEN))
from record_call_forms import answer  # noqa: E402
from support import recording  # noqa: E402

FORMS = [json.loads(line) for line in recording.read("call_forms.jsonl").splitlines()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call, want", FORMS, ids=[call for call, _ in FORMS])
def test_a_call_in_this_form_answers_as_pytorch_does(call, want):
    assert answer(facula, call) == want
