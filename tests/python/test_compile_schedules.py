"""Numbers that change between calls follow Python in compiled functions, without a capture for each value."""

import bisect
import math

import pytest

import facula
import facula.nn as nn
from facula.optim import lr_scheduler

SCHEDULES = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [5, 10]),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=7),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10, 2.0),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda n: min((n + 1) / 4, 0.9**n)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda n: 0.95),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 12),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 5, cycle_momentum="momentum" in o.defaults),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=30),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=5), lr_scheduler.CosineAnnealingLR(o, 20)], [5]
    ),
}
OPTIMIZERS = {
    "SGD": lambda p: facula.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW": lambda p: facula.optim.AdamW(p, lr=0.01),
    "NAdam": lambda p: facula.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: facula.optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: facula.optim.Adamax(p, lr=0.01),
}
STEPS = 25


def trained(optimizer, schedule, is_inside, compiles):
    """The losses, options and parameters of each step, and the number of captures."""
    facula.manual_seed(0)
    model = nn.Linear(3, 3)
    o = OPTIMIZERS[optimizer](model.parameters())
    s = SCHEDULES[schedule](o)

    def step(x):
        o.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        o.step()
        if is_inside:
            s.step()
        return loss

    run, x, seen = facula.compile(step, fullgraph=True) if compiles else step, facula.ones(2, 3), []
    for _ in range(STEPS):
        loss = run(x).item()
        if not is_inside:
            s.step()
        options = [o.param_groups[0].get(k) for k in ("lr", "momentum", "betas")]
        seen.append((loss, options, model.weight.tolist()))
    return seen, run.report()["captures"] if compiles else 0


@pytest.mark.parametrize("is_inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_change_rates_without_captures(schedule, is_inside):
    want, _ = trained("SGD", schedule, is_inside, False)
    got, captures = trained("SGD", schedule, is_inside, True)
    assert got == want
    assert captures <= (6 if is_inside else 2)


@pytest.mark.parametrize("is_inside", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_schedules_of_momentum_change_it_without_captures(optimizer, is_inside):
    want, _ = trained(optimizer, "OneCycleLR", is_inside, False)
    got, captures = trained(optimizer, "OneCycleLR", is_inside, True)
    assert got == want
    assert captures <= 3


def test_a_momentum_that_becomes_0_leaves_its_sums():
    def run(compiles):
        p = facula.ones(2, requires_grad=True)
        o = facula.optim.SGD([p], lr=0.1, momentum=0.5)

        def step(x):
            o.zero_grad()
            (p * x).sum().backward()
            o.step()

        f, seen = facula.compile(step) if compiles else step, []
        for momentum in (0.5, 0.4, 0.3, 0.0, 0.0, 0.2, 0.1, 0.0, 0.6):
            o.param_groups[0]["momentum"] = momentum
            f(facula.tensor([1.0, 2.0]))
            seen.append((p.tolist(), o.state[p]["momentum_buffer"].tolist()))
        return seen

    assert run(True) == run(False)


FUNCTIONS = {
    "cos": lambda n: math.cos(n / 3),
    "power": lambda n: 0.9**n + (n + 1) ** 0.5 + 2**n,
    "complex power": lambda n: ((n - 2.5) ** 0.5).real,
    "floor": lambda n: math.floor(n / 2) + int(n / 3) + round(n / 4, 1) + float(n),
    "fmod": lambda n: math.fmod(n, 3) + math.hypot(n, 1) + math.atan2(n, 2),
    "smaller": lambda n: min(n, 4) + max(n, 2.0) + abs(n - 3),
    "bits": lambda n: int(n) & 3,
    "in a tuple": lambda n: 2.0 if n in (1, 3, 5) else 3.0,
    "in a dict": lambda n: 2.0 if n not in {2: 1, 4: 1} else 3.0,
    "in a range": lambda n: 2.0 if n in range(2, 9, 3) else 3.0,
    "bisect": lambda n: bisect.bisect_right([2, 4, 6], n) + bisect.bisect_left([1, 3, 3, 7], n, 1),
    "a list": lambda n: sum([n, n + 1]) + [n * 2][0],
    "undefined": lambda n: math.log(n - 3) if n != 3 else 0.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers_that_change(name):
    of, x, numbers = FUNCTIONS[name], facula.ones(2), [1, 2, 3, 4, 5, 6, 7, 8, 2, 5]
    f = facula.compile(lambda x, n: x * of(n))
    for n in numbers:
        try:
            want = (x * of(n)).tolist()
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                f(x, n)
            continue
        assert f(x, n).tolist() == want


@pytest.mark.parametrize("name", ["cos", "power", "floor", "fmod"])
def test_functions_of_numbers_are_captured_twice(name):
    f, x = facula.compile(lambda x, n: x * FUNCTIONS[name](n), fullgraph=True), facula.ones(2)
    for n in (1.5, 2.5, 3.25, 7.5, 6.0):
        assert f(x, n).tolist() == (x * FUNCTIONS[name](n)).tolist()
    assert f.report()["captures"] == 2


def test_items_of_tuples_and_lists_that_change():
    x = facula.ones(2)

    def f(state):
        a, rest = state[0][0], state[0][1:]
        return x * a + rest[0], (a + 1, *rest)

    compiled = facula.compile(f)
    for k in range(6):
        state = [(1.5 + k, 2, k * 3)]
        got, want = compiled(state), f(state)
        assert got[0].tolist() == want[0].tolist() and got[1] == want[1]
