"""The C++ front end seen from Python: the twin of the example, exchanged checkpoints."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_example_fashion_mnist import EXAMPLE, images  # noqa: F401

import facula

BUILD = Path(facula._C.__file__).resolve().parents[2]
TWIN = BUILD / "examples" / "fashion_mnist_train"
pytestmark = pytest.mark.skipif(not TWIN.exists(), reason="the C++ example was not built")


def run(command, *options):
    done = subprocess.run([*command, *map(str, options)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # What is left of a line without the times: the losses and accuracies.
    return re.sub(r" +[\d,]+ images/s.*|, [\d.]+ s$|; results in .*", "", done.stdout, flags=re.M)


@pytest.fixture(scope="session")
def runs(images, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("runs")
    options = ("--data", images, "--epochs", "2", "--seed", "3", "--limit", "128")
    twin = run([TWIN], *options, "--out", folder / "cpp")
    python = run([sys.executable, EXAMPLE], *options, "--out", folder / "python")
    return folder, twin, python


def test_both_print_the_same_losses(runs):
    _, twin, python = runs
    assert twin == python and twin.count("test loss") == 2


def test_both_have_the_same_metrics_bit_for_bit(runs):
    def metrics(name):
        rows = json.loads((runs[0] / name / "metrics.json").read_text())
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert metrics("cpp") == metrics("python")


def assert_same(a, b, where=""):
    assert type(a) is type(b) or {type(a), type(b)} == {dict, type(b)}, where
    if isinstance(a, facula.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape and facula.equal(a, b), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            if key != "seconds":
                assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{where}[{k}]")
    else:
        assert a == b, where


def test_python_reads_the_checkpoint_of_the_twin_and_it_is_the_same(runs):
    read = [facula.load(runs[0] / name / "checkpoint.pt") for name in ("cpp", "python")]
    assert_same(*read)


def test_each_resumes_what_the_other_began(images, runs, tmp_path):  # noqa: F811
    folder = runs[0]
    options = ("--data", images, "--epochs", "2", "--seed", "3", "--limit", "128")
    programs = {"cpp": [TWIN], "python": [sys.executable, EXAMPLE]}
    for first, second in (("cpp", "python"), ("python", "cpp")):
        out = tmp_path / first
        run(programs[first], *options, "--out", out, "--stop-after", "1")
        run(programs[second], *options, "--out", out, "--resume")
        assert_same(facula.load(out / "checkpoint.pt"), facula.load(folder / "python" / "checkpoint.pt"))


def test_the_twin_names_what_is_wrong(images, tmp_path):  # noqa: F811
    done = subprocess.run([TWIN, "--data", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "train-images-idx3-ubyte.gz" in done.stderr
    for f in images.iterdir():
        os.symlink(f, tmp_path / f.name)
    damaged = tmp_path / "train-images-idx3-ubyte.gz"
    damaged.unlink()
    damaged.write_bytes((images / damaged.name).read_bytes()[:-200])
    done = subprocess.run(
        [TWIN, "--data", tmp_path, "--out", tmp_path / "out"], capture_output=True, text=True
    )
    assert done.returncode == 1 and "train-images-idx3-ubyte.gz is damaged" in done.stderr
