"""What processes share: tensors that go between them, stores of values, groups of one, its launcher."""

from __future__ import annotations

import multiprocessing.context
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import facula.multiprocessing as mp
import pytest
from facula.distributed.optim import ZeroRedundancyOptimizer

import facula
from facula import distributed as dist
from facula import nn

# ---- tensors


def change(queue, back, shared, module):
    shared[0] = 9
    alone, view, large = queue.get(), queue.get(), queue.get()
    for t in (alone, view, large):
        t.add_(1)
    with facula.no_grad():
        module.weight.fill_(5)
    kind = type(module.weight)
    back.put((alone, kind is nn.Parameter, module.weight.requires_grad, large.is_shared()))
    queue.get()  # until the other has looked


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_look_at_the_same_tensors(method):
    context = mp.get_context(method)
    queue, back = context.Queue(), context.Queue()
    shared, module = facula.zeros(3).share_memory_(), nn.Linear(2, 2).share_memory()
    process = context.Process(target=change, args=(queue, back, shared, module))
    process.start()
    alone, whole, large = facula.zeros(4), facula.arange(6.0), facula.zeros(300_000)
    for t in (alone, whole[2:4], large):
        queue.put(t)
    returned, *facts = back.get(timeout=60)
    assert facts == [True, True, True]
    assert shared.tolist() == [9, 0, 0] and module.weight.flatten().tolist() == [5] * 4
    assert alone.tolist() == [1] * 4 and large.min() == 1 and alone.is_shared()
    returned.mul_(3)
    assert alone.tolist() == [3] * 4  # it came back as what it was
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]  # others look at its memory: a copy went
    queue.put(None)
    process.join()
    assert process.exitcode == 0


def test_a_shared_view_takes_the_memory_that_it_reaches():
    base = facula.arange(24.0).reshape(2, 3, 4)
    for view in (base[:, 1], base.permute(2, 0, 1), base[1, ::2], base[0, 0, :1].expand(1 << 40), base[:0]):
        strides, first = view.stride(), view[..., :3].tolist() if view.numel() else []
        assert view.share_memory_() is view and view.is_shared() and view.stride() == strides
        assert (view[..., :3].tolist() if view.numel() else []) == first
        assert view.untyped_storage().nbytes() < 8 << 20
    numbers = facula.randn(3, dtype=facula.complex64)
    turned = numbers.conj().share_memory_()
    assert facula.equal(turned, numbers.conj())


def test_many_shared_tensors_need_few_descriptors():
    before = len(os.listdir("/proc/self/fd"))
    many = [facula.full((10,), float(k)).share_memory_() for k in range(3000)]
    assert len(os.listdir("/proc/self/fd")) < before + 20
    assert all(t.is_shared() and t.sum() == 10 * k for k, t in enumerate(many))
    del many
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # of the block that the next tensor goes to


def test_a_forked_process_shares_in_memory_of_its_own():
    first = facula.full((4,), 1.0).share_memory_()
    context = multiprocessing.context.ForkContext()

    def child():
        facula.full((4,), 2.0).share_memory_()

    process = context.Process(target=child)
    process.start()
    process.join()
    second = facula.full((4,), 3.0).share_memory_()
    assert first.tolist() == [1] * 4 and second.tolist() == [3] * 4


def test_results_with_a_history_are_not_sent():
    ours, theirs = mp.Pipe()
    with pytest.raises(RuntimeError, match="non-leaf tensor which requires_grad"):
        ours.send(facula.ones(2, requires_grad=True) * 2)
    ours.send((facula.ones(0), facula.eye(2).to_sparse(), facula.ones(2, requires_grad=True)))
    empty, sparse, leaf = theirs.recv()
    assert empty.shape == (0,) and sparse.to_dense().tolist() == [[1, 0], [0, 1]] and leaf.requires_grad


# ---- stores


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request, tmp_path):
    made = {
        "hash": dist.HashStore,
        "file": lambda: dist.FileStore(str(tmp_path / "values"), 1),
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, 1, True),
        "prefix": lambda: dist.PrefixStore("a", dist.HashStore()),
    }[request.param]()
    made.set_timeout(timedelta(seconds=5))
    return made


