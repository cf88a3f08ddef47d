"""Schedules against the sequences that tests/golden/record_lr_schedules.py recorded from PyTorch."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from record_lr_schedules import CASES, GOLDEN, METRICS, OPTIMIZERS, advance, groups_of, momentum_of, sequence  # noqa: E402


@pytest.fixture(scope="session")
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


# What PyTorch's SWALR sets for rates of 0.5 and 0.1 on their way to 0.05 and 0.2.
SWALR = {
    "cos-4": [
        [0.434099025766973, 0.114644660940673],
        [0.275, 0.15],
        [0.115900974233027, 0.185355339059327],
        [0.05, 0.2],
        [0.05, 0.2],
        [0.05, 0.2],
    ],
    "cos-0": [[0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2]],
    "linear-4": [[0.3875, 0.125], [0.275, 0.15], [0.1625, 0.175], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2]],
    "linear-0": [[0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2], [0.05, 0.2]],
}


@pytest.mark.parametrize("case", SWALR)
def test_rates_move_to_those_of_averaging(case):
    import facula

    strategy, epochs = case.split("-")
    groups = [{"params": [facula.nn.Parameter(facula.ones(2))], "lr": lr} for lr in (0.5, 0.1)]
    optimizer = facula.optim.SGD(groups, lr=0.1)
    schedule = facula.optim.swa_utils.SWALR(optimizer, [0.05, 0.2], int(epochs), strategy)
    for expected in SWALR[case]:
        optimizer.step()
        schedule.step()
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("how", ["mean", "ema", "ema of lists", "own"])
def test_averages_of_models(how):
    import facula

    nn, utils = facula.nn, facula.optim.swa_utils
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    options = {
        "mean": {},
        "ema": {"avg_fn": utils.get_ema_avg_fn(0.9)},
        "ema of lists": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9), "use_buffers": False},
        "own": {"avg_fn": lambda average, value, count: facula.maximum(average, value)},
    }[how]
    average = utils.AveragedModel(model, **options)
    seen = []
    for k in range(4):
        with facula.no_grad():
            for p in model.parameters():
                p.copy_(facula.randn(p.shape))
            model[1].running_mean.fill_(k)
        seen.append(model[0].weight.detach().clone())
        average.update_parameters(model)
    expected = seen[0]
    for k, value in enumerate(seen[1:], 1):
        if how == "mean":
            expected = expected + (value - expected) / (k + 1)
        elif how == "own":
            expected = facula.maximum(expected, value)
        else:
            expected = 0.9 * expected + 0.1 * value
    assert facula.allclose(average.module[0].weight, expected, rtol=1e-6)
    assert average.n_averaged == 4 and average.module[1].running_mean.tolist() == [3.0] * 3
    assert set(average.state_dict()) == {"n_averaged", *(f"module.{k}" for k in model.state_dict())}
    x = facula.ones(2, 2)
    average.eval()
    assert average(x).equal(average.module(x))


def test_statistics_of_batch_norms_are_those_of_one_pass():
    import facula

    model = facula.nn.Sequential(facula.nn.Linear(2, 3), facula.nn.BatchNorm1d(3)).eval()
    batches = [facula.randn(5, 2) for _ in range(3)]
    facula.optim.swa_utils.update_bn([(b, None) for b in batches], model)
    means = facula.stack([model[0](b).mean(0) for b in batches]).mean(0)
    assert facula.allclose(model[1].running_mean, means, rtol=1e-5, atol=1e-6)
    assert not model.training and model[1].momentum == 0.1
