"""Replicas: training goes on without processes that fail, and takes new ones in. The oracle is one process
that trains on the batches of all processes of each step.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from facula.distributed.elastic import Replicas

import facula
from facula import distributed as dist

COMMON = """
import facula
from facula.nn import functional as F

def network():
    facula.manual_seed(3)
    return facula.nn.Sequential(
        facula.nn.Linear(6, 16), facula.nn.BatchNorm1d(16), facula.nn.Tanh(), facula.nn.Linear(16, 3)
    ).double()

def part(step, rank, size):
    draw = facula.Generator().manual_seed(1000 * step + 10 * size + rank)
    x = facula.randn(8, 6, generator=draw, dtype=facula.float64)
    return x, x[:, :3].sin() + x[:, 3:]
"""
PROGRAM = (
    COMMON
    + """
import json, os, signal, sys, time
from pathlib import Path
from facula.distributed.elastic import Replicas

folder, last, victims, when = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
fell, went_on = folder / f"fell.{os.environ['LOCAL_RANK']}", folder / "went_on"
while fell.exists() and not went_on.exists():  # started again; the others are to do a step without it
    time.sleep(0.01)
net = network() if os.environ["LOCAL_RANK"] == "0" else network().apply(
    lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
optimizer = facula.optim.Adam(net.parameters(), lr=0.01)
schedule = facula.optim.lr_scheduler.StepLR(optimizer, 5)
replicas = Replicas(net, optimizer, schedule)

def fall():
    fell.write_text("")
    os.kill(os.getpid(), signal.SIGKILL)

def step():
    rank, size = replicas.rank, replicas.size
    falls = replicas.steps == 4 and int(os.environ["LOCAL_RANK"]) in victims and not fell.exists()
    if falls and when == "before":
        fall()
    x, y = part(replicas.steps, rank, size)
    optimizer.zero_grad()
    loss = F.mse_loss(replicas.module(x), y)
    loss.backward()
    if falls:
        fall()
    if when == "between" and replicas.steps == 4 and os.environ["LOCAL_RANK"] == "2" and size == 3:
        facula.distributed.barrier()  # to which nobody comes: the first process has completed the step
    optimizer.step()
    schedule.step()
    return rank, size

log = []
while replicas.steps < 12 or replicas.size != last:
    place = replicas.run(step)
    log.append((replicas.steps - 1, *place))
    if replicas.size == 3 - len(victims):
        went_on.write_text("")
    time.sleep(0.02)
state = {"log": log, "pid": os.getpid(), "parameters": [p.tolist() for p in net.parameters()]}
(folder / f"done.{os.getpid()}").write_text(json.dumps(state))
replicas.close()
"""
)


def launched(folder, *arguments, restarts=2, last=3):
    """Runs the program, until ``last`` processes have done at least 12 steps; returns the results of the
    processes that have reached the end, and the messages of the launcher.
    """
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "facula.distributed.run", "--standalone", "--replicas"]
    command += ["--nproc-per-node=3", f"--max-restarts={restarts}", str(program), str(folder), str(last)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(f.read_text()) for f in folder.glob("done.*")], done.stderr


def expected(sizes):
    """The parameters after steps with these numbers of processes."""
    space = {}
    exec(COMMON, space)
    net = space["network"]()
    optimizer = facula.optim.Adam(net.parameters(), lr=0.01)
    schedule = facula.optim.lr_scheduler.StepLR(optimizer, 5)
    for step, size in enumerate(sizes):
        optimizer.zero_grad()
        for rank in range(size):  # batch norm of each process normalises its own part
            x, y = space["part"](step, rank, size)
            (facula.nn.functional.mse_loss(net(x), y) / size).backward()
        optimizer.step()
        schedule.step()
    return [p.detach() for p in net.parameters()]


def agreed_sizes(finished):
    """The number of processes of each step, on which all agree."""
    sizes = {}
    for state in finished:
        for step, rank, size in state["log"]:
            assert sizes.setdefault(step, size) == size and rank < size, (step, sizes[step], size)
    assert sorted(sizes) == list(range(len(sizes)))
    return [sizes[k] for k in range(len(sizes))]


WAYS = [(victims, when) for victims in ([0], [2], [0, 1]) for when in ("before", "after")]


@pytest.mark.parametrize(("victims", "when"), [*WAYS, ([1], "between")])
def test_training_goes_on_without_failed_processes_and_takes_them_in_again(tmp_path, victims, when):
    """The victims are killed in step 4, before their forward pass or between backward pass and optimizer.
    With "between", one of the others notices it in the step, and the other one after it.
    """
    finished, errors = launched(tmp_path, json.dumps(victims), when)
    assert len(finished) == 3
    sizes = agreed_sizes(finished)
    assert sizes[:4] == [3] * 4 and 3 - len(victims) in sizes[4:] and sizes[-1] == 3, sizes
    first = [state for state in finished if state["log"][0][0] == 0]
    assert len(first) == 3 - len(victims)  # the survivors are the processes of the start
    assert len(re.findall("is started again alone", errors)) == len(victims), errors
    for state in finished:
        assert state["parameters"] == finished[0]["parameters"]
    for got, wanted in zip(finished[0]["parameters"], expected(sizes)):
        facula.testing.assert_close(facula.tensor(got, dtype=facula.float64), wanted, rtol=1e-10, atol=1e-10)


def test_without_restarts_the_others_reach_the_end(tmp_path):
    finished, _ = launched(tmp_path, "[1]", "after", restarts=0, last=2)
    assert len(finished) == 2
    assert agreed_sizes(finished) in ([3] * 4 + [2] * 8, [3] * 5 + [2] * 7)  # step 4 may have been complete


def test_an_error_of_the_program_is_not_a_lost_process():
    replicas = Replicas(facula.nn.Linear(2, 1), store=dist.HashStore())

    def wrong():
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        replicas.run(wrong)
    assert replicas.steps == 0
    replicas.close()
    with pytest.raises(ValueError, match="the processes have to meet at a TCPStore.* got FileStore"):
        Replicas(facula.nn.Linear(2, 1), store=dist.FileStore(f"/tmp/{os.getpid()}.store"))
    Path(f"/tmp/{os.getpid()}.store").unlink()
