"""The example, on a data set of a few images: results, resuming, errors."""

import gzip
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fashion_mnist" / "train.py"


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Squares of ten sizes on noise: easy to learn."""
    folder = tmp_path_factory.mktemp("data")
    r = random.Random(0)
    for name, n in (("train", 320), ("t10k", 100)):
        labels = bytes(r.randrange(10) for _ in range(n))
        pixels = bytearray()
        for k in labels:
            size = 4 + 2 * k
            pixels += bytes(
                min(255, r.randrange(40) + 200 * (y < size and x < size))
                for y in range(28)
                for x in range(28)
            )
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb", 1) as f:
            f.write(struct.pack(">4I", 0x803, n, 28, 28) + pixels)
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb", 1) as f:
            f.write(struct.pack(">2I", 0x801, n) + labels)
    return folder


def train(images, out, *options):
    return subprocess.run(
        [sys.executable, EXAMPLE, "--data", images, "--out", out, *options], capture_output=True, text=True
    )


def metrics(out):
    return [
        {k: v for k, v in h.items() if k != "seconds"} for h in json.loads((out / "metrics.json").read_text())
    ]


def test_it_learns_and_leaves_its_results(images, tmp_path):
    run = train(images, tmp_path / "run", "--epochs", "3")
    assert run.returncode == 0, run.stderr
    assert "loss" in run.stdout and "images/s" in run.stdout and "s left" in run.stdout
    history = metrics(tmp_path / "run")
    assert [h["epoch"] for h in history] == [1, 2, 3]
    assert history[-1]["loss"] < 0.6 * history[0]["loss"] and history[-1]["test_accuracy"] > 0.5
    for name in ("curves.png", "predictions.png"):
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")


def test_resuming_gives_the_same_numbers(images, tmp_path):
    assert train(images, tmp_path / "whole", "--epochs", "3", "--seed", "7").returncode == 0
    assert (
        train(images, tmp_path / "parts", "--epochs", "3", "--seed", "7", "--stop-after", "1").returncode == 0
    )
    assert len(metrics(tmp_path / "parts")) == 1
    run = train(images, tmp_path / "parts", "--epochs", "3", "--seed", "7", "--resume")
    assert run.returncode == 0, run.stderr
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    other = train(images, tmp_path / "parts", "--epochs", "3", "--seed", "8", "--resume")
    assert (
        other.returncode == 1 and "belongs to a run with" in other.stderr and "Traceback" not in other.stderr
    )


def damaged(images, tmp_path, change):
    folder = tmp_path / "data"
    folder.mkdir()
    for f in images.iterdir():
        (folder / f.name).write_bytes(f.read_bytes())
    change(folder / "train-images-idx3-ubyte.gz")
    run = train(folder, tmp_path / "run")
    assert run.returncode == 1 and "Traceback" not in run.stderr
    return run.stderr


def test_a_missing_file_is_named_with_what_to_do(images, tmp_path):
    error = damaged(images, tmp_path, lambda f: f.unlink())
    assert (
        "train-images-idx3-ubyte.gz is missing" in error
        and "dataset-fashion-mnist" in error
        and "--data DIR" in error
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.write_bytes(f.read_bytes()[:-200]),
        lambda f: f.write_bytes(b"something else"),
        lambda f: f.write_bytes(b""),
        lambda f: f.write_bytes(gzip.compress(b"\0\0\x08\x03" + bytes(20))),
        lambda f: f.write_bytes(f.read_bytes()[:2000] + bytes(50) + f.read_bytes()[2050:]),
    ],
    ids=["truncated", "foreign", "empty", "short", "corrupt"],
)
def test_a_damaged_file_is_named(images, tmp_path, change):
    error = damaged(images, tmp_path, change)
    assert "train-images-idx3-ubyte.gz is damaged" in error and error.count("\n") <= 3


def test_resuming_without_a_checkpoint_says_so(images, tmp_path):
    run = train(images, tmp_path / "none", "--resume")
    assert run.returncode == 1 and "to resume from" in run.stderr


def test_it_is_written_as_for_pytorch():
    lines = EXAMPLE.read_text().splitlines()
    named = [line for line in lines if "facula" in line and "python examples" not in line]
    assert all(line.startswith(("import facula", "from facula")) for line in named)
    assert os.path.exists(EXAMPLE.with_name("plots.py"))
