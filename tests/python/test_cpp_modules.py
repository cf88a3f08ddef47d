"""Modules and optimizers of C++ against those of Python: the same names, random numbers, states, results and
gradients, bit for bit.

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
    return tree


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
        words = ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "no"]
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


def steps_of(case):
    params = [facula.nn.Parameter(p.clone()) for p in case["params"]]
    optimizer = getattr(facula.optim, case["optimizer"])(params)
    optimizer.param_groups[0].update(case["options"])
    if "state" in case:
        optimizer.load_state_dict(case["state"])
    for _ in range(case["steps"]):
        optimizer.zero_grad()
        loss = 0
        for k, p in enumerate(params):
            loss = loss + (p.sin() * p).sum() if k else (p.sin() * p).sum()
        loss.backward()
        optimizer.step()
    return {"params": [p.detach() for p in params], "state": optimizer.state_dict()}


def options_of(name):
    """Options beside the defaults: each flag, and numbers that have no effect as they are."""
    facula.manual_seed(0)
    defaults = getattr(facula.optim, name)([facula.zeros(2, requires_grad=True)]).defaults
    yield {}
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
    cases = []
    for options in options_of(name):
        case = {"optimizer": name, "options": options, "params": params, "steps": 3}
        cases += [{**case, "steps": 0}, case, {**case, "state": steps_of(case)["state"]}]
    for case, theirs in zip(cases, answers_of(cases, tmp_path)):
        assert "error" not in theirs, theirs
        ours = steps_of(case)
        assert bits(theirs["params"]) == bits(ours["params"]), case["options"]
        assert bits(theirs["state"]) == bits(ours["state"]), case["options"]
