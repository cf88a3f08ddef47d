"""Whole models as C on this machine: results equal to eager, the size of the code, and the time of one
image beside
ONNX Runtime with one thread. In 8 bits: the same for the quantised network of facula.tiny.

make mobile
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from facula.program import trace

import facula as F
from facula import c, nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards import networks
from boards.targets import EXACT, STRICT

ROOT = Path(__file__).resolve().parents[2]
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MobileNetV2": networks.mobilenet_v2,
    "ResNet-18": networks.resnet18,
}
CODE_LIMIT = {"MobileNetV2": 400_000}
MOST_TIMES = 5.0


def library(folder: Path) -> tuple[ctypes.CDLL, int]:
    """The compiled folder, and the bytes of its code."""
    objects = []
    for source in sorted(folder.glob("*.c")):
        objects.append(str(source.with_suffix(".o")))
        command = [
            "cc",
            *STRICT,
            *EXACT,
            "-O3",
            "-march=native",
            "-fPIC",
            "-c",
            str(source),
            "-o",
            objects[-1],
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
    subprocess.run(["cc", "-shared", "-o", str(folder / "model.so"), *objects, "-lm"], check=True)
    sizes = subprocess.run(
        ["size", str(folder / "model.o")], capture_output=True, text=True, check=True
    ).stdout
    return ctypes.CDLL(str(folder / "model.so")), int(sizes.splitlines()[1].split()[0])


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def seconds(run: Callable[[], Any], rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def onnx_session(model: nn.Module, x: F.Tensor) -> Callable[[], Any] | None:
    """A call of ONNX Runtime with one thread; None if it is not installed."""
    if not (ROOT / ".onnx").exists():
        return None
    sys.path.insert(0, str(ROOT / ".onnx"))
    import onnxruntime

    program = F.onnx.export(model, (x,))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    name, data = session.get_inputs()[0].name, x.numpy()
    return lambda: session.run(None, {name: data})[0]


def floating(name: str, model: nn.Module, x: F.Tensor) -> tuple[str, bool]:
    """A line for float32."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = trace(model, x)
        report = c.compile(program, folder, weights=model)
        code, size = library(folder)
        image, result = np.ascontiguousarray(x.numpy()), np.zeros((1, 1000), np.float32)
        assert code.model_run(pointer(image), pointer(result)) == 0
        with F.no_grad():
            expected = model(x).numpy()
        difference = float(np.abs(result - expected).max() / np.abs(expected).max())
        ours = seconds(lambda: code.model_run(pointer(image), pointer(result)))
    session = onnx_session(model, x)
    theirs = seconds(session) if session else None
    times = f"{ours * 1e3:.0f} ms | " + (f"{theirs * 1e3:.1f} ms | {ours / theirs:.1f}x" if theirs else " | ")
    good = difference <= 1e-5 and size <= CODE_LIMIT.get(name, size)
    slow = theirs is not None and ours > MOST_TIMES * theirs
    verdict = ("equal to eager" if difference <= 1e-5 else f"DIFFERS by {difference:.1e}") + (
        ", TOO SLOW" if slow else ""
    )
    return f"| {name}, float32 | {size:,} | {report.arena:,} | {times} | {verdict} |", good and not slow


def eight_bits(name: str, model: nn.Module, x: F.Tensor) -> tuple[str, bool]:
    """A line for the network of 8-bit integers: every bit is that of eager."""
    net = tiny.quantize(model, [x])
    image = net.in_scale.quantize(x.permute(0, 2, 3, 1)).contiguous()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        program = trace(net.logits, image)
        report = c.compile(program, folder)
        code, size = library(folder)
        given, result = np.ascontiguousarray(image.numpy()), np.zeros((1, 1000), np.float32)
        assert code.model_run(pointer(given), pointer(result)) == 0
        expected = net.logits(image).numpy()
        same = bool((result == expected).all())
        ours = seconds(lambda: code.model_run(pointer(given), pointer(result)))
    verdict = "same bits as eager" if same else f"DIFFERS by {np.abs(result - expected).max():.1e}"
    return f"| {name}, int8 | {size:,} | {report.arena:,} | {ours * 1e3:.0f} ms |  |  | {verdict} |", same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    seed, failed = F.seed(), 0
    F.set_num_threads(1)
    print("| model | code, bytes | arena, bytes | C | ONNX Runtime | ratio | results |\n" + "|---" * 7 + "|")
    for name, make in NETWORKS.items():
        if options.only not in name:
            continue
        model, _ = networks.calibrated(make(), options.size, 1, 2)
        x = F.randn(1, 3, options.size, options.size)
        for line, good in (floating(name, model, x), eight_bits(name, model, x)):
            failed += not good
            print(line, flush=True)
    print(f"seed {seed}: {'as required' if not failed else f'{failed} not as required'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
