"""Every entry of PyTorch's databases of modules (114) and optimizers (15), with its error inputs, against
what PyTorch answered (tests/golden/databases.zip, by tests/golden/record_databases.py). With `-s` the
first test says how many.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest
from support.databases import fail_module, fail_optimizer, run_module, run_optimizer

import facula

FILE = Path(__file__).parents[1] / "golden" / "databases.zip"
DATA = facula.load(io.BytesIO(zipfile.ZipFile(FILE).read("databases.pt")), weights_only=False)
MODULES, OPTIMIZERS = DATA["modules"], DATA["optimizers"]
TOLERANCES = {facula.float64: (1e-6, 1e-7), facula.float32: (2e-4, 2e-5)}


def test_the_databases_are_whole():
    print(f"\n{len(MODULES)} modules, {sum(len(e['cases']) for e in MODULES.values())} cases", end=", ")
    print(f"{sum(len(e['errors']) for e in MODULES.values())} errors; {len(OPTIMIZERS)} optimizers", end=", ")
    print(f"{sum(len(e['cases']) for e in OPTIMIZERS.values())} cases", end=", ")
    print(f"{sum(len(e['errors']) for e in OPTIMIZERS.values())} errors")
    assert (len(MODULES), len(OPTIMIZERS)) == (114, 15)


def compare(what, ours, theirs, rtol, atol):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), what
        for k in theirs:
            compare(f"{what} {k}", ours[k], theirs[k], rtol, atol)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), what
        for k, (a, b) in enumerate(zip(ours, theirs)):
            compare(f"{what} {k}", a, b, rtol, atol)
    elif isinstance(theirs, facula.Tensor):
        assert ours is not None, what
        assert ours.shape == theirs.shape, what
        facula.testing.assert_close(
            ours.double(), theirs.double(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}"
        )
    else:
        assert ours == theirs, what


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda d: str(d).partition(".")[2])
@pytest.mark.parametrize("path", MODULES)
def test_modules_compute_what_pytorch_does(path, dtype):
    for k, case in enumerate(MODULES[path]["cases"]):
        ours = run_module(facula, path, case, dtype)
        what = f"case {k}: {path}(*{case['args']}, **{case['kwargs']}), training={case['training']}"
        if case["random"]:
            assert [tuple(o.shape) for o in ours["outputs"]] == case["shapes"], what
        else:
            ours.pop("before")
            compare(what, ours, case["answer"], *TOLERANCES[dtype])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [p for p, e in MODULES.items() if e["errors"]])
def test_modules_refuse_what_pytorch_refuses(path):
    for case in MODULES[path]["errors"]:
        constructing, found = fail_module(facula, path, case)
        what = f"{path}(*{case['args']}, **{case['kwargs']}): {case['type']}: {case['text']}"
        assert found is not None, f"no error for {what}"
        assert found[0] == case["type"], f"{found} for {what}"
        assert constructing == case["constructing"], what
        # The text says what PyTorch's says, or in other words the same numbers.
        numbers = re.findall(r"\d+", case["text"] if re.search(r"\d", case["pattern"]) else "")
        same = re.search(case["pattern"], found[1])
        assert same or all(n in found[1] for n in numbers), f"{found[1]!r} for {what}"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_move_parameters_as_pytorchs_do(name):
    for case in OPTIMIZERS[name]["cases"]:
        ours = run_optimizer(facula, name, case["kwargs"])
        rounded = isinstance(case["kwargs"].get("lr"), facula.Tensor)  # Muon computes with it in float32
        tolerances = (1e-7, 1e-8) if rounded else (1e-9, 1e-10)
        compare(f"{name}(**{case['kwargs']})", ours, case["answer"], *tolerances)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_refuse_what_pytorchs_refuse(name):
    for case in OPTIMIZERS[name]["errors"]:
        found = fail_optimizer(facula, name, case)
        what = f"{name}({case['params']}, **{case['kwargs']}): {case['error']}"
        if case["error"] is None:  # PyTorch raises none on a processor
            continue
        assert found is not None, f"no error for {what}"
        assert found[0] == case["error"][0], f"{found} for {what}"
        pattern = case["pattern"] if isinstance(case["pattern"], str) else ""
        assert re.search(pattern, found[1], re.S), f"{found[1]!r} for {what}"
