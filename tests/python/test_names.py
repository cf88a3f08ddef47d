"""The public names of PyTorch that are there: tests/golden/names.txt has its own, by namespace. With `-s` the
test prints how many, and which are not.

python tests/python/test_names.py     writes the table of docs/from_pytorch.md anew
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import facula

DOCUMENT = Path(__file__).parents[2] / "docs" / "from_pytorch.md"
START, END = "<!-- names: written by tests/python/test_names.py -->\n", "<!-- end of names -->\n"
RECORDED = Path(__file__).parents[1] / "golden" / "names.txt"
NAMES = {line.split()[0]: line.split()[1:] for line in RECORDED.read_text().splitlines()}
# The number that may not fall; all that are recorded where a namespace is not listed.
LEAST = {
    "torch.Tensor": 596,
    "torch.ao.quantization": 99,
    "torch.autograd.graph": 9,
    "torch.autograd": 14,
    "torch.backends.cuda": 18,
    "torch.backends.mps": 4,
    "torch.cuda": 92,
    "torch.distributed": 79,
    "torch.export": 6,
    "torch.fft": 18,
    "torch.jit": 21,
    "torch.library": 14,
    "torch.linalg": 41,
    "torch.monitor": 16,
    "torch.mps": 6,
    "torch.nn.functional": 146,
    "torch.nn.quantized": 31,
    "torch.onnx": 3,
    "torch.optim": 16,
    "torch.profiler": 9,
    "torch.sparse": 8,
    "torch.utils._python_dispatch": 15,
    "torch.utils._pytree": 32,
    "torch.utils.benchmark": 17,
    "torch.utils.checkpoint": 15,
    "torch.utils.collect_env": 5,
    "torch.utils.cpp_extension": 15,
    "torch.utils.data.datapipes.iter": 18,
    "torch.xpu": 9,
    "torch": 724,
}


def space(name):
    ours = "facula" + name.removeprefix("torch")
    try:
        return importlib.import_module(ours)
    except ModuleNotFoundError:
        owner, _, last = ours.rpartition(".")
        try:
            return getattr(importlib.import_module(owner), last, None)
        except ModuleNotFoundError:
            return None


def there(owner, name):
    try:
        getattr(owner, name)
    except AttributeError:
        return False
    return True


def missing_of(name):
    owner = facula.Tensor if name == "torch.Tensor" else space(name)
    return [n for n in NAMES[name] if not there(owner, n)]


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_there(name):
    missing = missing_of(name)
    count, of = len(NAMES[name]) - len(missing), len(NAMES[name])
    print(f"\n{name}: {count} of {of}", f"without {' '.join(missing)}" if missing else "")
    assert count >= LEAST.get(name, of), f"{name}: {count} of {of}; not there: {' '.join(missing)}"


SHOWN = 8  # absent names of a row


def table():
    """The namespaces, with what is absent."""
    absent = {name: missing_of(name) for name in NAMES if NAMES[name]}
    of = sum(map(len, NAMES.values()))
    count = of - sum(map(len, absent.values()))
    whole = [f"`{name}`" for name, missing in absent.items() if not missing]
    lines = [f"{count} of {of} public names of {len(absent)} namespaces are there.", ""]
    lines += [f"Complete: {', '.join(whole)}.", "", "| namespace | there | absent |", "|---|---|---|"]
    for name, missing in absent.items():
        if missing:
            public = [n for n in missing if not n.startswith(("cudnn_", "miopen_", "mkldnn_", "fbgemm_"))]
            more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            shown = ", ".join(f"`{n}`" for n in (public or missing)[:SHOWN])
            lines.append(
                f"| `{name}` | {len(NAMES[name]) - len(missing)} of {len(NAMES[name])} | {shown}{more} |"
            )
    return "\n".join(lines) + "\n"


def test_the_document_promises_no_name_that_is_absent():
    text = DOCUMENT.read_text().partition(START)[2].partition(END)[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert rows, "the table of docs/from_pytorch.md is gone"
    for name, count, _ in rows:
        name = name.strip("| `")
        assert len(NAMES[name]) - len(missing_of(name)) >= int(count.split()[0]), name


if __name__ == "__main__":
    before, _, rest = DOCUMENT.read_text().partition(START)
    DOCUMENT.write_text(before + START + "\n" + table() + "\n" + END + rest.partition(END)[2])