def test_a_store_does_what_pytorchs_do(store):
    store.set("a", "1")
    assert (
        store.get("a") == b"1"
        and store.add("n", 5) == 5
        and store.add("n", -2) == 3
        and store.get("n") == b"3"
    )
    assert store.compare_set("k", "", "v0") == b"v0" and store.compare_set("k", "v0", "v1") == b"v1"
    assert store.compare_set("k", "zz", "v2") == b"v1" and store.compare_set("new", "e", "v2") == b"e"
    assert not store.check(["new"]) and store.check(["a", "k"]) and store.check([])
    assert store.delete_key("a") and not store.delete_key("a") and sorted(store.list_keys()) == ["k", "n"]
    store.append("b", b"x\x00")
    store.append("b", "y")
    store.multi_set(["c", "d"], ["1", "2"])
    assert store.get("b") == b"x\x00y" and store.multi_get(["c", "d"]) == [b"1", b"2"]
    with pytest.raises(dist.DistStoreError, match="keys: .*missing"):
        store.wait(["missing"], timedelta(milliseconds=20))
    with pytest.raises(ValueError, match="no number"):
        store.add("b", 1)
    with pytest.raises(TypeError, match="a text or bytes"):
        store.set("a", 3)
    store.queue_push("q", "1")
    assert store.queue_len("q") == 1 and store.queue_pop("q") == b"1"
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", block=False)


def test_who_waits_is_told(store):
    threading.Timer(0.05, store.clone().set, ("late", "x")).start()
    assert store.get("late") == b"x"
    threads = [threading.Thread(target=store.clone().barrier, args=("gate", 3)) for _ in range(2)]
    for t in threads:
        t.start()
    store.barrier("gate", 3)
    for t in threads:
        t.join(10)
        assert not t.is_alive()


def test_many_add_at_once(store):
    others = [store.clone() for _ in range(4)]
    threads = [threading.Thread(target=lambda s=s: [s.add("n", 1) for _ in range(50)]) for s in others]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert store.add("n", 0) == 200


def test_a_server_and_its_clients(tmp_path):
    master = dist.TCPStore("127.0.0.1", 0, 1, True)
    client = dist.TCPStore("127.0.0.1", master.port, None, False, timedelta(seconds=2))
    client.set("x", "1")
    assert master.get("x") == b"1"
    with pytest.raises(dist.DistNetworkError, match="cannot serve"):
        dist.TCPStore("127.0.0.1", master.port, 1, True)
    with socket.create_connection(("127.0.0.1", master.port)) as stranger:
        stranger.sendall(b'["__init__"]\n[3]\nnot json\n["_set", "y"]\n')
        assert stranger.makefile().readline().startswith("[")
    assert client.get("x") == b"1"  # it went on
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(dist.DistNetworkError, match="timed out"):
        dist.TCPStore("127.0.0.1", port, None, False, timedelta(milliseconds=100))
    broken = tmp_path / "broken"
    broken.write_text("[not values")
    with pytest.raises(dist.DistStoreError, match="holds no values"):
        dist.FileStore(str(broken), 1).get("x")


# ---- groups


@pytest.fixture
def world():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_messages_need_another_process(world):
    x = facula.ones(2)
    for call in (dist.send, dist.isend, dist.recv, dist.irecv):
        with pytest.raises(ValueError, match="should not be the same as the rank of the current process"):
            call(x, 0)
        with pytest.raises(RuntimeError, match=r"rank 1 is not in \[0, 1\)"):
            call(x, 1)
    with pytest.raises(ValueError, match="Invalid ``op``"):
        dist.P2POp(dist.send, x, 0)
    with pytest.raises(ValueError, match="a list of P2POp"):
        dist.batch_isend_irecv([])


def test_groups_of_groups(world):
    own, every = dist.new_subgroups(1)
    assert every == [own] and dist.get_rank(own) == 0 and dist.get_pg_count() == 2
    assert dist.new_subgroups_by_enumeration([[0]])[0].size() == 1
    with pytest.raises(ValueError, match="must not exceed the world size"):
        dist.new_subgroups(2)
    x = facula.ones(2)
    dist.all_reduce_coalesced([x, x])
    dist.all_gather_coalesced([[y := facula.zeros(2)]], [x])
    assert y.tolist() == [1, 1]


