"""Modules, initial values, optimizers and schedules of C++ against those of Python: the same names, random
numbers, states, results and gradients, bit for bit.

Cases are those of PyTorch's database of modules and the examples of the modules' docstrings; every class that
C++ has needs one. tests/cpp/run_modules.cpp runs them in C++.
"""

from __future__ import annotations

import copy
import doctest
import inspect
import io
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
from support.databases import converted, leaves

import facula
from facula import nn

PROGRAM = Path(facula._C.__file__).resolve().parents[2] / "tests" / "run_modules"
DATABASES = Path(__file__).parents[1] / "golden" / "databases.zip"
ERRORS = [RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, AssertionError]
pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="the C++ tests were not built"),
    pytest.mark.filterwarnings("ignore"),
]


def listed(option):
    if not PROGRAM.exists():
        return []
    return subprocess.run([PROGRAM, option], capture_output=True, text=True, check=True).stdout.split()


def classes():
    return listed("--classes")


class Untold(Exception):
    """An argument that no file holds."""


def told(value):
    """An argument as a file holds it: modules as the calls that make them."""
    if isinstance(value, nn.Module):
        args, kwargs = value.made_with
        try:
            inspect.signature(type(value)).bind(*args, **kwargs)
        except TypeError as e:  # it came from a file
            raise Untold(type(value).__name__) from e
        return {"class": type(value).__name__, "args": told(args), "kwargs": told(kwargs)}
    if isinstance(value, (tuple, list)):
        return type(value)(told(x) for x in value)
    if isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str, facula.Tensor, facula.dtype)):
        return value
    raise Untold(type(value).__name__)


def made(value):
    """The argument that was told."""
    if isinstance(value, dict) and "class" in value:
        return getattr(nn, value["class"])(*made(value["args"]), **made(value["kwargs"]))
    if isinstance(value, (tuple, list)):
        return type(value)(made(x) for x in value)
    if isinstance(value, dict):
        return {k: made(v) for k, v in value.items()}
    return copy.deepcopy(value)


@pytest.fixture(scope="module")
def recorded():
    """Modules remember the arguments that they were made with."""
    patch = pytest.MonkeyPatch()
    new = nn.Module.__new__

    def remember(cls, *args, **kwargs):
        made = new(cls)
        object.__setattr__(made, "made_with", (args, kwargs))
        return made

    patch.setattr(nn.Module, "__new__", remember)
    yield
    patch.undo()


def of_database(kind):
    data = facula.load(io.BytesIO(zipfile.ZipFile(DATABASES).read("databases.pt")), weights_only=False)
    for path, entry in data["modules"].items():
        for case in entry[kind]:
            yield path.removeprefix("nn."), case


def of_docstring(name):
    """The calls of a class in the example of its docstring."""
    kind, found = getattr(nn, name), []
    call = kind.__call__

    def note(self, *args, **kwargs):
        if type(self) is kind:
            found.append((self.made_with, args, kwargs))
        return call(self, *args, **kwargs)

    names = {"facula": facula, "nn": nn}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "__call__", note)
        patch.setattr(sys, "displayhook", lambda value: None)
        facula.manual_seed(0)
        for example in doctest.DocTestParser().get_examples(inspect.getdoc(kind) or ""):
            exec(compile(example.source, name, "single"), names)
    for (args, kwargs), inputs, named in found:
        for training in (True, False):
            yield {
                "args": args,
                "kwargs": kwargs,
                "inputs": inputs,
                "named_inputs": named,
                "training": training,
            }


def run_python(case):
    facula.manual_seed(case["seed"])
    module = getattr(nn, case["class"])(*made(case["args"]), **made(case["kwargs"]))
    answer = {"text": repr(module), "made": {k: v.clone() for k, v in module.state_dict().items()}}
    module.train(case["training"]).to(case["dtype"])
    if "state" in case:
        module.load_state_dict(case["state"])
    inputs, named = converted(facula, (case["inputs"], case["named_inputs"]), case["dtype"])
    facula.manual_seed(case["seed"])
    outputs = leaves(facula, module(*inputs, **named))
    loss = None
    for k, y in enumerate(outputs):
        if y.requires_grad:
            weights = facula.arange(1.0, y.numel() + 1, dtype=case["dtype"]).add(k).cos().reshape(y.shape)
            part = (y * weights).sum()
            loss = part if loss is None else loss + part
    if loss is not None:
        loss.backward()
    inputs = [t for t in leaves(facula, (inputs, named)) if t.requires_grad]
    answer["outputs"] = [y.detach() for y in outputs]
    answer["input gradients"] = [t.grad for t in inputs]
    answer["gradients"] = {n: p.grad for n, p in module.named_parameters()}
    answer["after"] = {k: v.detach() for k, v in module.state_dict().items()}
    return answer


