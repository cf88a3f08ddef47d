"""Models that the export-based flow quantises: ``python exported.py FILE`` writes their results.

PyTorch's flow is part of torchao, of which this process needs the sources in ``PYTHONPATH``; Facula's is in
``torch.ao.quantization``. Weights and inputs are drawn by NumPy.
"""

from __future__ import annotations

import importlib
import sys
import warnings

import numpy as np
import torch
from draws import R, drawn, numbers
from torch import nn
from torch.nn import functional as F

warnings.simplefilter("ignore")
torch.set_num_threads(1)
OURS = "facula" in torch.__file__


def names(ours, theirs):
    return importlib.import_module(ours if OURS else theirs)


flow = names("torch.ao.quantization.quantize_pt2e", "torchao.quantization.pt2e.quantize_pt2e")
base = names("torch.ao.quantization.quantizer", "torchao.quantization.pt2e.quantizer")
observers = names("torch.ao.quantization", "torchao.quantization.pt2e")
tools = names("torch.ao.quantization.pt2e", "torchao.quantization.pt2e")
xnnpack = names(
    "torch.ao.quantization.quantizer.xnnpack_quantizer", "torchao.testing.pt2e._xnnpack_quantizer"
)
x86 = names(
    "torch.ao.quantization.quantizer.x86_inductor_quantizer",
    "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer",
)
embedding = names(
    "torch.ao.quantization.quantizer.embedding_quantizer",
    "torchao.quantization.pt2e.quantizer.embedding_quantizer",
)
aten = torch.ops.aten


class Net(nn.Module):
    """Convolutions with normalisation, a residual sum, pools and a linear layer."""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1, bias=False, groups=2), nn.BatchNorm2d(8)
        self.c3, self.act = nn.Conv2d(8, 8, 1, stride=2), nn.ReLU6()
        self.r1, self.r2, self.pool = nn.ReLU(), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = self.r1(self.b1(self.c1(x)))
        x = self.r2(x + self.b2(self.c2(x)))
        x = F.max_pool2d(x, 3, 2, 1)
        x = self.act(self.c3(x))
        return self.fc(torch.flatten(self.pool(x), 1))


class Words(nn.Module):
    """An embedding and linear layers over sequences."""

    def __init__(self):
        super().__init__()
        self.table, self.a, self.b = nn.Embedding(30, 16), nn.Linear(16, 12), nn.Linear(12, 5)

    def forward(self, i):
        return self.b(F.relu(self.a(self.table(i))))


