"""The launcher: signals, many restarts, what is left behind, verdicts about dead processes, environments."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.ranks import SOON, TIMEOUT

import facula

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
RUN = [sys.executable, "-m", "facula.distributed.run"]


def start(tmp_path, program, *options, environment=None):
    """Starts the launcher with a program of this text."""
    (tmp_path / "program.py").write_text(program)
    return subprocess.Popen(
        [*RUN, *options, str(tmp_path / "program.py"), str(tmp_path)],
        env={**ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, seconds=TIMEOUT):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


STUBBORN = """
import os, signal, subprocess, sys, time
import facula.distributed as dist
dist.init_process_group("gloo")
if os.environ["CASE"] == "stubborn":  # ignores the signals
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
helper = subprocess.Popen(["sleep", "1000"])
rank = dist.get_rank()
with open(f"{sys.argv[1]}/pids.{rank}.new", "w") as file:
    file.write(f"{os.getpid()} {helper.pid}")
os.rename(f"{sys.argv[1]}/pids.{rank}.new", f"{sys.argv[1]}/pids.{rank}")
if rank == 0:
    time.sleep(1000)
dist.barrier()  # waits in the engine
"""


@pytest.mark.parametrize("case", ["plain", "stubborn"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_all_processes(tmp_path, number, case):
    options = ["--standalone", "--nproc-per-node=2"]
    launcher = start(tmp_path, STUBBORN, *options, environment={"CASE": case})
    files = [tmp_path / f"pids.{r}" for r in range(2)]
    wait_for(lambda: all(f.exists() for f in files))
    pids = [int(p) for f in files for p in f.read_text().split()]
    launcher.send_signal(number)
    launcher.communicate(timeout=SOON)
    assert launcher.returncode == 128 + number
    wait_for(lambda: not any(map(is_running, pids)), SOON)


FAILING = """
import contextlib, os, sys, time
import facula, facula.distributed as dist
def links_of(descriptors):  # without folders of /proc, which the agent reads
    for n in os.listdir(descriptors):
        with contextlib.suppress(FileNotFoundError):
            if not (link := os.readlink(f"{descriptors}/{n}")).startswith("/proc"):
                yield link
dist.init_process_group("gloo")
dist.all_reduce(facula.ones(2))
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt < 20:
    if dist.get_rank() == 1:
        os._exit(3)
    dist.barrier()
if dist.get_rank() == 0:
    agent = os.getppid()
    children = open(f"/proc/{agent}/task/{agent}/children").read().split()
    # The agent takes the flight recorders of both ranks a little after they have met.
    end = time.monotonic() + 30
    while True:
        links = list(links_of(f"/proc/{agent}/fd"))
        if sum("facula-group" in link for link in links) == 2:
            break
        assert time.monotonic() < end, links
        time.sleep(0.01)
    print(len(links), len(children), flush=True)
dist.barrier()
"""


def descriptors_of_agent(tmp_path, last):
    program = FAILING.replace("attempt < 20", f"attempt < {last}")
    options = ["--standalone", "--nproc-per-node=2", f"--max-restarts={last}"]
    launcher = start(tmp_path, program, *options, environment={"TMPDIR": str(tmp_path)})
    output, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 0, errors
    return [int(n) for n in output.split()]


def test_20_restarts_leave_nothing_behind(tmp_path):
    shared = set(os.listdir("/dev/shm"))
    once, often = (descriptors_of_agent(tmp_path, last) for last in (1, 20))
    assert once == often and often[1] == 2
    left = set(os.listdir("/dev/shm")) - shared  # of this test, or of one that runs at the same time
    end = time.monotonic() + 60
    while left & set(os.listdir("/dev/shm")):
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert [p.name for p in tmp_path.iterdir()] == ["program.py"]


DYING = """
import contextlib, os, signal, sys, time
import facula, facula.distributed as dist
dist.init_process_group("gloo")
for _ in range(3):
    dist.all_reduce(facula.ones(2))
dist.barrier()
recorders, agent = set(), f"/proc/{os.getppid()}/fd"
while len(recorders) < 2:  # until the launcher has opened the memory of both ranks
    time.sleep(0.01)
    for name in os.listdir(agent):
        with contextlib.suppress(OSError):
            if "memfd:facula-group" in os.readlink(f"{agent}/{name}"):
                recorders.add(name)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_flight_recorder_is_read_after_all_ranks_have_been_killed(tmp_path):
    logs = tmp_path / "logs"
    options = ["--standalone", "--nproc-per-node=2", f"--log-dir={logs}"]
    launcher = start(tmp_path, DYING, *options)
    _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 1
    for rank in range(2):
        assert f"rank {rank} of 2 (pid " in errors and "ended with -9" in errors, errors
        (file,) = logs.glob(f"*/attempt_0/{rank}/flight_recorder.json")
        (group,) = map(json.loads, file.read_text().splitlines())
        operations = [r["operation"] for r in group["records"]]
        assert operations == ["all_reduce"] * 3 + ["barrier"]
        assert all(r["state"] == "completed" and "program.py:" in r["site"] for r in group["records"])
    assert "had completed collective 3, barrier at" in errors and "program.py:7" in errors


LATE = """
import os
from datetime import timedelta
import facula, facula.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(facula.ones(2))
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if dist.get_rank() == 1:
    store.get("raised")
try:
    dist.barrier(timeout=timedelta(seconds=0.5))
finally:
    store.set("raised", "1")
"""


