"""Runs groups over network and UTS namespaces, which stand for hosts, and breaks the links between them.

    PYTHONPATH=build/python .venv/bin/python tests/distributed/hosts.py

It needs the right to create network namespaces (root, or CAP_SYS_ADMIN and CAP_NET_ADMIN) and `ip` of
iproute2, and
says so if it has not. Nothing is skipped.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import os, sys, time
import facula, facula.distributed as dist
from datetime import timedelta
rank, size, how, phase = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
method = "tcp://10.77.0.1:23456"
dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size, timeout=timedelta(seconds=60))
for n in (1, 1000, 1 << 20):
    x = facula.arange(float(n)) + rank
    dist.all_reduce(x)
    assert facula.equal(x, size * facula.arange(float(n)) + sum(range(size))), n
assert not dist.group.WORLD._native.is_local((rank + 1) % size)
net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(1000, 1000))
print("connected", flush=True)
if how != "works":
    began = time.monotonic()
    try:
        while True:
            if phase == "bucket":
                net(facula.ones(4, 1000)).sum().backward()
            else:
                dist.all_reduce(x)
            began = time.monotonic()
    except RuntimeError as error:
        print(f"{time.monotonic() - began:.2f} s: {error}", flush=True)
        os._exit(3)
dist.barrier()
dist.destroy_process_group()
"""


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


class Hosts:
    """Namespaces that a bridge connects: host k has the address 10.77.0.k + 1."""

    created = 0

    def __init__(self, count):
        Hosts.created += 1  # the kernel removes the links of earlier ones later
        self.count, self.name = count, f"fac{os.getpid() % 10000}{chr(97 + Hosts.created % 26)}"

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
        text = f'hostname host{k}; exec "$@"'
        return subprocess.Popen([*inside, text, "sh", *command], stdout=subprocess.PIPE, text=True)

    def cut(self, k):
        run("ip", "link", "set", f"{self.name}v{k}", "down")


def check(how, phase="collective", victim=2, size=3):
    """Returns a line on how the case ended."""
    with Hosts(size) as hosts, tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(PROGRAM)
        arguments = [str(size), how, phase]
        ranks = [hosts.start(k, sys.executable, str(program), str(k), *arguments) for k in range(size)]
        try:
            for process in ranks:
                assert process.stdout.readline().strip() == "connected", "no connection"
            if how == "killed":
                ranks[victim].send_signal(signal.SIGKILL)
            elif how == "stopped":
                ranks[victim].send_signal(signal.SIGSTOP)
            elif how == "partition":
                hosts.cut(victim)
            answers = []
            for k, process in enumerate(ranks):
                if how in ("killed", "stopped") and k == victim:
                    continue
                text = process.stdout.read()
                code = process.wait(60)
                answers.append((code, text.strip()))
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    if how == "works":
        assert all(code == 0 for code, _ in answers), answers
        return "all_reduce over TCP is right"
    limit = 0.2 if how == "killed" else 2.0
    for code, text in answers:
        named = "rank" if how == "partition" else f"rank {victim} "
        assert code == 3 and named in text, answers
        assert float(text.split(" s:")[0]) < limit, text
    return answers[0][1]


def main():
    missing = [tool for tool in ("ip", "unshare") if not shutil.which(tool)]
    if missing or os.geteuid():
        sys.exit(f"test-distributed needs root and the programs ip and unshare; missing: {missing or 'root'}")
    probe = subprocess.run(["ip", "netns", "add", "facprobe"], capture_output=True, text=True)
    if probe.returncode:
        sys.exit(f"test-distributed needs the right to create network namespaces: {probe.stderr.strip()}")
    run("ip", "netns", "del", "facprobe")
    failed = 0
    faults = itertools.product(("killed", "stopped", "partition"), ("collective", "bucket"), (0, 2))
    for case in [("works",), *faults]:
        began, title = time.monotonic(), f"{' '.join(map(str, case)):24}"
        try:
            answer = check(*case)
            print(f"{title} passed in {time.monotonic() - began:.1f} s: {answer}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"{title} FAILED: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
