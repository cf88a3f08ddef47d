"""Behaviours of the Python library that PyTorch's users count on, against what PyTorch does.

python tests/python/test_probes.py     records PyTorch's results anew, where it is installed
"""

import importlib
import os
import pkgutil
from pathlib import Path

import support.probes as probes

GOLDEN = Path(__file__).parent.parent / "golden" / "probes.txt"
NAMES = [m.name for m in pkgutil.iter_modules(probes.__path__)]


def all_results(torch):
    for name in NAMES:
        found = probes.results(torch, importlib.import_module(f"support.probes.{name}").probe)
        yield from ((f"{name}.{what}", text) for what, text in found.items())


def pytest_generate_tests(metafunc):
    if "behaviour" in metafunc.fixturenames:
        metafunc.parametrize(
            "behaviour", [line.partition(" ")[0] for line in GOLDEN.read_text().splitlines()]
        )


def test_facula_behaves_as_pytorch(behaviour):
    ours, theirs = OURS.get(behaviour), RECORDED[behaviour]
    assert ours == theirs


def test_every_probe_is_recorded():
    assert OURS.keys() == RECORDED.keys()


if __name__ == "__main__":
    import torch

    GOLDEN.write_text("".join(f"{what} {text}\n" for what, text in all_results(torch)))
else:
    import facula

    os.environ["FACULA_MPI_LIBRARY"] = "none"  # PyTorch's wheel has no MPI
    OURS = dict(all_results(facula))
    RECORDED = dict(line.partition(" ")[::2] for line in GOLDEN.read_text().splitlines())
    del os.environ["FACULA_MPI_LIBRARY"]
