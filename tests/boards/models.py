"""Whole models as C on this machine, in float32 and in 8 bits: results equal to eager, the size of the code,
and the time of one call beside ONNX Runtime with one thread, whose 8-bit models its own tool quantises.

make mobile
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from facula.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
from facula.ao.quantization.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from facula.program import trace

import facula as F
from facula import c, nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards import networks, programs
from boards.targets import EXACT, STRICT

ROOT = Path(__file__).resolve().parents[2]
MOST_TIMES = 5.0
Tensor = F.Tensor


@dataclass(frozen=True)
class Model:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input
    code: int | None = None  # the most bytes
    letters: int = 0  # inputs are numbers below it, and the 8-bit form is that of the export-based flow

    def input(self) -> Tensor:
        return F.randint(0, self.letters, self.shape) if self.letters else F.randn(self.shape)

    def made(self) -> nn.Module:
        """The model with the statistics of random inputs."""
        model = self.make()
        if not self.letters and len(self.shape) == 4:
            model, _ = networks.calibrated(model, self.shape[2], 1, 2, channels=self.shape[1])
        return model.eval()


MODELS = {
    "MLP": Model(programs.mlp, (1, 64)),
    "CNN": Model(programs.cnn, (1, 1, 28, 28)),
    "MobileNetV2": Model(networks.mobilenet_v2, (1, 3, 224, 224), code=400_000),
    "ResNet-18": Model(networks.resnet18, (1, 3, 224, 224)),
    "char GPT": Model(programs.CharGpt, (1, 16), letters=32),
}


@dataclass
class Code:
    """A compiled folder."""

    run: Callable[[], list[np.ndarray]]
    size: int  # bytes of its code
    arena: int


def arrays(results: Any) -> list[np.ndarray]:
    return [r.numpy() for r in (results if isinstance(results, tuple) else (results,))]


def compiled(program: Any, x: Tensor, weights: nn.Module | None, folder: Path) -> Code:
    report = c.compile(program, folder, weights=weights)
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
    size = ["size", str(folder / "model.o")]
    text = subprocess.run(size, capture_output=True, text=True, check=True).stdout.splitlines()[1]
    library = ctypes.CDLL(str(folder / "model.so"))
    given, results = np.ascontiguousarray(x.numpy()), [np.zeros_like(r) for r in arrays(program(x))]
    arguments = [array.ctypes.data_as(ctypes.c_void_p) for array in (given, *results)]

    def run() -> list[np.ndarray]:
        assert library.model_run(*arguments) == 0
        return results

    return Code(run, int(text.split()[0]), report.arena)


def seconds(runs: list[Callable[[], Any]], total: float = 1.5) -> list[float]:
    """Processor times of calls that take turns: of many, one that other programs disturb little."""
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + total * len(runs)
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, own in zip(runs, times):
            start = time.process_time()
            run()
            own.append(time.process_time() - start)
    return [statistics.quantiles(own, n=20)[0] for own in times]


class OnnxRuntime:
    """Sessions of ONNX Runtime with one thread for a model and for its 8-bit form."""

    def __init__(self, model: nn.Module, x: Tensor, folder: Path) -> None:
        self.file = folder / "model.onnx"
        F.onnx.export(model, (x,)).save(str(self.file))
        self.data = x.numpy()

    def session(self, file: Path) -> Callable[[], np.ndarray]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda: session.run(None, {name: self.data})[0]

    def floating(self) -> Callable[[], np.ndarray]:
        return self.session(self.file)

    def eight_bits(self) -> Callable[[], np.ndarray]:
        import onnxruntime
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        name = onnxruntime.InferenceSession(str(self.file)).get_inputs()[0].name
        data = [{name: self.data}]

        class Reader(CalibrationDataReader):
            def get_next(self) -> Any:
                return data.pop() if data else None

        quantized = self.file.with_name("int8.onnx")
        quantize_static(
            str(self.file), str(quantized), Reader(), quant_format=QuantFormat.QDQ, per_channel=True
        )
        return self.session(quantized)


def quantized(entry: Model, model: nn.Module, x: Tensor) -> tuple[Callable[..., Any], Tensor]:
    """The 8-bit form of a model, and its input. Its last integers are results too: the classifier of a
    network of facula.tiny is in float32.
    """
    if entry.letters:
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(F.export.export(model, (x,)).module(), quantizer)
        prepared(x)
        return convert_pt2e(prepared), x
    net = tiny.quantize(model, [x])

    def forward(image: Tensor) -> tuple[Tensor, Tensor]:
        logits, run = net.run(image, tiny.Update(classifier=False))
        return logits, run.values[net.classifier.source].q

    return forward, net.images(x)


def row(
    name: str, bits: int, code: Code, expected: list[np.ndarray], theirs: Any, limit: int | None
) -> tuple[str, bool]:
    got = code.run()
    difference = float(np.abs(got[0] - expected[0]).max() / np.abs(expected[0]).max())
    integers = all((a == b).all() for a, b in zip(got[1:], expected[1:]))
    same = difference <= 1e-5 and integers
    verdict = ("" if bits == 32 or not integers else "integers ") + "equal to eager"
    verdict = (
        verdict if same else f"DIFFERS by {difference:.1e}, integers {'equal' if integers else 'DIFFER'}"
    )
    ours, other = seconds([code.run, theirs])
    slow, large = ours > MOST_TIMES * other, limit is not None and code.size > limit
    verdict += (", TOO SLOW" if slow else "") + (", TOO LARGE" if large else "")
    times = f"{ours * 1e3:.3g} ms | {other * 1e3:.3g} ms | {ours / other:.2f}x"
    kind = "float32" if bits == 32 else "int8"
    return f"| {name}, {kind} | {code.size:,} | {code.arena:,} | {times} | {verdict} |", same and not (
        slow or large
    )


def rows(name: str, entry: Model) -> list[tuple[str, bool]]:
    """A line for float32 and a line for 8 bits."""
    model, x = entry.made(), entry.input()
    with tempfile.TemporaryDirectory() as temporary, F.no_grad():
        folder = Path(temporary)
        runtime = OnnxRuntime(model, x, folder)
        code = compiled(trace(model, x), x, model, folder / "float32")
        lines = [row(name, 32, code, arrays(model(x)), runtime.floating(), entry.code)]
        forward, given = quantized(entry, model, x)
        code = compiled(trace(forward, given), given, None, folder / "int8")
        lines.append(row(name, 8, code, arrays(forward(given)), runtime.eight_bits(), entry.code))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    options = parser.parse_args()
    seed, failed = F.seed(), 0
    F.set_num_threads(1)
    logging.getLogger().setLevel(logging.ERROR)  # advice of the quantiser
    sys.path.insert(0, str(ROOT / ".onnx"))
    print("| model | code, bytes | arena, bytes | C | ONNX Runtime | ratio | results |\n" + "|---" * 7 + "|")
    for name, entry in MODELS.items():
        if options.only in name:
            for line, good in rows(name, entry):
                failed += not good
                print(line, flush=True)
    print(f"seed {seed}: {'as required' if not failed else f'{failed} not as required'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
