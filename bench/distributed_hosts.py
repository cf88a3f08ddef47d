"""Compares training between two hosts, which are network namespaces, with PyTorch's Gloo. It needs root.

    PYTHONPATH=build/python .venv/bin/python bench/distributed_hosts.py [--only all_reduce|overlap|powersgd]

all_reduce: the link has no limit. Rounds of Facula and of the peer alternate, and medians are compared.
overlap: at 1 Gb/s, the part of the communication of a step of ResNet-18 that computation hides. Backward can
hide as much as it lasts itself, so that part is shown as well.
powersgd: at 100 Mb/s, the time of a step with PowerSGD of rank 2 and with allreduce, and the final losses.
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
sys.path.insert(0, str(ROOT / "tests" / "distributed"))
from distributed import MEDIAN, RESNET18  # noqa: E402
from hosts import Hosts  # noqa: E402

START = (
    """
import json, sys, time
from datetime import timedelta
import torch, torch.distributed as dist, torch.nn as nn
rank, out = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="tcp://10.77.0.1:23456", rank=rank, world_size=2)
figures = {}
"""
    + MEDIAN
)
CASES = {
    "all_reduce": """
for name, elements, repeats in (("1 KB", 256, 500), ("1 MB", 1 << 18, 50), ("64 MB", 1 << 24, 7)):
    x = torch.ones(elements)
    figures[name] = median(lambda: dist.all_reduce(x), repeats)
""",
    "overlap": RESNET18
    + """
net = nn.parallel.DistributedDataParallel(resnet18())
x, y = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
backward = []
def step():
    loss = nn.functional.cross_entropy(net(x), y)
    begin = time.perf_counter()
    loss.backward()
    backward.append(time.perf_counter() - begin)
def alone():
    with net.no_sync():
        step()
flat = torch.zeros(sum(p.numel() for p in net.parameters()))
figures["computation"] = median(alone, 7)
figures["backward"] = sorted(backward)[len(backward) // 2]
figures["communication"] = median(lambda: dist.all_reduce(flat), 5)
figures["step"] = median(step, 7)
""",
    "powersgd": """
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
torch.manual_seed(0)
draw = torch.Generator().manual_seed(1)
data = torch.randn(16384, 256, generator=draw)
noise = torch.randint(10, (16384,), generator=draw)
target = torch.where(torch.rand(16384, generator=draw) < 0.5, noise, data[:, :10].argmax(1))
for name in ("allreduce", "PowerSGD"):
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)))
    if name == "PowerSGD":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    times = []
    for k in range(120):
        begin = time.perf_counter()
        rows = slice(64 * (2 * k + rank), 64 * (2 * k + rank) + 64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data[rows]), target[rows]).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net.module(data[-1024:]), target[-1024:])
        figures[f"{name}, loss"] = loss.item()
    figures[f"{name}, step"] = sorted(times[20:])[20]
""",
}
END = """
if rank == 0:
    open(out, "w").write(json.dumps(figures))
dist.barrier()
dist.destroy_process_group()
"""
RATES = {"all_reduce": None, "overlap": "1gbit", "powersgd": "100mbit"}


def one_round(python: list[str], case: str) -> dict[str, float]:
    with Hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
        if RATES[case]:
            for k in range(2):
                limit = ["rate", RATES[case], "burst", "128kb", "latency", "50ms"]
                command = ["tc", "-n", f"{hosts.name}n{k}", "qdisc", "add", "dev", "eth0", "root", "tbf"]
                subprocess.run([*command, *limit], check=True)
        program, out = Path(folder, "program.py"), Path(folder, "figures.json")
        program.write_text(START + CASES[case] + END)
        ranks = [hosts.start(k, *python, str(program), str(k), str(out)) for k in range(2)]
        try:
            for process in ranks:
                if process.wait(600):
                    raise RuntimeError(f"{case}: a rank of {python[0]} ended with {process.returncode}")
        finally:
            for process in ranks:
                process.kill()
        return json.loads(out.read_text())


def show(case: str, ours: dict[str, float], theirs: dict[str, float]) -> None:
    print(f"{case}: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seconds (losses as they are)")
    for name in ours:
        print(f"  {name:20} {ours[name]:10.5f} {theirs[name]:10.5f} {ours[name] / theirs[name]:7.3f}")
    for who, f in (("Facula", ours), ("PyTorch", theirs)):
        if case == "overlap":
            hidden = 1 - (f["step"] - f["computation"]) / f["communication"]
            most = min(1, f["backward"] / f["communication"])
            print(f"  {who}: {hidden:.0%} of communication hidden; {most:.0%} can be")
        if case == "powersgd":
            print(f"  {who}: step {f['PowerSGD, step'] / f['allreduce, step']:.3f} of that with allreduce")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("bench/distributed_hosts.py needs root, to create network namespaces")
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    peer = os.environ.get("FACULA_PEER", str(ROOT / ".peer" / "bin" / "python"))
    for case in [arguments.only] if arguments.only else CASES:
        rounds: list[tuple[dict[str, float], dict[str, float]]] = []
        for _ in range(arguments.rounds if case == "all_reduce" else 1):
            ours = one_round([sys.executable, "-m", "facula.torch"], case)
            try:
                rounds.append((ours, one_round([peer], case)))
            except (
                RuntimeError,
                subprocess.TimeoutExpired,
            ) as error:  # Gloo confuses the overlapping collectives of PowerSGD
                print(f"the peer fails: {error}")
                rounds.append((ours, {name: float("nan") for name in ours}))
        medians = [{n: statistics.median(r[k][n] for r in rounds) for n in rounds[0][k]} for k in range(2)]
        show(case, *medians)


if __name__ == "__main__":
    main()