@pytest.mark.parametrize("variable", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_a_timeout_dumps_the_flight_recorder_where_the_switches_of_pytorch_say(tmp_path, variable):
    options = ["--standalone", "--nproc-per-node=2"]
    start(tmp_path, LATE, *options, environment={variable: f"{tmp_path}/trace_"}).communicate(timeout=TIMEOUT)
    records = json.loads((tmp_path / "trace_0").read_text())
    mine = [(r["operation"], r["state"]) for r in records if r["rank"] == 0]
    assert mine == [("all_reduce", "completed"), ("barrier", "failed")]


PLACES = """
import os, sys
import facula, facula.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(x := facula.ones(1))
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK"
os.write(1, (" ".join(os.environ[n] for n in names.split()) + f" {x.item()}\\n").encode())
dist.barrier()
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def lines_of(launchers):
    lines = []
    for launcher in launchers:
        output, errors = launcher.communicate(timeout=TIMEOUT)
        assert launcher.returncode == 0, errors
        lines += output.splitlines()
    return sorted(lines)


def test_the_environment_of_kubeflow_starts_a_job_of_two_nodes(tmp_path):
    """The trainer of Kubeflow sets PET_ variables alone, with the rank of the node."""
    port = str(free_port())
    launchers = [
        start(
            tmp_path,
            PLACES,
            environment={
                "PET_NNODES": "2",
                "PET_NPROC_PER_NODE": "2",
                "PET_NODE_RANK": str(node),
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": port,
            },
        )
        for node in range(2)
    ]
    places = [f"{2 * node + k} {k} 4 2 {node} 4.0" for node in range(2) for k in range(2)]
    assert lines_of(launchers) == places


def test_the_environment_of_kubeflow_starts_an_elastic_job(tmp_path):
    environment = {
        "PET_NNODES": "1:2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}",
        "PET_RDZV_ID": "job",
        "PET_RDZV_CONF": "last_call_timeout=20",
        "PET_MAX_RESTARTS": "1",
    }
    launchers = [start(tmp_path, PLACES, environment=environment) for _ in range(2)]
    assert lines_of(launchers) == ["0 0 2 1 0 2.0", "1 0 2 1 1 2.0"]


def test_the_environment_of_slurm_starts_one_launcher_for_each_node(tmp_path):
    """``srun`` runs the line of docs/distributed.md on each node, with these variables."""
    port = free_port()
    launchers = []
    for node in range(2):
        slurm = {
            "SLURM_JOB_ID": "4711",
            "SLURM_NNODES": "2",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(node),
            "SLURM_NODEID": str(node),
            "SLURM_LOCALID": "0",
            "SLURM_JOB_NODELIST": "node[1-2]",
        }
        options = [f"--nnodes={slurm['SLURM_NNODES']}", "--nproc-per-node=2", "--rdzv-backend=c10d"]
        options += [f"--rdzv-id={slurm['SLURM_JOB_ID']}", f"--rdzv-endpoint=127.0.0.1:{port}"]
        launchers.append(start(tmp_path, PLACES, *options, environment=slurm))
    places = [f"{2 * node + k} {k} 4 2 {node} 4.0" for node in range(2) for k in range(2)]
    assert lines_of(launchers) == places


def test_an_address_in_use_is_said_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        launcher = start(tmp_path, PLACES, "--nproc-per-node=1", f"--master-port={port}")
        _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 1
    assert errors.splitlines() == [
        f"torchrun: TCPStore: cannot serve 127.0.0.1:{port}: Address already in use"
    ]


TRAINING = """
import os, sys, time
import facula, facula.distributed as dist
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
facula.manual_seed(7)
net = facula.nn.parallel.DistributedDataParallel(
    facula.nn.Sequential(facula.nn.Linear(8, 16), facula.nn.Tanh(), facula.nn.Linear(16, 1)))
optimizer = facula.optim.Adam(net.parameters(), lr=0.01)
saved, first = f"{folder}/{os.environ['NAME']}.pt", 0
if os.path.exists(saved):
    state = facula.load(saved)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
for step in range(first, 6):
    generator = facula.Generator().manual_seed(100 * step + rank)
    optimizer.zero_grad()
    net(facula.randn(16, 8, generator=generator)).square().mean().backward()
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if os.environ["FAILS"] == "1" and step == 3 and rank == 1 and attempt == "0":
        print("died", flush=True)
        os.kill(os.getpid(), 9)
    optimizer.step()
    if rank == 0:
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        facula.save(state, saved + ".new")
        os.rename(saved + ".new", saved)
        print("step", step, flush=True)
    dist.barrier()
"""


def test_a_restarted_run_equals_an_undisturbed_one(tmp_path):
    texts = {}
    for fails in "01":
        environment = {"NAME": f"run{fails}", "FAILS": fails}
        options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1"]
        launcher = start(tmp_path, TRAINING, *options, environment=environment)
        texts[fails], errors = launcher.communicate(timeout=TIMEOUT)
        assert launcher.returncode == 0, errors
    lines = texts["1"].splitlines()
    assert [line for line in lines if line != "died"] == [f"step {k}" for k in range(6)] and "died" in lines
    one, other = (facula.load(tmp_path / f"run{k}.pt") for k in "01")
    for name, value in one["net"].items():
        assert facula.equal(value, other["net"][name]), name