def bits(tree):
    """A tree with tensors as their dtype, shape and bytes."""
    if isinstance(tree, facula.Tensor):
        plain = tree.detach().contiguous()
        numbers = plain.view(facula.int16) if tree.dtype == facula.bfloat16 else plain
        return (tree.dtype, tuple(tree.shape), numbers.numpy().tobytes())
    if isinstance(tree, (tuple, list)):
        return [bits(x) for x in tree]
    if isinstance(tree, dict):
        return {k: bits(v) for k, v in tree.items()}
    return "nan" if tree != tree else tree


def both(cases, folder):
    """The cases, with what Python and what C++ compute."""
    for case, theirs in zip(cases, answers_of(cases, folder)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ours = run_python(case)
            except Exception as e:
                ours = {"error": type(e), "message": str(e)}
        yield case, ours, theirs


def prepared(name, case, dtype):
    return {
        "class": name,
        "args": told(case["args"]),
        "kwargs": told(case["kwargs"]),
        "inputs": told(case["inputs"]),
        "named_inputs": told(case["named_inputs"]),
        "training": case.get("training", True),
        "dtype": dtype,
        "seed": 7,
        **({"state": case["state"]} if "state" in case else {}),
    }


def all_told(named):
    """Cases of the classes of C++ in each dtype, but those that no file holds."""
    known, found = set(classes()), []
    for name, case in named:
        if name not in known:  # lazy ones
            continue
        try:
            found += [prepared(name, case, d) for d in (facula.float32, facula.float64)]
        except Untold:
            continue
    return found


@pytest.fixture(scope="module")
def cases(recorded):
    examples = [(name, case) for name in classes() for case in of_docstring(name)]
    return all_told([*of_database("cases"), *examples])


def shown(case):
    return f"{case['class']}(*{case['args']}, **{case['kwargs']}) {case['dtype']}"


def test_every_module_has_a_case(cases):
    missing = set(classes()) - {case["class"] for case in cases}
    assert not missing, f"no entry of PyTorch's database and no example in the docstring: {sorted(missing)}"


def test_modules_of_both_languages_agree_bit_for_bit(cases, tmp_path):
    wrong, compared = {}, 0
    for case, ours, theirs in both(cases, tmp_path):
        if "error" in theirs or "error" in ours:
            wrong[case["class"]] = f"{shown(case)}: {ours.get('message')} | {theirs.get('message')}"
            continue
        compared += 1
        for part in ours:
            if bits(ours[part]) != bits(theirs[part]):
                wrong[case["class"]] = f"{shown(case)}: {part}: {ours[part]} | {theirs[part]}"
                break
    print(f"\n{compared} cases of {len(classes())} classes", end=" ")
    assert not wrong, "\n".join(w[:600] for w in wrong.values())


def test_modules_of_both_languages_refuse_the_same(recorded, tmp_path):
    wrong, compared = {}, 0
    for case, ours, theirs in both(all_told(of_database("errors")), tmp_path):
        if "error" not in ours:  # a warning
            continue
        compared += 1
        if (
            "error" not in theirs
            or ERRORS[theirs["error"]] is not ours["error"]
            # Python names the function that was called before the one in it that refused.
            or not f": {ours['message']}".endswith(f": {theirs['message']}")
        ):
            wrong[case["class"]] = (
                f"{shown(case)}: {ours['error']} {ours['message']} | {theirs.get('message')}"
            )
    print(f"\n{compared} refusals", end=" ")
    assert not wrong, "\n".join(w[:600] for w in wrong.values())


def answers_of(cases, folder):
    """What C++ computes of the cases."""
    facula.save(cases, folder / "cases.pt")
    done = subprocess.run(
        [PROGRAM, folder / "cases.pt", folder / "answers.pt"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return facula.load(folder / "answers.pt")


def refused_alike(theirs, error):
    """The same type, of those that C++ has, and the same text."""
    kinds = {KeyError: IndexError, ZeroDivisionError: ValueError}
    kind = kinds.get(type(error), type(error))
    if "error" not in theirs or ERRORS[theirs["error"]] is not kind:
        return False
    return kind is not type(error) or f": {error}".endswith(f": {theirs['message']}")


INIT_SHAPES = [
    (), (1,), (5,), (0,), (3, 4), (4, 3), (1, 1), (0, 0), (0, 3), (3, 0), (6, 2, 3), (4, 0, 2), (4, 2, 3, 5),
    (2, 2, 1, 2, 3),
]  # fmt: skip
INIT_ARGUMENTS = {
    "uniform_": [[], [-2.5, 3.0]],
    "normal_": [[], [0.5, 2.0]],
    "trunc_normal_": [[], [1.0, 0.5, 0.25, 1.5]],
    "constant_": [[0.0], [-0.0], [2.5], [3], [float("nan")], [float("-inf")], [True]],
    "xavier_uniform_": [[], [1.7]],
    "xavier_normal_": [[], [1.7]],
    "kaiming_uniform_": [
        [], [0.2, "fan_out"], [0.0, "FAN_IN", "relu"], [0.0, "sideways"], [0.0, "fan_in", "gelu"]
    ],
    "kaiming_normal_": [[], [0.2, "fan_out", "tanh"], [0.0, "fan_in", "selu"], [0.0, "no"]],
    "dirac_": [[], [2], [3]],
    "orthogonal_": [[], [0.5]],
    "sparse_": [[0.3], [0.0], [1.0, 0.5]],
}  # fmt: skip


def init_cases(name):
    if name == "calculate_gain":
        words = [
            "linear",
            "conv2d",
            "conv_transpose3d",
            "sigmoid",
            "tanh",
            "relu",
            "leaky_relu",
            "selu",
            "no",
        ]
        for word in words:
            for args in ([], [0.5], [1], [True], ["a"], [None]):
                yield {"tensor": word, "args": args}
        return
    floats = [facula.float32, facula.float64, facula.float16, facula.bfloat16]
    for dtype in [*floats, facula.complex64, facula.int64, facula.bool]:
        for shape in INIT_SHAPES:
            for args in INIT_ARGUMENTS.get(name, [[]]):
                yield {"tensor": facula.ones(shape, dtype=dtype), "args": args}
    strided = facula.ones(4, 6)[:, ::2]
    yield {"tensor": strided, "args": INIT_ARGUMENTS.get(name, [[]])[0]}


@pytest.mark.parametrize("name", listed("--init"))
def test_initial_values_of_both_languages_agree_bit_for_bit(name, tmp_path):
    function = getattr(nn.init, name)
    draws = "generator" in inspect.signature(function).parameters
    cases = [{"init": name, "kwargs": {}, "seed": 11, "draws": draws, **c} for c in init_cases(name)]
    wrong, computed = [], 0
    for case, theirs in zip(cases, answers_of(cases, tmp_path)):
        tensor = copy.deepcopy(case["tensor"])
        named = {"generator": facula.Generator().manual_seed(case["seed"])} if draws else {}
        try:
            result = function(tensor, *case["args"], **named)
        except Exception as e:
            if not refused_alike(theirs, e):
                wrong.append((case, repr(e), theirs))
            continue
        computed += 1
        if bits(theirs) != bits({"tensor": tensor, "result": result}):
            wrong.append((case, result, theirs))
    assert computed
    assert not wrong, f"{len(wrong)} of {len(cases)}, such as {wrong[0]}"


def test_a_parameter_is_initialized_without_being_recorded(tmp_path):
    leaf = facula.ones(3, 4, requires_grad=True)
    (theirs,) = answers_of(
        [{"init": "xavier_normal_", "tensor": leaf, "args": [], "kwargs": {}, "seed": 1, "draws": True}],
        tmp_path,
    )
    ours = nn.init.xavier_normal_(leaf, generator=facula.Generator().manual_seed(1))
    assert bits(theirs["tensor"]) == bits(ours)


def schedule(name, *args, **kwargs):
    return {"class": name, "args": ["<optimizer>", *args], "kwargs": kwargs}


DECAY, SLOWER = {"decay": 0.9}, {"decay": 0.99}
NAN, INF = float("nan"), float("inf")
SCHEDULES = [
    schedule("LambdaLR", DECAY),
    schedule("LambdaLR", [DECAY, SLOWER]),
    schedule("MultiplicativeLR", SLOWER),
    schedule("StepLR", 7, 0.5),
    schedule("StepLR", 1, gamma=1.01),
    schedule("MultiStepLR", [2, 5, 5, 9, 40], 0.3),
    schedule("MultiStepLR", []),
    schedule("ExponentialLR", 0.87),
    schedule("CosineAnnealingLR", 8, 1e-4),
    schedule("CosineAnnealingLR", 1),
    schedule("CosineAnnealingLR", 60),
    schedule("CosineAnnealingWarmRestarts", 5, eta_min=1e-4),
    schedule("CosineAnnealingWarmRestarts", 3, 2),
    schedule("LinearLR", 0.25, 1.0, 6),
    schedule("LinearLR", 1.0, 0.1, 60),
    schedule("LinearLR"),
    schedule("ConstantLR", 0.5, 4),
    schedule("ConstantLR", 1.0),
    schedule("PolynomialLR", 7, 2.0),
    schedule("PolynomialLR", 60, 0.3),
    schedule(
        "SequentialLR",
        [
            schedule("LinearLR", 0.1, 1.0, 4),
            schedule("CosineAnnealingLR", 10),
            schedule("ExponentialLR", 0.5),
        ],
        [4, 12],
    ),
    schedule("SequentialLR", [schedule("ConstantLR", 0.1, 3), schedule("LambdaLR", SLOWER)], [5]),
    {
        "class": "ChainedScheduler",
        "args": [[schedule("ConstantLR", 0.1, 4), schedule("ExponentialLR", 0.9)]],
        "kwargs": {},
    },
    {
        "class": "ChainedScheduler",
        "args": [[schedule("StepLR", 3), schedule("MultiStepLR", [4, 20])], "<optimizer>"],
        "kwargs": {},
    },
    schedule("CyclicLR", 0.01, 0.1, 3),
    schedule("CyclicLR", 0.01, [0.1, 0.2], 3, 2, "triangular2", base_momentum=0.7),
    schedule("CyclicLR", 0.01, 0.1, 4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    schedule("CyclicLR", 0.01, 0.1, 3, scale_fn=DECAY, scale_mode="iterations"),
    schedule("OneCycleLR", 3e-3, total_steps=60),
    schedule("OneCycleLR", [0.1, 0.2], epochs=12, steps_per_epoch=5, anneal_strategy="linear", pct_start=0.4),
    schedule("OneCycleLR", 0.1, total_steps=50, three_phase=True, pct_start=0.3, div_factor=10.0),
    schedule("OneCycleLR", 0.1, total_steps=70, cycle_momentum=False),
    schedule("ReduceLROnPlateau", factor=0.5, patience=2, cooldown=1, min_lr=1e-3),
    schedule(
        "ReduceLROnPlateau", "max", 0.3, 1, threshold=0.1, threshold_mode="abs", min_lr=[1e-3, 1e-4], eps=1e-3
    ),
    schedule("ReduceLROnPlateau"),
    schedule("SWALR", 0.05),
    schedule("SWALR", [0.05, 0.5], 20, "linear"),
    schedule("SWALR", 0.05, 0),
]
REFUSED_SCHEDULES = [
    schedule("ExponentialLR", 0.5, 5),
    schedule("StepLR", 3, last_epoch=5),
    schedule("StepLR", 0),
    schedule("LambdaLR", [DECAY]),
    schedule("CosineAnnealingLR", 0),
    schedule("CosineAnnealingWarmRestarts", 0),
    schedule("CosineAnnealingWarmRestarts", 3, 0),
    schedule("LinearLR", 0.0),
    schedule("LinearLR", NAN),
    schedule("LinearLR", 0.5, 1.5),
    schedule("ConstantLR", 2.0),
    schedule("SequentialLR", [], []),
    schedule("SequentialLR", [schedule("StepLR", 3)], [1]),
    {"class": "ChainedScheduler", "args": [[]], "kwargs": {}},
    {"class": "ChainedScheduler", "args": [[schedule("ReduceLROnPlateau")]], "kwargs": {}},
    schedule("CyclicLR", 0.01, 0.1, mode="round"),
    schedule("CyclicLR", [0.01], 0.1),
    schedule("OneCycleLR", 0.1),
    schedule("OneCycleLR", 0.1, total_steps=0),
    schedule("OneCycleLR", 0.1, epochs=0, steps_per_epoch=3),
    schedule("OneCycleLR", 0.1, total_steps=5),
    schedule("OneCycleLR", 0.1, total_steps=5, pct_start=1.5),
    schedule("OneCycleLR", 0.1, total_steps=5, anneal_strategy="no"),
    schedule("OneCycleLR", [0.1], total_steps=5),
    schedule("ReduceLROnPlateau", factor=1.0),
    schedule("ReduceLROnPlateau", "median"),
    schedule("ReduceLROnPlateau", threshold_mode="no"),
    schedule("ReduceLROnPlateau", min_lr=[0.1]),
    schedule("SWALR", [0.1]),
    schedule("SWALR", 0.1, -1),
    schedule("SWALR", 0.1, 5, "no"),
]  # fmt: skip
METRICS = 3 * [
    1.0, 0.9, NAN, 0.95, 0.91, INF, 0.905, -INF, 0.92, 0.5, 0.6, 0.6, NAN, NAN, NAN, NAN, 0.6, 0.4, 0.8
]  # fmt: skip


def given_to_steps(described, first, count):
    if described["class"] == "ReduceLROnPlateau":
        return [[METRICS[k]] for k in range(first, first + count)]
    return [[] for _ in range(count)]


def scheduled(value, optimizer):
    """What describes a schedule, made."""
    if isinstance(value, list):
        return [scheduled(x, optimizer) for x in value]
    if value == "<optimizer>":
        return optimizer
    if not isinstance(value, dict):
        return value
    if "decay" in value:
        return lambda e: value["decay"] ** e / (1 + e)
    space = facula.optim.swa_utils if value["class"] == "SWALR" else facula.optim.lr_scheduler
    args = scheduled(value["args"], optimizer)
    return getattr(space, value["class"])(
        *args, **{k: scheduled(x, optimizer) for k, x in value["kwargs"].items()}
    )


def rates_of(case):
    groups = [
        {"params": [facula.ones(2, requires_grad=True)]},
        {"params": [facula.ones(2, requires_grad=True)], "lr": 0.01},
    ]
    settings = {"lr": 0.1, "momentum": 0.9} if case["of"] == "SGD" else {"lr": 0.1}
    o = getattr(facula.optim, case["of"])(groups, **settings)
    s = scheduled(case["schedule"], o)

    def options():
        return [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]

    if "state" in case:
        s.load_state_dict(copy.deepcopy(case["state"]))
        o.load_state_dict(case["optimizer state"])
    rows = [options()]
    for given in case["steps"]:
        o.step()
        s.step(*given)
        rows += [options(), s.get_last_lr()]
    return {"rows": rows, "state": s.state_dict(), "optimizer state": o.state_dict()}


def numbers_as_text(tree):
    """Numbers as all of their digits, so that NaN is itself, and -0 is not 0; lists and tuples alike, and a
    number that is typed in C++ like an int.
    """
    if isinstance(tree, (list, tuple)):
        return [numbers_as_text(x) for x in tree]
    if isinstance(tree, dict):
        return {k: numbers_as_text(v) for k, v in tree.items()}
    is_number = isinstance(tree, (int, float)) and not isinstance(tree, bool)
    return repr(float(tree)) if is_number else tree


def test_every_schedule_has_a_case():
    assert set(listed("--schedules")) == {s["class"] for s in SCHEDULES}


def test_schedules_of_both_languages_agree_bit_for_bit(tmp_path):
    cases = []
    for s in SCHEDULES:
        for of in ("AdamW", "SGD"):
            case = {"schedule": s, "of": of}
            cases.append({**case, "steps": given_to_steps(s, 0, 50)})
            # A state in the middle, of Python: C++ goes on with it, as Python does.
            half = rates_of({**case, "steps": given_to_steps(s, 0, 20)})
            goes_on = {"state": dict(half["state"]), "optimizer state": half["optimizer state"]}
            cases.append({**case, **goes_on, "steps": given_to_steps(s, 20, 30)})
    for s in [schedule("StepLR", 4), schedule("MultiStepLR", [3, 3, 8]), schedule("CosineAnnealingLR", 9),
              schedule("LinearLR"), schedule("ConstantLR"), schedule("PolynomialLR", 9, 2.0),
              schedule("ExponentialLR", 0.9), schedule("CosineAnnealingWarmRestarts", 3, 2)]:  # fmt: skip
        cases.append({"schedule": s, "of": "SGD", "steps": [[3], [8], [1], [], [20], [0]]})
    answers = answers_of(cases, tmp_path)
    for case, theirs in zip(cases, answers):
        assert "error" not in theirs, (case["schedule"], theirs)
        assert numbers_as_text(theirs) == numbers_as_text(rates_of(case)), case["schedule"]
    # and a state of C++ is as good in Python
    case = {**cases[10], "state": answers[10]["state"], "optimizer state": answers[10]["optimizer state"]}
    assert numbers_as_text(answers_of([case], tmp_path)[0]) == numbers_as_text(rates_of(case))


def test_schedules_of_both_languages_refuse_the_same(tmp_path):
    cases = [{"schedule": s, "of": "AdamW", "steps": given_to_steps(s, 0, 8)} for s in REFUSED_SCHEDULES]
    wrong = []
    for case, theirs in zip(cases, answers_of(cases, tmp_path)):
        with pytest.raises(Exception) as refusal:
            rates_of(case)
        if not refused_alike(theirs, refusal.value):
            wrong.append((case["schedule"], repr(refusal.value), theirs))
    assert not wrong, "\n".join(map(str, wrong))


def steps_of(case):
    params = [facula.nn.Parameter(p.clone()) for p in case["params"]]
    optimizer = getattr(facula.optim, case["optimizer"])(params)
    optimizer.param_groups[0].update(case["options"])
    if "state" in case:
        optimizer.load_state_dict(case["state"])
    rows = facula.arange(3)

    def closure():
        optimizer.zero_grad()
        loss = 0
        for k, p in enumerate(params):
            x = nn.functional.embedding(rows, p, sparse=True) if case["sparse"] else p
            loss = loss + (x.sin() * x).sum() if k else (x.sin() * x).sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).detach() for _ in range(case["steps"])]
    return {"params": [p.detach() for p in params], "losses": losses, "state": optimizer.state_dict()}


MORE_OPTIONS = {
    "SGD": [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.5, "dampening": 0.25, "weight_decay": 0.1, "maximize": True},
    ],
    "LBFGS": [
        {"line_search_fn": "strong_wolfe"},
        {"history_size": 2, "max_iter": 7, "lr": 0.1},
        {"max_eval": 3, "line_search_fn": "strong_wolfe"},
    ],
    "Muon": [{"adjust_lr_fn": "match_rms_adamw", "nesterov": False}, {"ns_steps": 1, "lr": 0.5}],
    "SparseAdam": [{"lr": 0.5, "betas": (0.5, 0.9)}],
}


def options_of(name):
    """Options beside the defaults: each flag, and numbers that have no effect as they are."""
    facula.manual_seed(0)
    defaults = getattr(facula.optim, name)([facula.zeros(2, 2, requires_grad=True)]).defaults
    yield {}
    yield from MORE_OPTIONS.get(name, [])
    left_out = ("foreach", "fused", "capturable", "differentiable")
    for option, value in defaults.items():
        if value is False and option not in left_out:
            yield {option: True}
        elif value == 0 and option not in left_out:
            yield {option: 0.1}


@pytest.mark.parametrize("name", listed("--optimizers"))
def test_optimizers_of_both_languages_agree_bit_for_bit(name, tmp_path):
    facula.manual_seed(3)
    params = [
        facula.randn(3),
        facula.randn(4, 2),
        facula.randn(2, 3, 2, dtype=facula.float64),
        facula.randn(()),
    ]
    if name in ("Muon", "SparseAdam"):
        params = [facula.randn(4, 2), facula.randn(3, 5), facula.randn(3, 3, dtype=facula.float64)]
    if name == "LBFGS":  # of one dtype: it makes one vector of them
        params = [p.float() for p in params]
    sparse = name == "SparseAdam"
    cases = []
    for options in options_of(name):
        case = {"optimizer": name, "options": options, "params": params, "steps": 3, "sparse": sparse}
        cases += [{**case, "steps": 0}, case, {**case, "state": steps_of(case)["state"]}]
    for case, theirs in zip(cases, answers_of(cases, tmp_path)):
        assert "error" not in theirs, theirs
        ours = steps_of(case)
        assert bits(theirs["params"]) == bits(ours["params"]), case["options"]
        assert bits(theirs["losses"]) == bits(ours["losses"]), case["options"]
        assert bits(theirs["state"]) == bits(ours["state"]), case["options"]


def refused_step(name, params, options, sparse, tmp_path, kind, text):
    case = {"optimizer": name, "options": options, "params": params, "steps": 1, "sparse": sparse}
    with pytest.raises(kind, match=text) as refusal:
        steps_of(case)
    (theirs,) = answers_of([case], tmp_path)
    assert refused_alike(theirs, refusal.value), theirs


@pytest.mark.parametrize(
    ("name", "shape", "options", "sparse", "kind", "text"),
    [
        ("SparseAdam", (3, 2), {}, False, RuntimeError, "does not support dense gradients"),
        ("SGD", (3, 2), {"weight_decay": 0.1}, True, RuntimeError, "not compatible with sparse gradients"),
        ("Muon", (3, 2), {}, True, RuntimeError, "does not support sparse gradients"),
        (
            "LBFGS",
            (3, 2),
            {"line_search_fn": "weak"},
            False,
            RuntimeError,
            "only 'strong_wolfe' is supported",
        ),
    ],
)
def test_optimizers_of_both_languages_refuse_the_same(name, shape, options, sparse, kind, text, tmp_path):
    refused_step(name, [facula.ones(shape)], options, sparse, tmp_path, kind, text)


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "maximize": True}]
)
def test_sgd_takes_sparse_gradients_in_both_languages(options, tmp_path):
    case = {"optimizer": "SGD", "options": options, "params": [facula.ones(5, 2)], "steps": 3, "sparse": True}
    case["stateless"] = True  # C++ writes no sparse tensors
    (theirs,) = answers_of([case], tmp_path)
    assert "error" not in theirs, theirs
    assert bits(theirs["params"]) == bits(steps_of(case)["params"])


