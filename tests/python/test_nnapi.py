"""facula.nnapi: models of PyTorch's exporter and of ours, run by the host library through the C interface
of Android."""

import ctypes
import json
import os
import random
import re
import subprocess
from pathlib import Path

import facula.nn.functional as nf
import numpy as np
import pytest
from facula.nnapi import _codes, _run

import facula as F
from facula import nn, nnapi

ROOT = Path(__file__).resolve().parents[2]
RECORDED = np.load(ROOT / "tests" / "golden" / "nnapi.npz")
CASES = {c["name"]: (k, c) for k, c in enumerate(json.loads(str(RECORDED["cases"])))}
HOST = str(_run.FOLDER / "libneuralnetworks.so")


@pytest.fixture(autouse=True)
def seed():
    value = random.randrange(1 << 30)
    print("seed", value)
    F.manual_seed(value)


# ---- models that PyTorch wrote


def close(given, expected, eight_bits):
    """Equal, or within a step of the quantisation, which rounds ties of products in float32 there."""
    if not eight_bits:
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
        return
    levels = np.unique(np.abs(expected - given)[expected != given])
    assert (given != expected).mean() <= 0.01, (given != expected).mean()
    steps = np.diff(np.unique(expected))
    assert not levels.size or levels.max() <= steps.min() * 1.01, levels


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_pytorch_wrote_gives_the_results_of_its_module(name):
    number, case = CASES[name]
    weights = [F.from_numpy(RECORDED[f"{number}.weight{k}"]) for k in range(case["weights"])]
    compiled = nnapi.Compilation(RECORDED[f"{number}.words"].tolist(), weights, path=HOST)
    inputs = []
    for k, order in enumerate(case["inputs"]):
        x = F.from_numpy(np.ascontiguousarray(RECORDED[f"{number}.input{k}"]))
        inputs.append(x.permute(0, 2, 3, 1).contiguous() if order == 1 else x)
    expected = [RECORDED[f"{number}.result{k}"] for k in range(len(case["outputs"]))]
    shapes = [e.transpose(0, 2, 3, 1).shape if o == 1 else e.shape for e, o in zip(expected, case["outputs"])]
    outputs = [F.empty(s) for s in shapes]
    compiled.run(inputs, outputs)
    for given, e, order in zip(outputs, expected, case["outputs"]):
        close((given.permute(0, 3, 1, 2) if order == 1 else given).numpy(), e, "quantised" in name)


