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

PROGRAM = """
import json, os, sys, time
import torch, torch.distributed as dist, torch.nn as nn
rank, size, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
figures = {}
def measured(name, f, repeats):
    for _ in range(max(2, repeats // 10)):
        f()
    dist.barrier()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    figures[name] = sorted(times)[len(times) // 2]
for name, elements, repeats in (("all_reduce 1 KB", 256, 1000), ("all_reduce 1 MB", 1 << 18, 100),
                                ("all_reduce 64 MB", 1 << 24, 10)):
    x = torch.ones(elements)
    measured(name, lambda: dist.all_reduce(x), repeats)
nets = {
    "DDP step, MLP": (nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                    nn.Linear(128, 10)), (64, 784)),
    "DDP step, CNN": (nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Flatten(), nn.Linear(800, 10)), (32, 1, 28, 28)),
}
for name, (net, shape) in nets.items():
    ddp = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    measured(name, step, 50)
if rank == 0:
    open(out, "w").write(json.dumps(figures))
dist.barrier()
dist.destroy_process_group()
"""


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
    for name in ours:
        a, b = statistics.median(ours[name]) * 1e3, statistics.median(theirs[name]) * 1e3
        print(f"{name:20} {a:10.4f} {b:10.4f} {a / b:7.3f}")


if __name__ == "__main__":
    main()
