"""The small examples learn something in a few steps."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import facula

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """A data set in Fashion-MNIST's files: ten classes of bright stripes."""
    import gzip

    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name, n in (("train", 512), ("t10k", 250)):
        labels = rng.integers(0, 10, n).astype(np.uint8)
        pixels = rng.integers(0, 60, (n, 28, 28)).astype(np.uint8)
        for k, label in enumerate(labels):
            pixels[k, 2 * label + 3 : 2 * label + 6] += 180
        header = np.array([2051, n, 28, 28], ">i4").tobytes()
        with gzip.open(folder / f"{name}-images-idx3-ubyte.gz", "wb") as f:
            f.write(header + pixels.tobytes())
        with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz", "wb") as f:
            f.write(np.array([2049, n], ">i4").tobytes() + labels.tobytes())
    return folder


def run(example, *args):
    command = [sys.executable, str(EXAMPLES / example / "train.py"), *map(str, args)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(x) for x in re.findall(r"test accuracy ([\d.]+)%", out)]


def test_the_mlp_learns(images):
    assert run("mlp", "--data", images, "--epochs", 4)[-1] > 90


def test_the_resnet_learns(images):
    accuracies = run("resnet", "--data", images, "--epochs", 2, "--width", 4)
    assert len(accuracies) == 2 and accuracies[-1] > 30


def test_the_resnet_is_a_resnet18():
    spec = importlib.util.spec_from_file_location("resnet_example", EXAMPLES / "resnet" / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ResNet18()
    assert sum(p.numel() for p in model.parameters()) == 11_172_810  # of CIFAR's ResNet-18 with one channel
    assert sum(isinstance(m, facula.nn.Conv2d) for m in model.modules()) == 20
    assert model(facula.zeros(2, 1, 28, 28)).shape == (2, 10)