@pytest.mark.skipif(not (ROOT / ".peer").exists(), reason="needs PyTorch")
def test_pytorchs_client_of_nnapi_runs_on_the_host_library():
    script = ROOT / "tests" / "golden" / "record_nnapi.py"
    done = subprocess.run(
        [str(ROOT / ".peer/bin/python"), "-W", "ignore", str(script), "--run"],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(_run.FOLDER)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [name for _, name in lines] == list(CASES)
    for difference, name in lines:
        assert float(difference) <= (0.1 if "quantised" in name else 1e-5), (difference, name)


# ---- models that we write


class Residual(nn.Module):
    """An inverted residual."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU6(),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width, bias=False),
            nn.BatchNorm2d(4 * width),
            nn.ReLU6(),
            nn.Conv2d(4 * width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return x + self.body(x)


class Call(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def randomised(module):
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            with F.no_grad():
                m.running_mean.copy_(F.randn(m.num_features) * 0.1)
                m.running_var.copy_(F.rand(m.num_features) + 0.5)
                m.weight.copy_(F.rand(m.num_features) + 0.5)
                m.bias.copy_(F.randn(m.num_features) * 0.1)
    return module.eval()


def image(*sizes):
    return F.randn(*sizes)


MODELS = {
    "cnn": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            Residual(8),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 6, 3, groups=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 5),
            nn.Softmax(1),
        ),
        (image(2, 3, 17, 18),),
    ),
    "mlp": lambda: (
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4), nn.LogSoftmax(-1)),
        (image(3, 6),),
    ),
    "matrices": lambda: (nn.Linear(6, 8), (image(2, 3, 6),)),
    "pools": lambda: (
        nn.Sequential(nn.AvgPool2d(3, 2, 1), nn.Conv2d(3, 3, 1), nn.MaxPool2d(2, padding=1)),
        (image(1, 3, 13, 12),),
    ),
    "excluded padding": lambda: (nn.AvgPool2d(3, 1, 1, count_include_pad=False), (image(1, 2, 5, 6),)),
    "windows": lambda: (nn.AdaptiveAvgPool2d((2, 3)), (image(1, 2, 8, 9),)),
    "dilated": lambda: (nn.Conv2d(2, 3, 3, dilation=2), (image(1, 2, 9, 9),)),
    "multiplier": lambda: (nn.Conv2d(3, 6, 3, groups=3), (image(1, 3, 7, 7),)),
    "transposed": lambda: (nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), (image(1, 2, 5, 6),)),
    "nearest": lambda: (nn.Upsample(size=(9, 14), mode="nearest"), (image(1, 2, 5, 7),)),
    "bilinear": lambda: (nn.Upsample(size=(9, 14), mode="bilinear"), (image(1, 2, 5, 7),)),
    "corners": lambda: (nn.Upsample(size=(9, 4), mode="bilinear", align_corners=True), (image(1, 2, 5, 7),)),
    "activations": lambda: (
        nn.Sequential(
            nn.ELU(0.7),
            nn.LeakyReLU(0.2),
            nn.Hardswish(),
            nn.Hardsigmoid(),
            nn.Hardtanh(-0.4, 0.6),
            nn.Sigmoid(),
        ),
        (image(3, 4) * 4,),
    ),
    "prelu": lambda: (nn.Sequential(nn.Conv2d(2, 3, 1), nn.PReLU(3, 0.3)), (image(2, 2, 4, 5),)),
    "arithmetic": lambda: (
        Call(
            lambda a, b: (
                a * 2 - b / 3 + 1,
                F.maximum(a, b).exp().sqrt(),
                (a.abs() + 1).log() - (b.abs() + 1).rsqrt(),
            )
        ),
        (image(3, 4), image(4)),
    ),
    "reductions": lambda: (
        Call(lambda a: (a.mean([2, 3]), a.sum(1), a.amax((0, 2), keepdim=True), -a.amin(-1))),
        (image(2, 3, 4, 5),),
    ),
    "movements": lambda: (
        Call(
            lambda a: (
                a.permute(2, 0, 1),
                a[:, 1:],
                a.unsqueeze(1).squeeze(1).transpose(0, 2),
                F.cat([a, a * 2], -1),
                nf.pad(a, (1, 2, 0, 1)),
            )
        ),
        (image(2, 3, 4),),
    ),
    "images": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            Call(
                lambda a: F.cat(
                    [a[:, :2], a.chunk(2, 1)[1] * a.mean(1, True), nf.pad(a, (0, 0, 0, 0))], 1
                ).flatten(1)
            ),
        ),
        (image(2, 3, 4, 5),),
    ),
    "an input as a result": lambda: (Call(lambda a: (a, a)), (image(2, 3),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_module_gives_the_results_of_eager(name):
    module, args = MODELS[name]()
    module = randomised(module)
    with F.no_grad():
        expected = module(*args)
    given = nnapi.export(module, args, library=HOST)(*args)
    assert isinstance(given, tuple) == isinstance(expected, tuple)
    pairs = zip(given, expected, strict=True) if isinstance(given, tuple) else [(given, expected)]
    for g, e in pairs:
        assert g.shape == e.shape
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=2e-5, atol=2e-6)


def test_channels_last_inputs_need_no_transposition():
    x = image(1, 3, 8, 8)
    net = nn.Conv2d(3, 4, 3).eval()
    plain = nnapi.export(net, x, library=HOST)
    x.nnapi_nhwc = True
    last = nnapi.export(net, x, library=HOST)
    assert len(last.model.words) < len(plain.model.words)
    assert F.equal(last(x), plain(x))


def test_sizes_are_known_when_the_model_is_loaded(tmp_path):
    net = randomised(
        nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(5, 2),
        )
    )
    x = image(2, 3, 24, 26)
    sizes = {"input": {0: F.export.Dim("n"), 2: F.export.Dim("h"), 3: F.export.Dim("w")}}
    model = nnapi.export(net, x, dynamic_shapes=sizes, library=HOST)
    assert model.model.rules
    for shape in ((2, 3, 24, 26), (1, 3, 33, 20), (5, 3, 40, 41)):
        x = image(*shape)
        with F.no_grad():
            np.testing.assert_allclose(model(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_pytorchs_names_convert_a_traced_module():
    from facula.backends._nnapi.prepare import convert_model_to_nnapi
    from facula.backends._nnapi.serializer import serialize_model

    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), image(1, 3, 6, 6)
    converted = convert_model_to_nnapi(F.jit.trace(net, x), [x])
    with F.no_grad():
        np.testing.assert_allclose(converted(x).numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)
    words, weights, inputs, outputs, lines, count = serialize_model(net, [x])
    assert words.typecode == "i" and words[0] == 1 and len(weights) == 2
    assert (inputs, outputs, lines, count) == ([0], [0], [], -1)


# ---- 8 bits


def quantised(net, x):
    from facula.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from facula.ao.quantization.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(F.export.export(net, (x,)).module(), quantizer)
    for _ in range(4):
        prepared(F.randn_like(x))
    return convert_pt2e(prepared)


def test_a_quantised_program_computes_with_integers():
    x = image(4, 3, 16, 16)
    net = randomised(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.ReLU(),
            nn.Conv2d(8, 12, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 5),
        )
    )
    program = quantised(net, x)
    model = nnapi.export(program, x, library=HOST)
    names = [code.name for code in operations(model.model)]
    assert names.count("QUANTIZE") == 1 and names.count("DEQUANTIZE") == 1, names
    assert {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"} <= set(names)
    expected, given = program(x), model(x)
    step = (
        float((expected - expected.round(decimals=9)).abs().max()) + (expected.max() - expected.min()) / 100
    )
    assert float((given - expected).abs().max()) <= float(step)


def operations(model):
    """The codes of a serialized model's operations."""
    operands, values, count = model.words[1:4]
    at = 6 + 4 * operands + 3 * values
    return [_codes.Code(model.words[at + 3 * k]) for k in range(count)]


# ---- the C sources


def test_the_codes_are_those_of_the_header():
    text = nnapi.SOURCES[0].read_text()
    numbers = dict(re.findall(r"ANEURALNETWORKS_(\w+) = (\d+)", text))
    for kind in (_codes.Type, _codes.Code):
        assert {m.name: str(m.value) for m in kind}.items() <= numbers.items()
    assert {f"FUSED_{m.name}": str(m.value) for m in _codes.Fuse}.items() <= numbers.items()


MAIN = """
#include <stdio.h>
#include "nnapi_runner.h"

int main(int count, char** arguments) {
  static float x[2 * 3 * 9 * 8], y[64];
  const int32_t dimensions[] = {2, 3, 9, 8};
  const void* inputs[] = {x};
  void* outputs[] = {y};
  char error[256] = "";
  size_t k;
  facula_nnapi* model;
  for (k = 0; k < sizeof x / sizeof *x; ++k) x[k] = (float)(k % 7) - 3;
  model = facula_nnapi_open(arguments[1], arguments[2], dimensions, 4, 1, 0, error, sizeof error);
  if (model && (facula_nnapi_input_bytes(model, 0) != sizeof x ||
                facula_nnapi_output_bytes(model, 0) > sizeof y)) {
    puts("nnapi: the model has other sizes than the buffers");
    return 1;
  }
  if (!model || facula_nnapi_run(model, inputs, outputs, error, sizeof error)) {
    puts(error);
    return 1;
  }
  for (k = 0; k < facula_nnapi_output_bytes(model, 0) / sizeof *y; ++k) printf("%.9g\\n", (double)y[k]);
  facula_nnapi_free(model);
  return count != 3;
}
"""


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """A program of C99 that runs a file's model."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "main.c").write_text(MAIN)
    sources = [str(s) for s in nnapi.SOURCES if s.suffix == ".c"]
    strict = (
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-pedantic-errors",
        "-Werror",
    )
    command = [
        "cc",
        *strict,
        "-fsanitize=undefined",
        "-I",
        str(_run.FOLDER),
        str(folder / "main.c"),
        *sources,
        "-ldl",
        "-o",
        str(folder / "client"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "client"


def test_a_file_runs_in_a_program_of_c(client, tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    sizes = {"input": {0: F.export.Dim("n"), 2: F.export.Dim("h")}}
    nnapi.export(net, image(4, 3, 12, 8), dynamic_shapes=sizes).save(tmp_path / "model")
    done = subprocess.run([str(client), str(tmp_path / "model"), HOST], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    x = (F.arange(2 * 3 * 9 * 8) % 7 - 3).float().reshape(2, 3, 9, 8)
    with F.no_grad():
        expected = net(x).flatten().numpy()
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), expected, rtol=1e-5, atol=1e-6)


def test_a_damaged_file_is_refused_at_every_word(client, tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()).eval()
    model = nnapi.export(net, image(2, 3, 9, 8))
    model.save(tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    words = 4 + len(model.model.words)
    for k in random.sample(range(words), 25):
        value = random.choice([-1, 0x7FFFFFFF, 1000])
        (tmp_path / "model").write_bytes(
            data[: 4 * k] + value.to_bytes(4, "little", signed=True) + data[4 * k + 4 :]
        )
        done = subprocess.run([str(client), str(tmp_path / "model"), HOST], capture_output=True, text=True)
        assert done.returncode in (0, 1), (
            k,
            value,
            done.stderr[-500:],
        )  # an error, or another number: never a fault
    for size in (0, 3, 16, 100, len(data) - 70):
        (tmp_path / "model").write_bytes(data[:size])
        done = subprocess.run([str(client), str(tmp_path / "model"), HOST], capture_output=True, text=True)
        assert done.returncode == 1 and done.stdout.startswith("nnapi: "), (size, done.stdout)


# ---- bad input


def test_an_operator_without_a_form_is_named_with_its_line():
    with pytest.raises(nnapi.UnsupportedOperatorError, match="cumsum"):
        nnapi.export(Call(lambda a: a.cumsum(0)), image(3, 4))
    with pytest.raises(nnapi.UnsupportedOperatorError, match="ceil_mode"):
        nnapi.export(nn.MaxPool2d(2, ceil_mode=True), image(1, 1, 5, 5))


def test_wrong_arguments_are_refused():
    model = nnapi.export(nn.Linear(3, 2), image(2, 3), library=HOST)
    with pytest.raises(ValueError, match="input 0 is"):
        model(image(3, 3))
    with pytest.raises(TypeError, match="1 inputs"):
        model(image(2, 3), image(2, 3))
    with pytest.raises(RuntimeError, match="was not loaded"):
        nnapi.export(nn.Linear(3, 2), image(2, 3), library="/nowhere/libneuralnetworks.so")(image(2, 3))


def test_the_library_checks_states_and_arguments():
    lib = ctypes.CDLL(HOST)
    model, other = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.ANeuralNetworksModel_create(None) == 3
    assert lib.ANeuralNetworksModel_create(ctypes.byref(model)) == 0
    assert lib.ANeuralNetworksModel_finish(model) == 4  # no outputs
    assert lib.ANeuralNetworksCompilation_create(model, ctypes.byref(other)) == 6  # not finished
    assert lib.ANeuralNetworksModel_setOperandValue(model, 0, None, 0) == 4  # no such operand
    indices = (ctypes.c_uint32 * 1)(7)
    assert lib.ANeuralNetworksModel_addOperation(model, 0, 1, indices, 1, indices) == 4
    assert lib.ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, indices, 1, indices) == 4
    lib.ANeuralNetworksModel_free(model)
