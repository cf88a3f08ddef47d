"""Training steps in a compiled function: one program, with the losses, parameters and states of eager."""

import random

import facula.nn.functional as F
import pytest

import facula
import facula.nn as nn

STEPS = 20


def model_of(seed):
    facula.manual_seed(seed)
    # Float64: an optimizer amplifies the rounding of gradients near zero.
    model = nn.Sequential(
        nn.Linear(5, 8),
        nn.LayerNorm(8),
        nn.GELU(),
        nn.Linear(8, 8, bias=False),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )

    return model.double()


def batches(seed, count=STEPS, rows=6):
    facula.manual_seed(seed + 1)
    return [(facula.randn(rows, 5).double(), facula.randn(rows, 3).double()) for _ in range(count)]


def report_of(compiled):
    return compiled.report()


def state_of(optimizer):
    return [
        v
        for s in optimizer.state_dict()["state"].values()
        for v in s.values()
        if isinstance(v, facula.Tensor)
    ]


def close(a, b, rtol, atol=1e-9):
    return a.dtype == b.dtype and a.shape == b.shape and facula.allclose(a, b, rtol=rtol, atol=atol)


def train(make_optimizer, make_step, compiled, seed, data, around=None):
    """Returns losses, parameters and buffers, gradients, states and the step."""
    model = model_of(seed)
    optimizer = make_optimizer(model.parameters())
    step = make_step(model, optimizer)
    run = facula.compile(step) if compiled else step
    losses = []
    for k, (x, y) in enumerate(data):
        losses.append(run(x, y).detach().clone())
        if around:
            around(k, model, optimizer)
    grads = [p.grad for p in model.parameters()]
    return losses, list(model.state_dict().values()), grads, state_of(optimizer), run


def plain_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def compare(make_optimizer, make_step=plain_step, around=None, breaks=0, captures=1, data=None, rtol=1e-8):
    seed = random.randrange(10**6)
    print("seed", seed)
    data = data or batches(seed)
    want = train(make_optimizer, make_step, False, seed, data, around)
    got = train(make_optimizer, make_step, True, seed, data, around)
    for a, b in zip(got[:4], want[:4]):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert (x is None) == (y is None)
            assert x is None or close(x, y, rtol), (x, y)
    report = report_of(got[4])
    assert len(report["breaks"]) == breaks and not report["plain_runs"], report["breaks"]
    assert report["captures"] == captures, report["captures"]
    return report


OPTIMIZERS = {
    "SGD": lambda ps: facula.optim.SGD(ps, lr=0.05),
    "SGD with momentum": lambda ps: facula.optim.SGD(
        ps, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": lambda ps: facula.optim.Adam(ps, lr=0.01),
    "Adam with amsgrad": lambda ps: facula.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda ps: facula.optim.AdamW(ps, lr=0.01),
    "Adagrad": lambda ps: facula.optim.Adagrad(ps, lr=0.05),
    "Adadelta": lambda ps: facula.optim.Adadelta(ps),
    "Adamax": lambda ps: facula.optim.Adamax(ps, lr=0.01),
    "ASGD": lambda ps: facula.optim.ASGD(ps, lr=0.01),
    "NAdam": lambda ps: facula.optim.NAdam(ps, lr=0.01),
    "RMSprop": lambda ps: facula.optim.RMSprop(ps, lr=0.005, momentum=0.5),
    "Rprop": lambda ps: facula.optim.Rprop(ps, lr=0.001),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_one_program(name):
    compare(OPTIMIZERS[name])


def test_an_optimizer_that_branches_on_its_count_steps_outside_of_the_program():
    compare(lambda ps: facula.optim.RAdam(ps, lr=0.01), breaks=1, captures=2)
