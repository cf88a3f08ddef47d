"""Writes lr_schedules.json: learning rates and momenta of PyTorch's schedules, step by step. Needs torch."""

import json
import warnings
from pathlib import Path

GOLDEN = Path(__file__).resolve().with_suffix("").with_name("lr_schedules.json")
METRICS = [
    1.0,
    0.9,
    0.95,
    0.91,
    0.905,
    0.92,
    0.5,
    0.6,
    0.6,
    0.6,
    0.6,
    0.55,
    0.7,
    0.49999,
    0.8,
    0.8,
    0.8,
    0.8,
    0.8,
    0.8,
]
CASES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.95**e / (1 + e)),
    "lambda_each_group": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "multi_step": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], 0.3),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.87),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 8, 1e-4),
    "cosine_to_zero": lambda s, o: s.CosineAnnealingLR(o, 20),
    "linear": lambda s, o: s.LinearLR(o, 0.25, 1.0, 6),
    "linear_down": lambda s, o: s.LinearLR(o, 1.0, 0.1, 7),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, 4),
    "warm_up_then_cosine": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, 10), s.ExponentialLR(o, 0.5)], [4, 12]
    ),
    "lambda_multiplied": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.95 if e % 2 else 1.02),
    "cosine_restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, eta_min=1e-4),
    "cosine_longer_restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
    "polynomial": lambda s, o: s.PolynomialLR(o, 7, 2.0),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9)]),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 3),
    "cyclic_halved": lambda s, o: s.CyclicLR(o, 0.01, [0.1, 0.2], 3, 2, "triangular2", base_momentum=0.7),
    "cyclic_decaying": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 4, mode="exp_range", gamma=0.9, cycle_momentum=False
    ),
    "lambda_cyclic": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 3, scale_fn=lambda x: 0.9**x, scale_mode="iterations"
    ),
    "one_cycle": lambda s, o: s.OneCycleLR(o, 3e-3, total_steps=20),
    "one_cycle_linear": lambda s, o: s.OneCycleLR(
        o, [0.1, 0.2], epochs=4, steps_per_epoch=5, anneal_strategy="linear", pct_start=0.4
    ),
    "one_cycle_three_phases": lambda s, o: s.OneCycleLR(
        o, 0.1, total_steps=20, three_phase=True, pct_start=0.3, div_factor=10.0
    ),
    "one_cycle_fixed_momentum": lambda s, o: s.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1, min_lr=1e-3),
    "plateau_max": lambda s, o: s.ReduceLROnPlateau(
        o, "max", 0.3, 1, threshold=0.1, threshold_mode="abs", min_lr=[1e-3, 1e-4]
    ),
}
OPTIMIZERS = {
    "adamw": lambda torch, groups: torch.optim.AdamW(groups, lr=0.1),
    "sgd": lambda torch, groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
}


def groups_of(torch):
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    return [{"params": [a]}, {"params": [b], "lr": 0.01}]


def momentum_of(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def advance(optimizer, scheduler, metric):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()
        scheduler.step(*([metric] if type(scheduler).__name__ == "ReduceLROnPlateau" else []))


def sequence(torch, optimizer, case, steps=19):
    o = OPTIMIZERS[optimizer](torch, groups_of(torch))
    s = CASES[case](torch.optim.lr_scheduler, o)
    rows = [[[g["lr"], momentum_of(g)] for g in o.param_groups]]
    for k in range(steps):
        advance(o, s, METRICS[k])
        rows.append([[g["lr"], momentum_of(g)] for g in o.param_groups])
    assert list(s.get_last_lr()) == [row[0] for row in rows[-1]]
    return rows


if __name__ == "__main__":
    import torch

    recorded = {
        f"{case}/{optimizer}": sequence(torch, optimizer, case) for case in CASES for optimizer in OPTIMIZERS
    }
    GOLDEN.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in recorded.items()) + "\n}\n")