def test_containers_of_both_languages_hold_the_same(tmp_path):
    t = [
        facula.arange(2.0),
        facula.ones(2, 3),
        facula.tensor(1.5),
        facula.tensor([1.0], dtype=facula.float64),
    ]
    (theirs,) = answers_of([{"held": t, "seed": 5}], tmp_path)
    facula.manual_seed(5)
    net = nn.Module()
    # made before the lists in C++ too; parameters are registered in another order
    modules = nn.ModuleDict({"right": nn.Linear(2, 3), "left": nn.Linear(3, 1)})
    net.list = nn.ParameterList([t[0], t[1]])
    net.list.append(t[2])
    net.list[1] = t[3]
    net.dict = nn.ParameterDict([("first", t[0]), ("second", t[1]), ("last", t[2])])
    net.dict["second"] = t[3]
    net.dict.pop("first")
    modules["right"] = nn.Linear(2, 2)
    modules["more"] = nn.Linear(1, 1)
    modules.pop("left")
    net.modules_ = modules
    state = {k.replace("modules_.", "modules."): v for k, v in net.state_dict().items()}
    assert "error" not in theirs, theirs
    assert list(theirs["state"]) == list(state)
    assert bits(theirs["state"]) == bits(state)
    assert theirs["keys"] == [*net.dict.keys(), *modules.keys()]
    assert theirs["grads"] == [p.requires_grad for p in net.parameters()]
    texts = [net.list, modules, nn.ParameterList([t[0]]), nn.ParameterList(), nn.ModuleDict()]
    assert theirs["texts"] == [repr(m) for m in texts]
