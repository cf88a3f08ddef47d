"""onnx.export: ONNX Runtime computes what the module computes. The packages are installed by `make
export`.
"""

import sys
from pathlib import Path

import pytest
from facula.export import Dim, export, load, save

import facula
from facula import nn
from facula.nn import functional as F

FOLDER = Path(__file__).parents[2] / ".onnx"
if FOLDER.is_dir() and str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))
onnx = pytest.importorskip("onnx", reason="setup/folder.sh onnx installs it")
onnxruntime = pytest.importorskip("onnxruntime")


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.second, self.last = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and inputs == outputs
        short = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if same else nn.Sequential(*short)

    def forward(self, x):
        y = self.last(self.second(self.relu(self.norm(self.first(x)))))
        y += self.short(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        stem = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
        blocks, inputs = [], width
        for k in range(4):
            outputs = width << k
            blocks += [Residual(inputs, outputs, 1 + (k > 0)), Residual(outputs, outputs, 1)]
            inputs = outputs
        self.body = nn.Sequential(*stem, *blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 10)

    def forward(self, x):
        return self.head(facula.flatten(self.pool(self.body(x)), 1))


class Gpt(nn.Module):
    def __init__(self, words=31, width=16, heads=2, places=24):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(2)
        )
        self.heads, self.head = heads, nn.Linear(width, words, bias=False)

    def forward(self, ids):
        n, t = ids.size()
        x = self.words(ids) + self.places(facula.arange(t, device=ids.device))
        for k in range(2):
            parts = self.qkv[k](self.norms[2 * k](x)).split(x.size(2), 2)
            q, k_, v = (p.view(n, t, self.heads, -1).transpose(1, 2) for p in parts)
            y = F.scaled_dot_product_attention(q, k_, v, is_causal=True)
            x = x + y.transpose(1, 2).reshape(n, t, -1)
            x = x + self.inner[k](self.norms[2 * k + 1](x))
        return self.head(self.norms[4](x))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, 2, batch_first=True, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def mlp():
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.SiLU(), nn.Dropout(0.3), nn.Linear(8, 3), nn.Softmax(-1)
    )


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.LeakyReLU(0.1), nn.AvgPool2d(2),
        nn.Hardswish(), nn.Conv2d(8, 8, 3, groups=4, stride=2), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def encoder():
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
    )


MODELS = {
    "mlp": (mlp, lambda n: facula.rand(n, 4)),
    "cnn": (cnn, lambda n: facula.rand(n, 3, 13, 13)),
    "resnet18": (lambda: ResNet18(8), lambda n: facula.rand(n, 3, 64, 64)),
    "gpt": (Gpt, lambda n: facula.randint(0, 31, (n, 11))),
    "lstm": (Lstm, lambda n: facula.rand(n, 5, 4)),
    "transformer": (encoder, lambda n: facula.rand(n, 7, 16)),
}


def runtime(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (i,) = session.get_inputs()
    return facula.from_numpy(session.run(None, {i.name: x.numpy()})[0])


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("name", MODELS)
def test_onnx_runtime_computes_the_same_for_every_batch(name, opset, tmp_path):
    make, inputs = MODELS[name]
    facula.manual_seed(0)
    model = make()
    before = model.training
    facula.onnx.export(
        model, (inputs(2),), tmp_path / "m.onnx", dynamic_shapes=({0: Dim("batch")},), opset_version=opset
    )
    assert model.training == before  # it was converted in evaluation mode
    model.eval()
    for n in (2, 1, 5):
        x = inputs(n)
        expected = model(x)
        assert facula.allclose(runtime(tmp_path / "m.onnx", x), expected, rtol=1e-5, atol=1e-5)


class Parts(nn.Module):
    """Calls with several results, some of which nothing reads."""

    def forward(self, x):
        a, b, _ = x.split(4, 1)
        c, d = x.chunk(2, 2)
        first, second, *_ = x.unbind(1)
        e, _ = x.split([7, 2], 1)
        y = nn.functional.scaled_dot_product_attention(x, x, x)
        return (
            (a * b).sum((1, 2))
            + (c * d).sum((1, 2))
            + (first - second).sum(1)
            + e.sum((1, 2))
            + y.sum((1, 2))
        )


def test_a_program_from_a_file_becomes_the_same_model(tmp_path):
    x = facula.rand(2, 9, 6)
    save(export(Parts(), (x,), dynamic_shapes=({0: Dim("batch")},)), tmp_path / "m.fpt")
    facula.onnx.export(load(tmp_path / "m.fpt"), (x,), tmp_path / "m.onnx")
    for n in (2, 3):
        x = facula.rand(n, 9, 6)
        assert facula.allclose(runtime(tmp_path / "m.onnx", x), Parts()(x), rtol=1e-5, atol=1e-5)


def test_inputs_outputs_and_sizes_have_the_names_that_the_user_gives(tmp_path):
    program = facula.onnx.export(
        nn.Linear(3, 2), (facula.rand(2, 3),), tmp_path / "m.onnx", input_names=["pixels"],
        output_names=["scores"], dynamic_axes={"pixels": {0: "rows"}},
    )  # fmt: skip
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert [i.name for i in graph.input] == ["pixels"] and [o.name for o in graph.output] == ["scores"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    assert {i.name for i in graph.initializer} >= {"weight", "bias"}
    assert program(facula.rand(4, 3))[0].shape == (4, 2)


def test_an_operator_without_an_onnx_form_is_named_with_its_line():
    class Unusual(nn.Module):
        def forward(self, x):
            return facula.special.i0(x)

    with pytest.raises(facula.onnx.UnsupportedOperatorError, match=r"aten.i0.*%i0 : .*call_function"):
        facula.onnx.export(Unusual(), (facula.rand(2),))


POINTWISE = """
    relu sigmoid tanh exp log sqrt neg abs floor ceil sin cos tan asin acos atan sinh cosh asinh atanh erf
    sign reciprocal rsqrt square exp2 expm1 log1p log2 log10 erfc trunc
""".split()


def test_elementary_functions_agree():
    class Every(nn.Module):
        def forward(self, x):
            return tuple(getattr(facula, n)(x) for n in POINTWISE)

    x = facula.rand(64) * 0.9 + 0.05
    program = facula.onnx.export(Every(), (x,))
    for name, got, expected in zip(POINTWISE, program(x), Every()(x), strict=True):
        assert facula.allclose(got, expected, rtol=2e-6, atol=2e-6), name


def test_dtypes_are_promoted_as_in_the_module():
    class Mixed(nn.Module):
        def forward(self, a, b):
            return (
                a + b,
                a * 2.5,
                (b > 1.5) & (a < b),
                a // 2,
                facula.where(b > 0, a, b),
                b.sum(),
                a.argmax(),
                a.cumsum(0),
            )

    a, b = facula.tensor([1, 5, -3]), facula.tensor([0.5, 7.5, -2.0])
    for got, expected in zip(facula.onnx.export(Mixed(), (a, b))(a, b), Mixed()(a, b), strict=True):
        assert got.dtype == expected.dtype and facula.allclose(got.double(), expected.double())
