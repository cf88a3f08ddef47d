"""facula.c: whole programs as C99, compiled by the machine's compiler and compared with eager."""

import ctypes
import random
import subprocess
import sys
from pathlib import Path

import facula.nn.functional as nf
import numpy as np
import pytest
from facula.program import trace

import facula as F
from facula import c, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.programs import numbers_of  # noqa: E402
from boards.targets import EXACT, STRICT  # noqa: E402


def built(folder, *options):
    """The library of a folder of C files."""
    library = folder / "model.so"
    sources = sorted(str(f) for f in folder.glob("*.c"))
    made = subprocess.run(
        ["cc", *STRICT, *EXACT, *options, "-fPIC", "-shared", "-o", str(library), *sources, "-lm"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr[:4000]
    return ctypes.CDLL(str(library))


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def called(function, inputs, results):
    """Calls a C function with NumPy copies of tensors; returns arrays of the results."""
    arrays = [np.ascontiguousarray(t.detach().numpy()) for t in inputs]
    out = [np.full(tuple(r.shape), 77, dtype=r.detach().numpy().dtype) for r in results]
    assert function(*map(pointer, arrays + out)) == 0
    return out


def compared(f, inputs, folder, tolerance=1e-5, **options):
    program = trace(f, *inputs)
    report = c.compile(program, folder, **options)
    expected = program(*inputs)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    results = called(built(folder).model_run, inputs, expected)
    for r, e in zip(results, expected):
        e = e.detach().numpy()
        assert r.dtype == e.dtype
        if e.dtype.kind == "f":
            np.testing.assert_allclose(r, e, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(r, e)
    return report


@pytest.fixture(autouse=True)
def seed():
    value = random.randrange(1 << 30)
    print("seed", value)
    F.manual_seed(value)


def test_an_elementwise_program_equals_eager(tmp_path):
    report = compared(lambda x, y: (x.exp() + y, x.sin() * 2), (F.randn(3, 5), F.randn(5)), tmp_path)
    assert report.constant == report.writable == 0
    assert report.functions == (
        "int model_run(const float* input0, const float* input1, float* result0, float* result1);",
    )


def test_views_and_copies(tmp_path):
    x = F.randn(4, 6)
    compared(lambda x: (x[1:, ::2], x.t(), x.reshape(3, 8).t().contiguous(), x), (x,), tmp_path)


def test_integers_booleans_and_wide_types(tmp_path):
    x, i = F.randn(5, 4, dtype=F.float64), F.randint(-9, 9, (5, 4))
    compared(lambda x, i: (i // 3, i > 2, x.argmax(1), (x * i).sum(0), i.cumsum(0)), (x, i), tmp_path)


def test_an_index_out_of_range_is_reported(tmp_path):
    x, i = F.randn(5, 3), F.tensor([1, 4])
    c.compile(trace(lambda x, i: x[i], x, i), tmp_path)
    run = built(tmp_path).model_run
    out = np.zeros((2, 3), np.float32)
    assert run(pointer(x.numpy()), pointer(i.numpy()), pointer(out)) == 0
    np.testing.assert_array_equal(out, x.numpy()[[1, 4]])
    assert run(pointer(x.numpy()), pointer(np.array([1, 5])), pointer(out)) == 1


MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 5)), F.randn(3, 20)),
    "cnn": lambda: (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, stride=2, groups=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ).eval(),
        F.randn(2, 1, 12, 12),
    ),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), F.randn(2, 5, 16)),
    "lstm": lambda: (Last(nn.LSTM(6, 8, batch_first=True)), F.randn(2, 4, 6)),
}


class Last(nn.Module):
    def __init__(self, lstm):
        super().__init__()
        self.lstm = lstm

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


@pytest.mark.parametrize("model", MODELS)
def test_models_equal_eager(model, tmp_path):
    net, x = MODELS[model]()
    report = compared(net, (x,), tmp_path, weights=net, arguments={"run": ["x"]})
    assert report.functions[0].startswith("int model_run(const float* x")
    parameters = sum(p.numel() * 4 for p in net.parameters())
    assert report.constant >= parameters and report.writable == 0