class Gate(nn.Module):
    """A convolution whose result a bounded function and a product follow."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        y = self.conv(x)
        return y.sigmoid() * y


class Users(base.Quantizer):
    """A quantizer of users: derived biases, fixed and shared parameters."""

    def annotate(self, model):
        eight = base.QuantizationSpec(
            dtype=torch.int8,
            quant_min=-128,
            quant_max=127,
            qscheme=torch.per_tensor_affine,
            observer_or_fake_quant_ctr=observers.MinMaxObserver.with_args(eps=2**-12),
        )
        weight = base.QuantizationSpec(
            dtype=torch.int8,
            quant_min=-127,
            quant_max=127,
            qscheme=torch.per_tensor_symmetric,
            observer_or_fake_quant_ctr=observers.MinMaxObserver.with_args(eps=2**-12),
        )

        def derive(sources):
            (a, _), (b, _) = (o.calculate_qparams() for o in sources)
            return torch.tensor([a * b]).to(torch.float32), torch.tensor([0]).to(torch.int32)

        for n in model.graph.nodes:
            if n.op != "call_function":
                continue
            if n.target == aten.conv2d.default:
                x, w, b = n.args[:3]
                bias = base.DerivedQuantizationSpec(
                    derived_from=[(x, n), (w, n)],
                    derive_qparams_fn=derive,
                    dtype=torch.int32,
                    quant_min=-(2**31),
                    quant_max=2**31 - 1,
                    qscheme=torch.per_tensor_symmetric,
                )
                inputs = {x: eight, w: weight, b: bias}
                note = base.QuantizationAnnotation(inputs, eight, _annotated=True)
            elif n.target == aten.sigmoid.default:
                fixed = base.FixedQParamsQuantizationSpec(
                    torch.uint8, 1.0 / 256.0, 0, 0, 255, torch.per_tensor_affine
                )
                note = base.QuantizationAnnotation({n.args[0]: eight}, fixed, _annotated=True)
            elif n.target == aten.mul.Tensor:
                shared = base.SharedQuantizationSpec(n.args[1])
                note = base.QuantizationAnnotation({n.args[1]: eight}, shared, _annotated=True)
            else:
                continue
            n.meta["quantization_annotation"] = note
        return model

    def validate(self, model):
        pass


def quantized(model, inputs, quantizer, calls):
    graph = torch.export.export(model.eval(), inputs).module()
    prepared = flow.prepare_pt2e(graph, quantizer)
    for x in calls:
        prepared(x)
    return results(flow.convert_pt2e(prepared), inputs)


def trained(model, inputs, quantizer, calls):
    graph = torch.export.export(model.train(), inputs).module()
    prepared = flow.prepare_qat_pt2e(graph, quantizer)
    tools.allow_exported_model_train_eval(prepared)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for x in calls[:2]:
        optimizer.zero_grad()
        prepared(x).square().mean().backward()
        optimizer.step()
    prepared.eval()
    return results(flow.convert_pt2e(prepared), inputs)


def results(model, inputs):
    """The result of a converted model, and the scales and zero points of its graph."""
    per_tensor = torch.ops.quantized_decomposed.quantize_per_tensor.default
    calls = [n for n in model.graph.nodes if n.op == "call_function" and n.target == per_tensor]
    pairs = sorted({(n.args[1], n.args[2]) for n in calls})
    last = calls[-1].args[1] if calls else 1.0
    with torch.no_grad():
        return {
            "y": model(*inputs) / last,
            "scales": torch.tensor([s for s, _ in pairs]),
            "zeros": torch.tensor([z for _, z in pairs]),
            "frozen": torch.tensor([len([n for n, _ in model.named_buffers() if "frozen" in n])]),
        }


def main(file):
    outcome, xs = {}, [numbers(4, 3, 12, 12) for _ in range(3)]
    symmetric = xnnpack.get_symmetric_quantization_config
    for per_channel in (False, True):
        q = xnnpack.XNNPACKQuantizer().set_global(symmetric(is_per_channel=per_channel))
        outcome[f"xnnpack.{per_channel}"] = quantized(drawn(Net()), (xs[0],), q, xs)
        q = xnnpack.XNNPACKQuantizer().set_global(symmetric(is_per_channel=per_channel, is_qat=True))
        outcome[f"xnnpack_qat.{per_channel}"] = trained(drawn(Net()), (xs[0],), q, xs)
    default = x86.get_default_x86_inductor_quantization_config
    outcome["x86"] = quantized(drawn(Net()), (xs[0],), x86.X86InductorQuantizer().set_global(default()), xs)
    q = x86.X86InductorQuantizer().set_global(default(is_qat=True))
    outcome["x86_qat"] = trained(drawn(Net()), (xs[0],), q, xs)
    i = torch.from_numpy(R.randint(0, 30, (3, 7)))
    dynamic = xnnpack.XNNPACKQuantizer().set_global(symmetric(is_per_channel=True, is_dynamic=True))
    outcome["dynamic"] = quantized(drawn(Words()), (i,), dynamic, [i])
    both = base.ComposableQuantizer(
        [embedding.EmbeddingQuantizer(), xnnpack.XNNPACKQuantizer().set_global(symmetric())]
    )
    outcome["embedding"] = quantized(drawn(Words()), (i,), both, [i])
    x = numbers(2, 4, 6, 6)
    outcome["users"] = quantized(drawn(Gate()), (x,), Users(), [x])
    flat = {f"{k}.{n}": v.detach().numpy() for k, r in outcome.items() for n, v in r.items()}
    np.savez(file, **flat)


if __name__ == "__main__":
    main(sys.argv[1])