def test_a_mesh_of_one(world):
    mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    assert (mesh.shape, mesh.ndim, mesh.size(), mesh.get_coordinate()) == ((1, 1), 2, 1, (0, 0))
    assert mesh["dp"].get_local_rank() == 0 and mesh["dp", "tp"] == mesh and len(mesh.get_all_groups()) == 2
    assert repr(mesh["tp"]) == "DeviceMesh((tp=1), 'cpu')"
    with pytest.raises(KeyError, match="Invalid mesh_dim_names"):
        mesh["pp"]
    with pytest.raises(RuntimeError, match="bigger than default world size"):
        dist.init_device_mesh("cpu", (2,))


def test_an_optimizer_in_parts_is_the_optimizer(world):
    w, v = (facula.ones(2, requires_grad=True) for _ in range(2))
    parts = ZeroRedundancyOptimizer([w], facula.optim.Adam, lr=0.1)
    whole = facula.optim.Adam([v], lr=0.1)
    for optimizer, p in ((parts, w), (whole, v)):
        for _ in range(3):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
    parts.consolidate_state_dict()
    assert facula.equal(w, v) and parts.state_dict()["state"].keys() == whole.state_dict()["state"].keys()


@pytest.mark.parametrize(
    "url", ["tcp://127.0.0.1:0?rank=0&world_size=1", "file:///{folder}/meeting", "mine://x"]
)
def test_rendezvous(url, tmp_path):
    if url.startswith("mine"):
        dist.register_rendezvous_handler("mine", lambda url: iter([(dist.HashStore(), 0, 1)]))
    store, rank, size = next(dist.rendezvous(url.format(folder=tmp_path), 0, 1))
    store.set("a", "b")
    assert (store.get("a"), rank, size) == (b"b", 0, 1)
    with pytest.raises(RuntimeError, match="already registered"):
        dist.register_rendezvous_handler("tcp", None)
    with pytest.raises(RuntimeError, match="No rendezvous handler for ftp://"):
        next(dist.rendezvous("ftp://x"))


def launched(*arguments):
    command = [sys.executable, "-m", "facula.torch", "-m", "torch.distributed.run", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_the_launcher_tells_a_program_its_place(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "print(dist.get_rank(), os.environ['LOCAL_RANK'], dist.is_torchelastic_launched(), sys.argv[1:])\n"
        "sys.exit(3)\n"
    )
    done = launched("--standalone", "--nproc_per_node=1", program, "--lr", "0.1")
    assert done.stdout == "0 0 True ['--lr', '0.1']\n", done.stderr
    assert done.returncode == 1 and "exitcode  : 3" in done.stderr


def add_up(back, *tensors):
    back.put([t.sum().item() for t in tensors])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_copies_wait_for_a_process_that_starts(method):
    # Others look at their memory, so that copies go, whose files nobody else holds until they are taken.
    context = mp.get_context(method)
    back, whole = context.Queue(), facula.ones(600, 1000)
    started = [
        context.Process(target=add_up, args=(back, whole[:500], whole[7], whole[:, 3])) for _ in range(2)
    ]
    for p in started:
        p.start()
    assert [back.get(timeout=60) for _ in started] == [[500_000.0, 1000.0, 600.0]] * 2
    for p in started:
        p.join()
        assert p.exitcode == 0


# ---- the end of a process

KEEPS_ITS_REDUCER = """
import facula
from facula import distributed as dist, nn
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(facula.ones(3))
    def forward(self, x):
        return x * self.weight
net = nn.parallel.DistributedDataParallel(nn.Sequential(*(Scale() for _ in range(21))))
net(facula.ones(3)).sum().backward()
reducer = net.reducer
"""


def test_a_process_ends_well_with_hooks_that_only_the_last_collection_removes():
    subprocess.run([sys.executable, "-c", KEEPS_ITS_REDUCER], check=True)
