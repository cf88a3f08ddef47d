"""Schedules against the sequences that tests/golden/record_lr_schedules.py recorded from PyTorch."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from record_lr_schedules import CASES, GOLDEN, METRICS, OPTIMIZERS, advance, groups_of, momentum_of, sequence  # noqa: E402


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("case", CASES)
def test_rates_and_momenta_are_pytorchs(golden, case, optimizer):
    import facula

    got = sequence(facula, optimizer, case)
    for step, (mine, theirs) in enumerate(zip(got, golden[f"{case}/{optimizer}"], strict=True)):
        for group, (a, b) in enumerate(zip(mine, theirs)):
            assert a == pytest.approx(b, rel=1e-12, abs=1e-18), f"step {step}, group {group}"


@pytest.mark.parametrize("case", [c for c in CASES if not c.startswith("lambda")])
def test_a_restored_schedule_continues_the_sequence(tmp_path, case):
    import facula

    whole = sequence(facula, "adamw", case)
    o = OPTIMIZERS["adamw"](facula, groups_of(facula))
    s = CASES[case](facula.optim.lr_scheduler, o)
    for k in range(7):
        advance(o, s, METRICS[k])
    facula.save({"o": o.state_dict(), "s": s.state_dict()}, tmp_path / "s.pt")
    saved = facula.load(tmp_path / "s.pt")
    o2 = OPTIMIZERS["adamw"](facula, groups_of(facula))
    s2 = CASES[case](facula.optim.lr_scheduler, o2)
    o2.load_state_dict(saved["o"])
    s2.load_state_dict(saved["s"])
    rows = []
    for k in range(7, 19):
        advance(o2, s2, METRICS[k])
        rows.append([[g["lr"], momentum_of(g)] for g in o2.param_groups])
    assert rows == whole[8:]


def test_stepping_past_the_end_of_one_cycle_says_so():
    import facula

    o = facula.optim.SGD([facula.nn.Parameter(facula.ones(1))], lr=0.1, momentum=0.9)
    s = facula.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=3)
    with pytest.raises(ValueError, match="The specified number of total steps is 3"):
        for _ in range(6):
            advance(o, s, 0)


def test_scheduler_before_optimizer_warns():
    import facula

    o = facula.optim.SGD([facula.nn.Parameter(facula.ones(1))], lr=0.1)
    s = facula.optim.lr_scheduler.StepLR(o, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        s.step()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda s, o: s.OneCycleLR(o, 0.1), "total_steps OR"),
        (lambda s, o: s.OneCycleLR(o, 0.1, total_steps=0), "positive integer total_steps"),
        (lambda s, o: s.OneCycleLR(o, [0.1, 0.2], total_steps=5), "for max_lr"),
        (lambda s, o: s.OneCycleLR(o, 0.1, total_steps=5, anneal_strategy="no"), "anneal_strategy"),
        (lambda s, o: s.LinearLR(o, 0.0), "Starting multiplicative"),
        (lambda s, o: s.ReduceLROnPlateau(o, "mini"), "mode mini"),
        (lambda s, o: s.ReduceLROnPlateau(o, factor=1.0), "Factor"),
        (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]), "milestone"),
    ],
)
def test_wrong_options_are_refused(make, message):
    import facula

    o = facula.optim.SGD([facula.nn.Parameter(facula.ones(1))], lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match=message):
        make(facula.optim.lr_scheduler, o)
