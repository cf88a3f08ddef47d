"""Times inference of models in float32 and int8: ours, PyTorch's if FACULA_PEER names its Python, and ONNX
Runtime's if FACULA_ONNX names the folder that setup/folder.sh onnx installs.

python bench/quantize.py [--models resnet18,bert] [--threads 2] [--repeats 20]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = [sys.executable, "-m", "facula.torch"]


def models(torch):
    """Returns by name a function that makes a model, and one that makes its input."""
    nn = torch.nn
    functional = nn.functional

    class Residual(nn.Module):
        """Two convolutions, or three with a narrow one in the middle, around which the input passes."""

        def __init__(self, i, o, stride, wide):
            super().__init__()
            kernels = [(i, o, 1, 1), (o, o, 3, stride), (o, wide * o, 1, 1)] if wide > 1 else None
            kernels = kernels or [(i, o, 3, stride), (o, o, 3, 1)]
            layers = []
            for a, b, k, s in kernels:
                layers += [nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            self.body = nn.Sequential(*layers[:-1])
            self.side = nn.Sequential()
            if i != wide * o or stride > 1:
                self.side = nn.Sequential(
                    nn.Conv2d(i, wide * o, 1, stride, bias=False), nn.BatchNorm2d(wide * o)
                )
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(self.body(x) + self.side(x))

    def resnet(counts, wide):
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for k, count in enumerate(counts):
            for n in range(count):
                layers.append(Residual(channels, 64 << k, 2 if k and not n else 1, wide))
                channels = wide * (64 << k)
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
        return nn.Sequential(*layers)

    class Inverted(nn.Module):
        def __init__(self, i, o, stride, expand):
            super().__init__()
            hidden = i * expand
            layers = (
                []
                if expand == 1
                else [nn.Conv2d(i, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
            )
            layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)]
            layers += [
                nn.BatchNorm2d(hidden),
                nn.ReLU6(),
                nn.Conv2d(hidden, o, 1, bias=False),
                nn.BatchNorm2d(o),
            ]
            self.layers, self.adds = nn.Sequential(*layers), stride == 1 and i == o

        def forward(self, x):
            y = self.layers(x)
            return x + y if self.adds else y

    def mobilenet():
        layers, channels = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
        widths = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
        for expand, o, count, stride in [*widths, (6, 320, 1, 1)]:
            for n in range(count):
                layers.append(Inverted(channels, o, 1 if n else stride, expand))
                channels = o
        layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))

    class Encoder(nn.Module):
        def __init__(self, width=768, heads=12):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.narrow, self.act = (
                nn.Linear(width, 4 * width),
                nn.Linear(4 * width, width),
                nn.GELU(),
            )
            self.a, self.b, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads

        def forward(self, x):
            q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = self.a(x + self.o(y))
            return self.b(x + self.narrow(self.act(self.wide(x))))

    def image():
        return torch.randn(1, 3, 224, 224)

    return {
        "resnet18": (lambda: resnet([2, 2, 2, 2], 1), image),
        "resnet50": (lambda: resnet([3, 4, 6, 3], 4), image),
        "mobilenet_v2": (mobilenet, image),
        "bert": (lambda: nn.Sequential(*(Encoder() for _ in range(12))), lambda: torch.randn(1, 128, 768)),
    }


def timed(torch, call, repeats):
    """Returns the least time of a call in milliseconds.

    The time of one thread is its processor time, which other programs on the machine hardly change.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return 1000 * min(times)


def ours(torch, model, x, repeats):
    from torch.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torch.ao.quantization.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared(x)
    converted = convert_pt2e(prepared)
    last = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    programs = {"float32": torch.compile(model), "int8": torch.compile(converted), "int8 eager": converted}
    return {name: timed(torch, lambda f=f: f(last), repeats) for name, f in programs.items()}


def theirs(torch, model, x, repeats):
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.backends.quantized.engine = "x86"
    prepared = prepare_fx(model, get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    last = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    programs = {"peer float32": model, "peer int8": convert_fx(prepared)}
    return {name: timed(torch, lambda f=f: f(last), repeats) for name, f in programs.items()}


def worker(options):
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    make, inputs = models(torch)[options.worker]
    model, x = make().eval(), inputs()
    if options.onnx:
        torch.onnx.export(model, (x,), options.onnx, input_names=["x"])
        return
    with torch.no_grad():
        run = ours if "facula" in torch.__file__ else theirs
        print(json.dumps(run(torch, model, x, options.repeats)))


RUNTIME = """
import json, sys, time
import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

path, threads, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
session = ort.InferenceSession(path)
shape = session.get_inputs()[0].shape
x = np.random.RandomState(0).randn(*shape).astype(np.float32)

class Once(CalibrationDataReader):
    data = iter([{session.get_inputs()[0].name: x}])

    def get_next(self):
        return next(self.data, None)

quantize_static(path, path + ".int8", Once(), quant_format=QuantFormat.QDQ, per_channel=True,
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
times = {}
for name, file in (("ORT float32", path), ("ORT int8", path + ".int8")):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(file, options)
    feed = {session.get_inputs()[0].name: x}
    clock = time.process_time if threads == 1 else time.perf_counter
    taken = []
    for _ in range(repeats + 3):
        start = clock()
        session.run(None, feed)
        taken.append(clock() - start)
    times[name] = 1000 * min(taken[3:])
print(json.dumps(times))
"""


def called(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if lines else {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default="resnet18,resnet50,mobilenet_v2,bert")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--worker")
    parser.add_argument("--onnx")
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    shared = ["--threads", str(options.threads), "--repeats", str(options.repeats)]
    for name in options.models.split(","):
        arguments = [__file__, "--worker", name, *shared]
        row = called([*OURS, *arguments])
        if peer := os.environ.get("FACULA_PEER"):
            row |= called([peer, *arguments])
        if folder := os.environ.get("FACULA_ONNX"):
            path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
            with tempfile.TemporaryDirectory() as temporary:
                file = str(Path(temporary) / "model.onnx")
                failed = called([*OURS, *arguments, "--onnx", file], PYTHONPATH=path)
                command = [sys.executable, "-c", RUNTIME, file, str(options.threads), str(options.repeats)]
                row |= failed or called(command, PYTHONPATH=path)
        print(
            name, ", ".join(f"{k} {v:.1f} ms" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        )


if __name__ == "__main__":
    main()