def steps_of(net, loss_of, optimizer, inputs):
    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(net, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return trace(step, *inputs)


def losses_of(net, optimizer, inputs, folder, count):
    """The losses of `count` steps by C, and by the program in this process."""

    def loss_of(net, x, y):
        return nf.cross_entropy(net(x), y)

    step = steps_of(net, loss_of, optimizer, inputs)
    c.compile(step, folder, weights=net)
    function = built(folder).model_run
    arguments = [*inputs, *numbers_of(step)]
    by_c = [called(function, arguments, [F.zeros(())])[0].item() for _ in range(count)]
    return by_c, [step(*inputs).item() for _ in range(count)]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_steps_equal_those_of_the_program(optimizer, tmp_path):
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    options = {"lr": 0.1, "momentum": 0.9} if optimizer == "SGD" else {"lr": 0.01}
    inputs = F.randn(12, 8), F.randint(0, 3, (12,))
    by_c, expected = losses_of(
        net, getattr(F.optim, optimizer)(net.parameters(), **options), inputs, tmp_path, 30
    )
    np.testing.assert_allclose(by_c, expected, rtol=2e-4)
    assert by_c[-1] < by_c[0] / 2


def test_training_of_a_convolutional_net(tmp_path):
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    inputs = F.randn(6, 1, 8, 8), F.randint(0, 3, (6,))
    by_c, expected = losses_of(net, F.optim.SGD(net.parameters(), lr=0.05), inputs, tmp_path, 20)
    np.testing.assert_allclose(by_c, expected, rtol=2e-4)


def test_functions_of_a_folder_share_their_weights(tmp_path):
    net = nn.Linear(3, 2)
    x = F.randn(4, 3)
    optimizer = F.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    train, infer = trace(step, x), trace(net, x)
    report = c.compile({"train": train, "infer": infer}, tmp_path, name="net", weights=net)
    assert report.writable == 4 * 8
    library = built(tmp_path)
    before = called(library.net_infer, [x], [F.zeros(4, 2)])[0]
    np.testing.assert_allclose(before, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert report.functions[0] == "int net_train(const float* input0, const double* lr, float* result0);"
    called(library.net_train, [x, *numbers_of(train)], [F.zeros(())])
    train(x)
    after = called(library.net_infer, [x], [F.zeros(4, 2)])[0]
    np.testing.assert_allclose(after, net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.abs(after - before).max() > 1e-3
    weight = (ctypes.c_float * 6).in_dll(library, "net_weight")
    np.testing.assert_allclose(list(weight), net.weight.detach().flatten().tolist(), rtol=1e-5)


def test_what_has_no_c_is_refused_by_name(tmp_path):
    x = F.randn(3)
    with pytest.raises(NotImplementedError, match="nonzero"):
        c.compile(trace(lambda x: x.nonzero(), x), tmp_path)
    with pytest.raises(NotImplementedError, match="random"):
        c.compile(trace(lambda x: nf.dropout(x), x), tmp_path)
    with pytest.raises(NotImplementedError, match="dynamic"):
        c.compile(trace(lambda x: x + 1, x, dynamic=True), tmp_path)
    with pytest.raises(ValueError, match="identifier"):
        c.compile(trace(lambda x: x + 1, x), tmp_path, name="a-b")
    assert list(tmp_path.iterdir()) == []


class Heads(nn.Module):
    """Calls what has no C by a composite, within a step of training."""

    def forward(self, x):
        y = x * 2
        return nf.dropout(y)  # the line of the error


@pytest.mark.parametrize("trains", [False, True])
def test_what_has_no_c_is_refused_with_its_line(trains, tmp_path):
    net, x = nn.Sequential(nn.Linear(4, 4), Heads(), nn.ReLU()), F.randn(2, 4)
    optimizer = F.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        net(x).sum().backward()
        optimizer.step()

    code = Heads.forward.__code__
    place = rf"{code.co_filename}:{code.co_firstlineno + 2}\b"
    with pytest.raises(NotImplementedError, match=rf"_rng_take \({place}.*\), for which no C(.|\n)*random"):
        c.compile(trace(step if trains else net, x), tmp_path)
    line = sys._getframe().f_lineno + 2
    with pytest.raises(NotImplementedError, match=rf"nonzero \({__file__}:{line}\)"):
        c.compile(trace(lambda x: x.nonzero().sum(), x), tmp_path)


def test_empty_and_one_element_tensors(tmp_path):
    compared(lambda x, y: (x.sum(), x + 1, y * 2, F.cat([x, x])), (F.zeros(0, 3), F.randn(())), tmp_path)


def test_special_values_pass_through(tmp_path):
    x = F.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3e38])
    weight = F.tensor([float("nan"), -float("inf"), 0.0, -0.0, 1e-45, 1.0])
    program = trace(lambda x: (x * 1, x + weight, x.clamp(-1, 1), weight * 1), x)
    c.compile(program, tmp_path)
    results = called(built(tmp_path).model_run, [x], program(x))
    for r, e in zip(results, program(x)):
        np.testing.assert_array_equal(r.view(np.uint32) & 0x7FFFFFFF, e.numpy().view(np.uint32) & 0x7FFFFFFF)


def test_the_code_is_clean_under_sanitizers(tmp_path):
    net, x = MODELS["cnn"]()
    program = trace(net, x)
    c.compile(program, tmp_path, weights=net)
    numbers = ", ".join(float(v).hex() + "f" for v in x.flatten().tolist())
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "model.h"\n'
        f"static const float x[] = {{{numbers}}};\n"
        "int main(void) {\n  float y[6];\n  int status = model_run(x, y);\n"
        '  for (int i = 0; i < 6; ++i) printf("%a ", (double)y[i]);\n  return status;\n}\n'
    )
    sources = [str(f) for f in tmp_path.glob("*.c")]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    made = subprocess.run(
        ["cc", *STRICT, *EXACT, *checks, "-o", str(tmp_path / "main"), *sources, "-lm"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    values = [float.fromhex(v) for v in run.stdout.split()]
    np.testing.assert_allclose(values, program(x).detach().flatten().tolist(), rtol=1e-5, atol=1e-6)


CONVOLUTIONS = {
    "plain": (nn.Conv2d(3, 5, 3), (1, 3, 7, 9)),
    "padded with steps, groups": (nn.Conv2d(4, 6, (3, 2), stride=2, groups=2, padding=1), (2, 4, 7, 7)),
    "pointwise": (nn.Conv2d(3, 5, 1, bias=False), (2, 3, 4, 5)),
    "more weights than a panel": (nn.Conv2d(70, 5, 2, dilation=2), (1, 70, 5, 6)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4, padding=(1, 2)), (2, 4, 6, 5)),
    "depthwise with steps": (nn.Conv2d(3, 3, 5, groups=3, stride=2, dilation=2, padding=4), (1, 3, 9, 9)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_tiled_convolution_has_the_bits_of_the_loops(name, tmp_path):
    layer, shape = CONVOLUTIONS[name]
    x = F.randn(shape)
    program = trace(layer, x)
    expected = program(x)
    c.compile(program, tmp_path / "tiled")
    c.compile(program, tmp_path / "loops", tiled=False)
    assert "facula_f32_" in (tmp_path / "tiled" / "model.c").read_text()
    (tiled,), (loops,) = (
        called(built(tmp_path / kind).model_run, (x,), [expected]) for kind in ("tiled", "loops")
    )
    np.testing.assert_array_equal(tiled, loops)
    np.testing.assert_allclose(tiled, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


PRODUCTS = {
    "linear": (lambda a, b: nf.linear(a, b), (9, 40), (35, 40)),
    "few rows": (lambda a, b: nf.linear(a, b), (3, 40), (35, 40)),
    "mm": (lambda a, b: a @ b, (9, 300), (300, 35)),
    "mm of transposes": (lambda a, b: a.t() @ b.t(), (40, 13), (17, 40)),
    "bmm": (lambda a, b: a @ b.transpose(1, 2), (3, 5, 600), (3, 18, 600)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_tiled_product_has_the_bits_of_the_loops(name, tmp_path):
    f, *shapes = PRODUCTS[name]
    inputs = [F.randn(s) for s in shapes]
    expected = trace(f, *inputs)(*inputs)
    for kind in ("tiled", "loops"):
        c.compile(trace(f, *inputs), tmp_path / kind, tiled=kind == "tiled")
    assert "facula_f32_product(" in (tmp_path / "tiled" / "model.c").read_text()
    options = ("-O3", "-march=native")  # the wide tile
    for option in ((), options):
        tiled, loops = (
            called(built(tmp_path / kind, *option).model_run, inputs, [expected])[0]
            for kind in ("tiled", "loops")
        )
        np.testing.assert_array_equal(tiled, loops)
    np.testing.assert_allclose(tiled, expected.numpy(), rtol=1e-5, atol=1e-4)


def test_steps_are_annotated_with_modules_and_lines(tmp_path):
    net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 16))
    x = F.randn(9, 40)
    line = sys._getframe().f_lineno + 1
    c.compile(trace(net, x), tmp_path, weights=net)
    code = (tmp_path / "model.c").read_text()
    assert f"/* 0, test_c_programs.py:{line} */" in code and f"/* 2, test_c_programs.py:{line} */" in code


def test_an_8_bit_model_of_the_export_flow_has_the_bits_of_eager(tmp_path):
    from facula.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from facula.ao.quantization.quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 40), nn.ReLU(), nn.Linear(40, 7)
    )
    x = F.randn(2, 3, 6, 6)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(F.export.export(net.eval(), (x,)).module(), quantizer)
    prepared(x)
    quantized = convert_pt2e(prepared)
    with F.no_grad():
        program, expected = trace(quantized, x), quantized(x)
    c.compile(program, tmp_path)
    code = (tmp_path / "model.c").read_text()
    assert "facula_int8_conv(" in code and "facula_int8_pointwise(" in code and "facula_int8_rectify(" in code
    np.testing.assert_array_equal(called(built(tmp_path).model_run, [x], [expected])[0], expected.numpy())
