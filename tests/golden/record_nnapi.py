"""Records models that PyTorch's exporter to NNAPI writes, with inputs and the results of the modules:
nnapi.npz.

.peer/bin/python tests/golden/record_nnapi.py                  # writes the file
.peer/bin/python tests/golden/record_nnapi.py --run            # runs them by PyTorch's own client of
NNAPI, with the
                                                               # libneuralnetworks.so of LD_LIBRARY_PATH;
                                                               # prints differences
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.backends._nnapi import prepare, serializer

torch.manual_seed(0)


class Apply(nn.Module):
    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, *x):
        return self.function(*self.parts, *x)


def last(x):
    """An image that NNAPI is given with its channels last."""
    x = x.contiguous(memory_format=torch.channels_last)
    x.nnapi_nhwc = True
    return x


def image(*sizes):
    return torch.randn(sizes)


def quantized(module, x):
    """The module between quantisation and dequantisation."""
    from torch.ao import quantization as q

    torch.backends.quantized.engine = "qnnpack"
    whole = q.QuantWrapper(module).eval()
    whole.qconfig = q.QConfig(
        activation=q.MinMaxObserver.with_args(dtype=torch.quint8),
        weight=q.MinMaxObserver.with_args(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
    )
    prepared = q.prepare(whole)
    prepared(x)
    return q.convert(prepared)


class QuantizedSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 3, padding=1)
        self.sum = torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        return self.sum.add_relu(self.a(x), self.b(x))


def cases():
    x = image(2, 3, 9, 8)
    yield "conv", nn.Conv2d(3, 5, 3, stride=2, padding=1), [x]
    yield "conv channels last", nn.Conv2d(3, 5, (3, 2), padding=(0, 1)), [last(x)]
    yield "conv without bias", nn.Conv2d(3, 5, 3, bias=False), [last(x)]
    yield "depthwise", nn.Conv2d(3, 3, 3, groups=3, padding=1), [last(x)]
    yield "depthwise channels first", nn.Conv2d(3, 3, 3, groups=3, stride=2), [x]
    yield "transposed", nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), [last(x)]
    yield (
        "block",
        nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)),
        [last(x)],
    )
    yield "classifier", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 7)), [last(x)]
    yield "max pool", nn.MaxPool2d(3, 2, 1), [x]
    yield "average pool", nn.AvgPool2d(2), [last(x)]
    yield "linear", nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), [image(4, 6)]
    yield "products", Apply(lambda a, b: torch.relu(a * b + a - b)), [image(3, 4), image(1, 4)]
    yield "division", Apply(lambda a, b: a / b), [image(3, 4), image(3, 4).abs() + 1]
    yield "sigmoid", nn.Sigmoid(), [image(3, 4)]
    yield "hardtanh", nn.Hardtanh(), [image(3, 4)]
    yield "softmax", nn.Softmax(1), [image(3, 4)]
    yield "log softmax", nn.LogSoftmax(1), [image(3, 4)]
    yield "prelu", nn.PReLU(), [image(3, 4)]
    yield "prelu of channels", nn.PReLU(3), [last(x)]
    yield "concatenation", Apply(lambda a, b: torch.cat([a, b], 1)), [last(x), last(image(2, 5, 9, 8))]
    yield "mean", Apply(lambda a: a.mean([2, 3])), [last(x)]
    yield "mean that keeps", Apply(lambda a: a.mean([1], True)), [image(2, 3, 4)]
    yield "flatten", nn.Flatten(), [image(2, 3, 4)]
    yield "slice", Apply(lambda a: a[:, 1:3]), [image(2, 4, 3)]
    yield "unsqueeze", Apply(lambda a: a.unsqueeze(1)), [image(2, 4)]
    yield "upsample", nn.UpsamplingNearest2d(size=(11, 16)), [last(x)]
    yield "two results", Apply(lambda a: (torch.relu(a), torch.sigmoid(a))), [image(2, 4)]
    yield "quantised conv", quantized(nn.Sequential(nn.Conv2d(3, 6, 3, stride=2)), last(x)), [last(x)]
    q = quantized(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=6)), x)
    yield "quantised depthwise", q, [last(x)]
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
    yield "quantised classifier", quantized(net, x), [last(x)]
    yield "quantised sum", quantized(QuantizedSum(), x), [last(x)]


def traced(module, inputs):
    module.eval()
    with torch.no_grad():
        return torch.jit.trace(module, inputs)


def results_of(module, inputs):
    with torch.no_grad():
        r = module(*inputs)
    return list(r) if isinstance(r, tuple) else [r]


def record(path):
    arrays, described = {}, []
    for name, module, inputs in cases():
        program = torch.jit.freeze(traced(module, inputs))
        words, weights, in_orders, out_orders, _, _ = serializer.serialize_model(program, inputs)
        number = len(described)
        arrays[f"{number}.words"] = np.array(words, np.int32)
        for k, w in enumerate(weights):
            plain = w.int_repr() if w.is_quantized else w
            arrays[f"{number}.weight{k}"] = plain.detach().contiguous().numpy()
        for k, x in enumerate(inputs):
            arrays[f"{number}.input{k}"] = x.numpy()
        for k, r in enumerate(results_of(module, inputs)):
            arrays[f"{number}.result{k}"] = r.numpy()
        described.append({"name": name, "weights": len(weights), "inputs": in_orders, "outputs": out_orders})
    np.savez_compressed(path, cases=json.dumps(described), **arrays)
    print(f"{len(described)} models")


def run():
    for name, module, inputs in cases():
        converted = prepare.convert_model_to_nnapi(traced(module, inputs), inputs)
        given = results_of(converted, inputs)
        differences = [
            float((a - b).abs().max()) for a, b in zip(given, results_of(module, inputs), strict=True)
        ]
        print(f"{max(differences):.3e} {name}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--out", default=str(Path(__file__).with_name("nnapi.npz")))
    options = parser.parse_args()
    run() if options.run else record(options.out)
