"""Accuracy of a Fashion-MNIST network before and after quantisation, flow by flow.

python accuracy.py [--data FOLDER] [--epochs N] [--images N]
"""

from __future__ import annotations

import argparse
import copy
import gzip
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.ao.quantization import (
    DeQuantStub,
    QuantStub,
    convert,
    fuse_modules,
    fuse_modules_qat,
    get_default_qat_qconfig,
    get_default_qconfig,
    get_default_qconfig_mapping,
    prepare,
    prepare_qat,
)
from torch.ao.quantization.pt2e import allow_exported_model_train_eval
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torch.ao.quantization.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch.export import Dim, export
from torch.nn import functional as F

DATA = "/usr/share/datasets/fashion-mnist"


class Net(nn.Module):
    """Three convolutions with normalisation, two linear layers."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.c1, self.b1, self.r1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()
        self.c2, self.b2, self.r2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()
        self.c3, self.b3, self.r3 = nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()
        self.pool, self.add = nn.MaxPool2d(2), torch.ao.nn.quantized.FloatFunctional()
        self.f1, self.r4, self.f2 = nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10)

    def forward(self, x):
        x = self.pool(self.r1(self.b1(self.c1(self.quant(x)))))
        x = self.pool(self.r2(self.b2(self.c2(x))))
        x = self.add.add(x, self.r3(self.b3(self.c3(x))))
        return self.dequant(self.f2(self.r4(self.f1(torch.flatten(x, 1)))))


GROUPS = [["c1", "b1", "r1"], ["c2", "b2", "r2"], ["c3", "b3", "r3"], ["f1", "r4"]]


def read(folder, name, limit):
    def array(kind, header):
        with gzip.open(folder / f"{name}-{kind}-ubyte.gz") as f:
            return np.frombuffer(f.read(), dtype=np.uint8, offset=header)

    images = array("images-idx3", 16).reshape(-1, 1, 28, 28)[:limit].astype(np.float32) / 255 - 0.3
    labels = array("labels-idx1", 8)[:limit].astype(np.int64)
    return torch.from_numpy(images), torch.from_numpy(labels)


def train(model, data, epochs, rate, seed=0):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    images, labels = data
    for epoch in range(epochs):
        order = torch.from_numpy(np.random.RandomState(seed + epoch).permutation(len(labels)))
        for k in range(0, len(labels), 128):
            at = order[k : k + 128]
            optimizer.zero_grad()
            F.cross_entropy(model(images[at]), labels[at]).backward()
            optimizer.step()
    return model


def accuracy(model, data):
    right = 0
    with torch.no_grad():
        for k in range(0, len(data[1]), 500):
            right += int((model(data[0][k : k + 500]).argmax(1) == data[1][k : k + 500]).sum())
    return 100 * right / len(data[1])


def calibrated(model, data):
    with torch.no_grad():
        for k in range(0, 1000, 250):
            model(data[0][k : k + 250])
    return model


def exported(model, data):
    """Returns the graph of a model for any number of images."""
    return export(model, (data[0][:128],), dynamic_shapes=({0: Dim("batch", min=2)},)).module()


def quantizer(is_qat):
    config = get_symmetric_quantization_config(is_per_channel=True, is_qat=is_qat)
    return XNNPACKQuantizer().set_global(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(DATA))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--picture", type=Path, help="a file for the report of the network (Facula alone)")
    options = parser.parse_args()
    torch.manual_seed(0)
    data, test = read(options.data, "train", options.images), read(options.data, "t10k", 10000)
    start = time.perf_counter()
    model = train(Net(), data, options.epochs, 2e-3).eval()
    whole = accuracy(model, test)
    print(f"float: {whole:.2f} % after {time.perf_counter() - start:.0f} s", flush=True)
    results = {}
    fused = fuse_modules(copy.deepcopy(model), GROUPS)
    fused.qconfig = get_default_qconfig("x86")
    observed = calibrated(prepare(fused), data)
    converted = convert(observed)
    if options.picture:
        torch.quantization.report(observed, converted, test[0][:200]).save(str(options.picture))
    results["modules, after training"] = accuracy(converted, test), 0.5
    graph = prepare_fx(copy.deepcopy(model), get_default_qconfig_mapping("x86"), (data[0][:1],))
    results["graph, after training"] = accuracy(convert_fx(calibrated(graph, data)), test), 0.5
    prepared = prepare_pt2e(exported(copy.deepcopy(model), data), quantizer(False))
    results["exported, after training"] = accuracy(convert_pt2e(calibrated(prepared, data)), test), 0.5
    qat = fuse_modules_qat(copy.deepcopy(model).train(), GROUPS)
    qat.qconfig = get_default_qat_qconfig("x86")
    qat = train(prepare_qat(qat), data, 1, 5e-4, seed=100)
    results["modules, trained for it"] = accuracy(convert(qat.eval()), test), 0.2
    qat = prepare_qat_pt2e(exported(copy.deepcopy(model).train(), data), quantizer(True))
    qat = train(allow_exported_model_train_eval(qat), data, 1, 5e-4, seed=100)
    results["exported, trained for it"] = accuracy(convert_pt2e(qat.eval()), test), 0.2
    bad = 0
    for name, (value, allowed) in results.items():
        lost = whole - value
        bad += lost > allowed
        print(f"{name}: {value:.2f} %, {lost:+.2f} points lost (at most {allowed})", flush=True)
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
