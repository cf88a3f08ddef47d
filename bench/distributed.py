"""Compares collectives and DistributedDataParallel with PyTorch's Gloo, in the same run.

    PYTHONPATH=build/python .venv/bin/python bench/distributed.py [--ranks 2] [--rounds 3]

Each figure is the median over rounds of the median of one round; rounds of the two alternate.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MEDIAN = """
def median(f, repeats):
    for _ in range(max(2, repeats // 10)):
        f()
    dist.barrier()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]
"""
RESNET18 = """
class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        same = stride == 1 and before == width
        self.short = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))
def resnet18():
    layers, before = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(before, width, stride))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
"""
PROGRAM = (
    """
import json, os, sys, time
import torch, torch.distributed as dist, torch.nn as nn
rank, size, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
figures = {}
"""
    + MEDIAN
    + RESNET18
    + """
for name, elements, repeats in (("all_reduce 1 KB", 256, 1000), ("all_reduce 1 MB", 1 << 18, 100),
                                ("all_reduce 64 MB", 1 << 24, 10)):
    x = torch.ones(elements)
    figures[name] = median(lambda: dist.all_reduce(x), repeats)
class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))
class GPT(nn.Module):
    def __init__(self, words=256, width=128, layers=4):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, 10)
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(layers)), nn.LayerNorm(width))
    def forward(self, x):
        return self.head(self.layers(self.words(x)).mean(1))
nets = {
    "DDP step, MLP": (nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                    nn.Linear(128, 10)), (64, 784)),
    "DDP step, CNN": (nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Flatten(), nn.Linear(800, 10)), (32, 1, 28, 28)),
    "DDP step, ResNet-18": (resnet18(), (4, 3, 32, 32)),
    "DDP step, GPT": (GPT(), (8, 64)),
}
for name, (net, shape) in nets.items():
    ddp = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    x = (x * 10).long() % 256 if "GPT" in name else x
    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    figures[name] = median(step, 20 if "ResNet" in name else 50)
if rank == 0:
    open(out, "w").write(json.dumps(figures))
dist.barrier()
dist.destroy_process_group()
"""
)


def one_round(python: list[str], ranks: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        program, out = Path(folder, "program.py"), Path(folder, "figures.json")
        program.write_text(PROGRAM)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen(
                [*python, str(program), str(r), str(ranks), f"{folder}/store", str(out)], env=environment
            )
            for r in range(ranks)
        ]
        for process in started:
            if process.wait(600):
                raise RuntimeError(f"{python[0]}: a rank ended with status {process.returncode}")
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    peer = os.environ.get("FACULA_PEER", str(ROOT / ".peer" / "bin" / "python"))
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for python, into in (([sys.executable, "-m", "facula.torch"], ours), ([peer], theirs)):
            for name, seconds in one_round(python, arguments.ranks).items():
                into.setdefault(name, []).append(seconds)
    print(f"{arguments.ranks} ranks, milliseconds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'':20} {'Facula':>10} {'PyTorch':>10} {'ratio':>7}")
    steps = [
        statistics.median(ours[name]) / statistics.median(theirs[name]) for name in ours if "step" in name
    ]
    for name in ours:
        a, b = statistics.median(ours[name]) * 1e3, statistics.median(theirs[name]) * 1e3
        print(f"{name:20} {a:10.4f} {b:10.4f} {a / b:7.3f}")
    print(f"{'DDP steps, mean':20} {'':10} {'':10} {statistics.geometric_mean(steps):7.3f}")


if __name__ == "__main__":
    main()
