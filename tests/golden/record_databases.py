"""Records the answers of PyTorch's databases of modules and optimizers, with their error inputs.

    .peer/bin/python tests/golden/record_databases.py

``databases.zip`` holds a checkpoint, which
``tests/python/test_module_and_optimizer_databases.py`` reads: for each of the entries cases with arguments
and parameters, and what PyTorch computes in float64 (kept as float32). Of entries with many cases some are
taken, evenly.
"""

import io
import sys
import warnings
import zipfile
from pathlib import Path

import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch.testing._internal.common_optimizers import optim_db

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))
from support.databases import (  # noqa: E402
    converted,
    fail_module,
    fail_optimizer,
    leaves,
    run_module,
    run_optimizer,
)

MOST = 9  # cases of an entry, in each mode
ELEMENTS = 1200  # of the inputs of one case


def even(items, most):
    return items if len(items) <= most else [items[k * len(items) // most] for k in range(most)]


def case_of(given, training):
    forward = given.forward_input
    return {
        "args": tuple(given.constructor_input.args),
        "kwargs": dict(given.constructor_input.kwargs),
        "inputs": tuple(forward.args) if forward else (),
        "named_inputs": dict(forward.kwargs) if forward else {},
        "training": training,
        "description": given.desc,
    }


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(leaves(torch, a), leaves(torch, b)))


def answered(path, case):
    torch.manual_seed(1)
    first = run_module(torch, path, case, torch.float64)
    case = {**case, "state": first["before"]}
    again = run_module(torch, path, case, torch.float64)
    case["state"] = converted(torch, first.pop("before"), torch.float32)
    again.pop("before")
    exact = run_module(torch, path, case, torch.float64)  # from the parameters as they are kept
    exact.pop("before")
    case["random"] = not same(first, again)
    if case["random"]:
        case["shapes"] = [tuple(o.shape) for o in exact["outputs"]]
    else:
        case["answer"] = converted(torch, exact, torch.float32)
    return case


def record_modules():
    found = {}
    for info in module_db:
        entry = found[info.name] = {"cases": [], "errors": []}
        for training in (False, True):
            options = {"device": "cpu", "dtype": torch.float32, "requires_grad": True, "training": training}
            cases = [
                case_of(i, training) for i in info.module_inputs_func(info, **options) if i.forward_input
            ]
            small = [c for c in cases if sum(t.numel() for t in leaves(torch, c["inputs"])) <= ELEMENTS]
            entry["cases"] += [answered(info.name, c) for c in even(small or cases[:1], MOST)]
        if info.module_error_inputs_func:
            for e in info.module_error_inputs_func(info, **options):
                case = case_of(e.module_error_input, True)
                constructing, (kind, text) = fail_module(torch, info.name, case)
                assert constructing == (e.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR), info.name
                entry["errors"].append(
                    {
                        **case,
                        "constructing": constructing,
                        "type": kind,
                        "text": text,
                        "pattern": e.error_regex,
                    }
                )
    return found


def named(tree, known):
    if isinstance(tree, torch.nn.Parameter):
        return f"parameter {known.setdefault(id(tree), len(known))}"
    if isinstance(tree, (list, tuple)):
        return type(tree)(named(t, known) for t in tree)
    if isinstance(tree, dict):
        return {k: named(v, known) for k, v in tree.items()}
    return tree


def record_optimizers():
    found = {}
    for info in optim_db:
        name = info.optim_cls.__name__
        entry = found[name] = {"cases": [], "errors": []}
        for given in info.optim_inputs_func(device="cpu"):
            entry["cases"].append(
                {"kwargs": given.kwargs, "answer": run_optimizer(torch, name, given.kwargs)}
            )
        for e in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
            given = e.optimizer_error_input
            case = {"params": named(given.params, {}), "kwargs": given.kwargs, "pattern": e.error_regex}
            raised = fail_optimizer(torch, name, case)
            case["error"] = raised
            entry["errors"].append(case)
    return found


warnings.simplefilter("ignore")
file = io.BytesIO()
torch.save({"modules": record_modules(), "optimizers": record_optimizers()}, file)
with zipfile.ZipFile(HERE / "databases.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
    z.writestr(zipfile.ZipInfo("databases.pt", (1980, 1, 1, 0, 0, 0)), file.getvalue(), zipfile.ZIP_DEFLATED)
