"""Models that both libraries quantise, flow by flow: ``python flows.py FILE`` writes their results.

Weights and inputs are drawn by NumPy; results are in steps of their scale where they have one.
"""

from __future__ import annotations

import copy
import sys
import warnings

import numpy as np
import torch
from draws import R, drawn, numbers
from torch import nn
from torch.ao.quantization import (
    DeQuantStub,
    QuantStub,
    convert,
    default_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    fuse_modules,
    fuse_modules_qat,
    get_default_qat_qconfig,
    get_default_qat_qconfig_mapping,
    get_default_qconfig,
    get_default_qconfig_mapping,
    prepare,
    prepare_qat,
    quantize_dynamic,
)
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx

warnings.simplefilter("ignore")
torch.set_num_threads(1)


class Net(nn.Module):
    """Convolutions with normalisation, a residual sum, pools and a linear layer."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.c1, self.b1, self.r1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.add, self.pool = torch.ao.nn.quantized.FloatFunctional(), nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 49, 10)

    def forward(self, x):
        x = self.r1(self.b1(self.c1(self.quant(x))))
        x = self.pool(self.add.add_relu(x, self.b2(self.c2(x))))
        x = nn.functional.adaptive_avg_pool2d(x, 7)
        return self.dequant(self.fc(torch.flatten(x, 1)))


PAIRS = [["c1", "b1", "r1"], ["c2", "b2"]]


def eager(backend, model, xs):
    model = fuse_modules(copy.deepcopy(model).eval(), PAIRS)
    model.qconfig = get_default_qconfig(backend)
    prepared = prepare(model)
    for x in xs:
        prepared(x)
    q = convert(prepared)
    return {
        "y": q(xs[0]) / q.fc.scale,
        "scales": torch.tensor([q.quant.scale.item(), q.c1.scale, q.c2.scale]),
    }


def trained(model, xs, calls):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in xs[:calls]:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def eager_qat(backend, model, xs):
    model = fuse_modules_qat(copy.deepcopy(model).train(), PAIRS)
    model.qconfig = get_default_qat_qconfig(backend)
    prepared = prepare_qat(model)
    trained(prepared, xs, 2)
    weight = prepared.c1.weight.detach().clone()
    q = convert(prepared.eval())
    return {"weight": weight, "y": q(xs[0]) / q.fc.scale, "scales": torch.tensor([q.c1.scale, q.fc.scale])}


def graph(backend, model, xs):
    prepared = prepare_fx(copy.deepcopy(model).eval(), get_default_qconfig_mapping(backend), (xs[0],))
    for x in xs:
        prepared(x)
    q = convert_fx(prepared)
    return {"y": q(xs[0]) / q.fc.scale, "nodes": torch.tensor([len(q.graph.nodes)])}


def graph_qat(backend, model, xs):
    prepared = prepare_qat_fx(
        copy.deepcopy(model).train(), get_default_qat_qconfig_mapping(backend), (xs[0],)
    )
    trained(prepared, xs, 2)
    q = convert_fx(prepared.eval())
    return {"y": q(xs[0]) / q.fc.scale}


def dynamic(module, *inputs, dtype=torch.qint8):
    q = quantize_dynamic(nn.Sequential(drawn(module)).eval(), dtype=dtype)[0]
    out = q(*inputs)
    while isinstance(out, tuple):
        out = out[0]
    return {"y": out}


def rows(module, *inputs):
    model = nn.Sequential(drawn(module)).eval()
    model.qconfig = float_qparams_weight_only_qconfig
    return {"y": convert(prepare(model))[0](*inputs)}


def main(file):
    model, xs = drawn(Net()), [numbers(4, 1, 14, 14) for _ in range(3)]
    results = {}
    for backend in ("x86", "qnnpack", "onednn"):
        for flow in (eager, eager_qat, graph, graph_qat):
            results[f"{flow.__name__}.{backend}"] = flow(backend, model, xs)
    x = numbers(5, 3, 12)
    results["dynamic.linear"] = dynamic(nn.Linear(12, 9), x)
    results["dynamic.linear_fp16"] = dynamic(nn.Linear(12, 9), x, dtype=torch.float16)
    results["dynamic.lstm"] = dynamic(nn.LSTM(12, 7, 2, bidirectional=True), x)
    results["dynamic.gru"] = dynamic(nn.GRU(12, 7, batch_first=True), x)
    results["dynamic.lstm_cell"] = dynamic(nn.LSTMCell(12, 7), x[0])
    results["dynamic.gru_cell"] = dynamic(nn.GRUCell(12, 7), x[0])
    results["dynamic.rnn_cell"] = dynamic(nn.RNNCell(12, 7), x[0])
    indices = torch.from_numpy(R.randint(0, 20, (3, 4)))
    results["embedding"] = rows(nn.Embedding(20, 8), indices)
    results["embedding_bag"] = rows(
        nn.EmbeddingBag(20, 8, mode="sum"), indices.reshape(-1), torch.tensor([0, 4, 9])
    )
    mapping = get_default_qconfig_mapping().set_global(default_dynamic_qconfig)
    q = convert_fx(
        prepare_fx(drawn(nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))).eval(), mapping, (x,))
    )
    results["dynamic.graph"] = {"y": q(x)}
    flat = {f"{k}.{n}": v.detach().numpy() for k, r in results.items() for n, v in r.items()}
    np.savez(file, **flat)


if __name__ == "__main__":
    main(sys.argv[1])
