"""Runs groups over network and UTS namespaces, which stand for hosts, and breaks processes and links.

    PYTHONPATH=build/python .venv/bin/python tests/distributed/hosts.py [--only REGEX]

Each case is a fault (killed, stopped, partition, or half a partition, which lets nothing reach the victim), a
phase and a victim. All other ranks, and a victim that still runs, have to name a lost rank in time. Phases:
rendezvous (launchers meet), init and connect (rank 1 does not come, before and after it has said which ranks
it reaches), collective, bucket. With "two per host" the victim shares memory with one of the other ranks.
A victim that disagrees calls another collective; all ranks have to name both calls. In "launched", a launcher
starts the ranks of one host: they have to train again soon after one was killed, or end soon after Ctrl-C.

It needs the right to create network namespaces (root, or CAP_SYS_ADMIN and CAP_NET_ADMIN), and `ip` and `tc`
of iproute2, and says so if it has not. Nothing is skipped.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PROGRAM = """
import os, signal, sys, time
import facula, facula.distributed as dist
from facula.distributed._presence import Presence
from datetime import timedelta
rank, size, phase = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
keys = {"init": "address/0", "connect": "shared/0"}
if rank == 1 and phase in keys:
    gather = Presence.gather
    def stay(self, wanted, check=None):
        values = gather(self, wanted, check)
        if keys[phase] in wanted:
            print("ready", flush=True)
            time.sleep(10)
        return values
    Presence.gather = stay
elif phase in keys:
    print("ready", flush=True)
try:
    dist.init_process_group("gloo", init_method="tcp://10.77.0.1:23456", rank=rank, world_size=size,
                            timeout=timedelta(seconds=60))
    for n in (1, 1000, 1 << 20):
        x = facula.arange(float(n)) + rank
        dist.all_reduce(x)
        assert facula.equal(x, size * facula.arange(float(n)) + sum(range(size))), n
    assert phase == "two per host" or not dist.group.WORLD._native.is_local((rank + 1) % size)
    net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(1000, 1000))
    disagrees = []
    signal.signal(signal.SIGUSR1, lambda *_: disagrees.append(True))
    print("ready", flush=True)
    while phase != "none":
        if disagrees:
            dist.broadcast(x, 0)
        elif phase == "bucket":
            net(facula.ones(4, 1000)).sum().backward()
        else:
            dist.all_reduce(x)
except RuntimeError as error:
    print(error, flush=True)
    os._exit(3)
