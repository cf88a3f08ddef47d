"""Records how PyTorch's optimizers move parameters.

    .peer/bin/python tests/golden/record_optimizers.py

``optimizers.json`` has, for each case (an optimizer and its options), the parameters after each of some steps
in float64, and the names of states and options. ``test_optim.py`` runs the same.
"""

import json
import math
import warnings
from pathlib import Path

CASES = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.01}),
    ("RMSprop", {"maximize": True, "eps": 1e-3}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.5, "weight_decay": 0.01}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.01, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.01}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.01, "momentum_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.01}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 2.0, "weight_decay": 0.01}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.7), "step_sizes": (0.01, 0.3), "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 0.1), "d": 1.5, "weight_decay": 0.1}),
    ("LBFGS", {"lr": 0.5, "max_iter": 4}),
    ("LBFGS", {"history_size": 2, "max_iter": 6, "line_search_fn": "strong_wolfe"}),
    ("LBFGS", {"max_iter": 30, "line_search_fn": "strong_wolfe", "tolerance_grad": 1e-4}),
]
STEPS = 7


def moved(torch, name, options):
    """The parameters after each step, and the names in the state_dict."""
    shapes = [(3,), (4, 2), (2, 3, 2), ()]
    values = [[math.sin(3 * k + 7 * i + 1) for i in range(math.prod(s))] for k, s in enumerate(shapes)]
    params = [
        torch.nn.Parameter(torch.tensor(v, dtype=torch.float64).reshape(s)) for v, s in zip(values, shapes)
    ]
    optimizer = getattr(torch.optim, name)(params, **options)
    after = []
    for step in range(STEPS):

        def closure():
            """Valleys of other widths, which bend; one parameter has no gradient now and then."""
            optimizer.zero_grad()
            losses = [
                ((p - 0.3 * k) ** 2 * (k + 1)).sum() + (p * 3).cos().sum() for k, p in enumerate(params)
            ]
            if step % 3 == 1:
                losses.pop(1)
            loss = sum(losses)
            loss.backward()
            return loss

        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        after.append([p.detach().reshape(-1).tolist() for p in params])
    state = optimizer.state_dict()
    return {
        "after": after,
        "state": {str(k): sorted(v) for k, v in state["state"].items()},
        "options": sorted(state["param_groups"][0]),
    }


if __name__ == "__main__":
    import torch

    warnings.simplefilter("ignore")
    answers = [[name, options, moved(torch, name, options)] for name, options in CASES]
    Path(__file__).with_name("optimizers.json").write_text(json.dumps(answers, indent=None) + "\n")
