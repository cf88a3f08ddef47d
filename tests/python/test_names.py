"""The public names of PyTorch that are there: tests/golden/names.txt has its own, by namespace. With `-s` the
test prints how many, and which are not.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import facula

RECORDED = Path(__file__).parents[1] / "golden" / "names.txt"
NAMES = {line.split()[0]: line.split()[1:] for line in RECORDED.read_text().splitlines()}
# The number that may not fall; all that are recorded where a namespace is not listed.
LEAST = {
    "torch": 667,
    "torch.Tensor": 584,
    "torch.nn.functional": 133,
    "torch.linalg": 41,
    "torch.fft": 16,
    "torch.optim": 16,
    "torch.autograd": 12,
    "torch.func": 8,
    "torch.library": 12,
    "torch.utils.data": 24,
    "torch.utils.checkpoint": 7,
    "torch.testing": 3,
    "torch.masked": 19,
    "torch.overrides": 7,
    "torch.random": 6,
    "torch.profiler": 7,
    "torch.return_types": 66,
}


def space(name):
    ours = "facula" + name.removeprefix("torch")
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError:
        owner, _, last = ours.rpartition(".")
        return getattr(importlib.import_module(owner), last)


def there(owner, name):
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_there(name):
    owner = facula.Tensor if name == "torch.Tensor" else space(name)
    missing = [n for n in NAMES[name] if not there(owner, n)]
    count, of = len(NAMES[name]) - len(missing), len(NAMES[name])
    print(f"\n{name}: {count} of {of}", f"without {' '.join(missing)}" if missing else "")
    assert count >= LEAST.get(name, of), f"{name}: {count} of {of}; not there: {' '.join(missing)}"