dist.barrier()
dist.destroy_process_group()
"""


LAUNCHED = """
import os, time
import facula, facula.distributed as dist
dist.init_process_group("gloo")
net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(100, 100))
while True:
    net(facula.ones(4, 100)).sum().backward()
    print("trained", os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"], os.getpid(), flush=True)
    time.sleep(0.1)
"""


# Launchers say nothing while they wait.
WITNESS = """
import sys, facula.distributed as dist
store = dist.TCPStore("10.77.0.1", 23457, None, False)
store.wait([f"rendezvous/none/0/node/{k}" for k in range(int(sys.argv[1]))])
print("ready", flush=True)
"""


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


class Hosts:
    """Namespaces that a bridge connects: host k has the address 10.77.0.k + 1."""

    created = 0

    def __init__(self, count):
        Hosts.created += 1  # each has new names: the kernel removes links some time after their namespaces
        self.count, self.name = count, f"fac{os.getpid() % 10000}c{Hosts.created}"

    def __enter__(self):
        run("ip", "link", "add", f"{self.name}b", "type", "bridge")
        run("ip", "link", "set", f"{self.name}b", "up")
        for k in range(self.count):
            space, link = f"{self.name}n{k}", f"{self.name}v{k}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", link, "master", f"{self.name}b", "up")
            run("ip", "-n", space, "addr", "add", f"10.77.0.{k + 1}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error):
        for k in range(self.count):
            subprocess.run(["ip", "netns", "del", f"{self.name}n{k}"], capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self.name}b"], capture_output=True)

    def start(self, k, *command):
        inside = ["ip", "netns", "exec", f"{self.name}n{k}", "unshare", "--uts", "sh", "-c"]
        text = f'hostname host{k}; exec "$@" 2>&1'
        return subprocess.Popen([*inside, text, "sh", *command], stdout=subprocess.PIPE, text=True)

    def cut(self, k):
        run("ip", "link", "set", f"{self.name}v{k}", "down")

    def deafen(self, k):
        """Lets nothing reach the host, which still can send."""
        run(
            "tc",
            "qdisc",
            "add",
            "dev",
            f"{self.name}v{k}",
            "root",
            "tbf",
            "rate",
            "8bit",
            "burst",
            "1",
            "limit",
            "1",
        )


class Output:
    """The lines that a process prints, with the times at which they came."""

    def __init__(self, process):
        self.process, self.lines = process, []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.strip()))

    def wait_for(self, text, seconds=60):
        """Returns the time of the first line that matches."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for when, line in list(self.lines):
                if re.search(text, line):
                    return when, line
            time.sleep(0.005)
        raise AssertionError(f"no line with {text!r} in {[line for _, line in self.lines][-5:]}")


def ranks_of(phase, size, program):
    """The command of each rank."""
    for k in range(size):
        yield [sys.executable, str(program), str(k), str(size), phase]


def launchers_of(size, program):
    """The command of each launcher; one more node is waited for. They come in the order of their numbers."""
    for k in range(size):
        meeting = [
            f"--nnodes={size + 1}",
            f"--node-rank={k}",
            "--master-addr=10.77.0.1",
            "--master-port=23457",
        ]
        yield [sys.executable, "-m", "facula.distributed.run", *meeting, str(program)]


def inflict(how, hosts, victim, host):
    if how == "killed":
        victim.send_signal(signal.SIGKILL)
    elif how == "stopped":
        victim.send_signal(signal.SIGSTOP)
    elif how == "partition":
        hosts.cut(host)
    elif how == "half a partition":
        hosts.deafen(host)
    elif how == "disagrees":
        victim.send_signal(signal.SIGUSR1)


def check(how, phase, victim=3, size=4):
    """Returns a line on how the case ended."""
    if phase == "launched":
        return check_launched(how, victim, size)
    shared = 2 if phase == "two per host" else 1
    with Hosts(size // shared) as hosts, tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        launches = phase == "rendezvous"
        commands = launchers_of(size, program) if launches else ranks_of(phase, size, program)
        outputs = [Output(hosts.start(k // shared, *command)) for k, command in enumerate(commands)]
        try:
            witness = Output(hosts.start(0, sys.executable, "-c", WITNESS, str(size))) if launches else None
            for output in [witness] if witness else outputs:
                output.wait_for("ready")
            time.sleep(0.5)
            if how == "works":
                codes = [output.process.wait(60) for output in outputs]
                assert not any(codes), [output.lines for output in outputs]
                return "all_reduce over TCP is right"
            began = time.monotonic()
            inflict(how, hosts, outputs[victim].process, victim // shared)
            silent = [1] if phase in ("init", "connect") else []
            return judge(how, victim, silent, outputs, began)
        finally:
            for output in outputs:
                output.process.kill()
                output.process.wait()


def judge(how, victim, silent, outputs, began):
    """Raises AssertionError unless all ranks, except a victim that cannot, name a lost rank in time."""
    ends, text = how in ("killed", "stopped"), ""
    limit = {"killed": 0.2, "disagrees": 1.0}.get(how, 2.0)
    times = []
    for k, output in enumerate(outputs):
        if (k == victim and ends) or k in silent:
            continue
        lost = rf"(rank|node) {victim}\b" if ends else r"(rank|node) \d"
        names = lost + ".*(died|reached|closed|heartbeat)"
        if how == "disagrees":
            names = rf"differs between ranks: (?=.*rank {victim} calls broadcast).*calls all_reduce"
        when, line = output.wait_for(names, 10)
        times.append(when - began)
        text = line if k != victim else text
        assert when - began < limit, f"{k} took {when - began:.2f} s: {line}"
        assert output.process.wait(10), f"{k} ended well"
    return f"{max(times):.2f} s: {text}"


def check_launched(how, victim, size):
    """Returns a line on how long it took until all ranks trained again, or had ended."""
    with Hosts(1) as hosts, tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(LAUNCHED)
        options = ["--standalone", f"--nproc-per-node={size}", "--max-restarts=1"]
        launcher = hosts.start(0, sys.executable, "-m", "facula.distributed.run", *options, str(program))
        output = Output(launcher)
        try:
            pids = [int(output.wait_for(rf"trained 0 {r} ")[1].split()[-1]) for r in range(size)]
            began = time.monotonic()
            if how == "killed":
                os.kill(pids[victim], signal.SIGKILL)
                took = max(output.wait_for(rf"trained 1 {r} ")[0] for r in range(size)) - began
                limit, what = 5.0, "all train again"
            else:
                launcher.send_signal(signal.SIGINT)
                launcher.wait(60)
                took, limit, what = time.monotonic() - began, 3.0, "all have ended"
                assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
            assert took < limit, f"{what} after {took:.2f} s"
            return f"{took:.2f} s: {what}"
        finally:
            launcher.terminate()
            launcher.wait()


def main():
    missing = [tool for tool in ("ip", "tc", "unshare") if not shutil.which(tool)]
    if missing or os.geteuid():
        sys.exit(
            f"test-distributed needs root and the programs ip, tc and unshare; missing: {missing or 'root'}"
        )
    probe = subprocess.run(["ip", "netns", "add", "facprobe"], capture_output=True, text=True)
    if probe.returncode:
        sys.exit(f"test-distributed needs the right to create network namespaces: {probe.stderr.strip()}")
    run("ip", "netns", "del", "facprobe")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="a regular expression that cases are searched for")
    chosen = parser.parse_args().only
    failed = 0
    phases = ("rendezvous", "init", "connect", "collective", "bucket")
    faults = itertools.product(("killed", "stopped", "partition"), phases, (0, 3))
    more = [("half a partition", "collective", 0), ("half a partition", "collective", 3)]
    hows = ("killed", "stopped", "partition", "disagrees")
    more += [(how, "two per host", victim) for how in hows for victim in (0, 3)]
    more += [("disagrees", phase, victim) for phase in ("collective", "bucket") for victim in (0, 3)]
    more += [("killed", "launched", victim) for victim in (0, 3)] + [("interrupted", "launched")]
    for case in [("works", "none"), *faults, *more]:
        began, title = time.monotonic(), f"{', '.join(map(str, case)):30}"
        if not re.search(chosen, title):
            continue
        try:
            answer = check(*case)
            print(f"{title} passed in {time.monotonic() - began:.1f} s: {answer}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{title} FAILED: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
