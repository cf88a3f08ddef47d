"""Stores: requests of strangers to a TCPStore, the token of a job, and stores in an etcd server."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from facula.distributed._presence import Presence
from support.ranks import TIMEOUT, results

import facula
from facula import distributed as dist

# ---- TCPStore


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident_megabytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def junk(draw):
    """A request with a fault: of one kind in each."""
    good = json.dumps([draw.choice(["_set", "_add", "_get", "_append"]), "k", 1]).encode()
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(draw.randrange(200)) + b"\n"
    if kind == 1:
        return b"[" * draw.randrange(5000) + b"\n"
    if kind == 2:
        return (
            json.dumps(
                [draw.choice(["_set", "__class__", "", "_add"]), draw.choice([1, None, [], {}])]
            ).encode()
            + b"\n"
        )
    if kind == 3:
        return json.dumps(["_set", "k", {"bytes": draw.choice(["?", 1, None, "AAA"])}]).encode() + b"\n"
    if kind == 4:
        at = draw.randrange(len(good))
        return good[:at] + draw.randbytes(1) + good[at + 1 :] + b"\n"
    return good[: draw.randrange(len(good))]  # ends in the middle


def test_5000_damaged_requests_neither_stop_nor_grow_a_store():
    seed = int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    draw = random.Random(seed)
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    store.set("k2", "before")

    def send(count):
        for _ in range(count // 10):
            with socket.create_connection(("127.0.0.1", store.port)) as s:
                s.settimeout(10)
                with contextlib.suppress(OSError):
                    s.sendall(b"".join(junk(draw) for _ in range(10)))
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(4096):
                        pass

    send(500)
    descriptors, memory = open_descriptors(), resident_megabytes()
    send(5000)
    assert store.get("k2") == b"before"
    end = time.monotonic() + 5
    while open_descriptors() > descriptors and time.monotonic() < end:
        time.sleep(0.05)
    assert open_descriptors() <= descriptors
    assert resident_megabytes() < memory + 16


def test_a_store_with_a_token_answers_nobody_else(monkeypatch):
    monkeypatch.setenv("FACULA_JOB_TOKEN", "secret")
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    store.set("key", "value")
    assert dist.TCPStore("127.0.0.1", store.port).get("key") == b"value"
    for first in (b"", b"wrong\n"):
        with socket.create_connection(("127.0.0.1", store.port)) as s:
            s.sendall(first + b'["_get", "key"]\n')
            assert s.recv(100) == b""
    monkeypatch.delenv("FACULA_JOB_TOKEN")
    with pytest.raises(RuntimeError, match="closed the connection|does not answer"):
        dist.TCPStore("127.0.0.1", store.port, timeout=timedelta(seconds=2)).get("key")


# ---- etcd

needs_etcd = pytest.mark.skipif(not shutil.which("etcd"), reason="needs an etcd server (setup/etcd.sh)")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextlib.contextmanager
def etcd_server(folder):
    """The address of a server, and its process."""
    clients, peers = free_ports(2)
    address = f"127.0.0.1:{clients}"
    command = ["etcd", "--data-dir", folder / "data", "--listen-client-urls", f"http://{address}"]
    command += ["--advertise-client-urls", f"http://{address}"]
    command += ["--listen-peer-urls", f"http://127.0.0.1:{peers}"]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    end = time.monotonic() + TIMEOUT
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", clients)).close()
            break
        assert time.monotonic() < end and process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    try:
        yield address, process
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory):
    with etcd_server(tmp_path_factory.mktemp("etcd")) as (address, _):
        yield address


def store_of(etcd, prefix="/job"):
    from facula.distributed._etcd import EtcdStore

    return EtcdStore(etcd, prefix)


@needs_etcd
def test_values_in_etcd_behave_like_those_of_other_stores(etcd):
    one, other = store_of(etcd, "/values"), store_of(etcd, "/values")
    one.set("a", "1")
    assert other.get("a") == b"1" and other.check(["a"]) and not other.check(["a", "b"])
    assert [one.add("n", 3), other.add("n", -1), one.add("n", 0)] == [3, 2, 2]
    assert one.compare_set("c", "", "x") == b"x" and other.compare_set("c", "y", "z") == b"x"
    one.append("p", "q")
    other.append("p", "r")
    assert one.get("p") == b"qr" and sorted(one.list_keys()) == ["a", "c", "n", "p"] and one.num_keys() == 4
    assert one.delete_key("a") and not other.delete_key("a")
    one.set("empty", b"")
    assert other.get("empty") == b""
    one.queue_push("q", "first")
    assert other.queue_pop("q") == b"first"
    assert not store_of(etcd, "/value").list_keys()  # a prefix of the other's name
    with pytest.raises(RuntimeError, match="wait timeout after 100ms, keys: none"):
        one.wait(["none"], timedelta(milliseconds=100))


@needs_etcd
def test_concurrent_additions_in_etcd_are_all_counted(etcd):
    stores = [store_of(etcd, "/count") for _ in range(4)]
    threads = [threading.Thread(target=lambda s=s: [s.add("n", 1) for _ in range(25)]) for s in stores]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert stores[0].add("n", 0) == 100


def meet_at_etcd(rank, address):
    dist.init_process_group("gloo", init_method=f"etcd://{address}/meet", rank=rank, world_size=2)
    dist.all_reduce(x := facula.ones(2))
    assert x.tolist() == [2, 2]
    dist.destroy_process_group()


@needs_etcd
def test_ranks_meet_at_an_etcd_server(etcd):
    results(2, meet_at_etcd, etcd, init=False)


@needs_etcd
def test_nodes_meet_at_an_etcd_server_and_start_again(etcd, tmp_path):
    from test_distributed import PROGRAM

    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    command = [sys.executable, "-m", "facula.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += ["--rdzv-backend=etcd", f"--rdzv-endpoint={etcd}", "--rdzv-id=nodes", "--max-restarts=1"]
    nodes = [
        subprocess.Popen(
            [*command, str(tmp_path / "program.py")], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    text = "".join(node.communicate(timeout=120)[0] for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], text
    assert "0 0 2 3.0 1" in text and "1 0 2 3.0 1" in text


@needs_etcd
def test_an_etcd_server_that_does_not_run_is_named_in_one_line():
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "facula.distributed.run", "--nnodes=1:2", "--rdzv-backend=etcd"]
    command += [f"--rdzv-endpoint=127.0.0.1:{port}", "none.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"torchrun: EtcdStore: 127.0.0.1:{port} does not answer: [Errno 111] Connection refused"
    ]


def lose_the_store(rank, address, lose):
    """Rank 0 is about to meet the others, and loses the store."""
    if rank == 0:
        gather = Presence.gather

        def after_the_loss(self, keys, check=None):
            if "address/0" in keys:
                self._store.get("address/1")
                lose()
            return gather(self, keys, check)

        Presence.gather = after_the_loss
    with pytest.raises(RuntimeError) as error:
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    return str(error.value)


@needs_etcd
def test_an_etcd_server_that_is_lost_during_the_start_is_named_by_all_ranks(tmp_path):
    with etcd_server(tmp_path) as (address, server):
        kill = functools.partial(os.kill, server.pid, signal.SIGKILL)
        for text in results(2, lose_the_store, f"etcd://{address}/job", kill, init=False):
            assert re.fullmatch(rf"EtcdStore: {address} does not answer: .*", text), text


@needs_etcd
def test_an_etcd_server_that_is_lost_while_nodes_meet_is_named_in_one_line(tmp_path):
    with etcd_server(tmp_path) as (address, server):
        command = [sys.executable, "-m", "facula.distributed.run", "--nnodes=2", "--rdzv-backend=etcd"]
        command += [f"--rdzv-endpoint={address}", "none.py"]
        launcher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        store = store_of(address, "/facula/none")
        store.wait(["rendezvous/0/node/0"], timedelta(seconds=TIMEOUT))
        server.kill()
        _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 1
    (line,) = errors.splitlines()
    assert line.startswith(f"torchrun: EtcdStore: {address} does not answer: "), line


def test_a_file_that_is_lost_during_the_start_is_named_by_all_ranks(tmp_path):
    path = tmp_path / "store"
    for text in results(2, lose_the_store, f"file://{path}", path.unlink, init=False):
        assert text == f"FileStore: {path} was removed while processes met there"


def test_a_file_that_was_replaced_is_no_store_of_those_who_met_before(tmp_path):
    path = tmp_path / "store"
    store = dist.FileStore(str(path), 2)
    store.set("a", "1")
    path.rename(tmp_path / "moved")
    with pytest.raises(RuntimeError, match="FileStore: .* was removed while processes met there"):
        store.get("a")
    assert not path.exists()
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match="FileStore: .* was removed while processes met there"):
        store.get("a")
    assert not dist.FileStore(str(path), 2).check(["a"])
