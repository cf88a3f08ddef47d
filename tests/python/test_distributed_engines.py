"""Engines of shared libraries: NCCL, by a double of its interface, and Open MPI where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.ranks import results

import facula
from facula import distributed as dist

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def nccl(tmp_path_factory):
    """The path of the double, compiled."""
    library = tmp_path_factory.mktemp("nccl") / "libnccl.so"
    source = ROOT / "tests/distributed/nccl_double.c"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-O1", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    return library


def every_collective(rank, size):
    own = facula.arange(6.0) + 10 * rank
    everyone = [facula.arange(6.0) + 10 * r for r in range(size)]
    total = sum(everyone[1:], everyone[0])
    for op, expected in (("SUM", total), ("AVG", total / size), ("MAX", everyone[-1]), ("MIN", everyone[0])):
        dist.all_reduce(x := own.clone(), getattr(dist.ReduceOp, op))
        assert facula.equal(x, expected), op
    dist.broadcast(x := own.clone(), 1)
    assert facula.equal(x, everyone[1])
    dist.reduce(x := own.clone(), 1)
    assert facula.equal(x, total if rank == 1 else own)
    dist.all_gather(parts := [facula.empty(6) for _ in range(size)], own)
    assert all(map(facula.equal, parts, everyone))
    dist.all_gather_into_tensor(flat := facula.empty(6 * size), own)
    assert facula.equal(flat, facula.cat(everyone))
    dist.reduce_scatter_tensor(x := facula.empty(6 // size), own)
    assert facula.equal(x, total.chunk(size)[rank])
    dist.reduce_scatter(x := facula.empty(6), [own + r for r in range(size)])
    assert facula.equal(x, total + size * rank)
    into = [facula.empty(6) for _ in range(size)] if rank == 0 else None
    dist.gather(own, into, 0)
    assert rank or all(map(facula.equal, into, everyone))
    dist.scatter(x := facula.empty(6), [own + r for r in range(size)] if rank == 0 else None, 0)
    assert facula.equal(x, everyone[0] + rank)
    dist.all_to_all(parts := [facula.empty(6) for _ in range(size)], [own + r for r in range(size)])
    assert all(map(facula.equal, parts, [e + rank for e in everyone]))
    if rank == 0:
        dist.send(own, 1)
    elif rank == 1:
        dist.recv(x := facula.empty(6), 0)
        assert facula.equal(x, everyone[0])
    work = dist.all_reduce(x := own.clone(), async_op=True)
    assert work.wait() and facula.equal(x, total)
    dist.barrier()


def train(rank, size):
    facula.manual_seed(0)
    net = facula.nn.Linear(4, 3)
    alone = facula.nn.Linear(4, 3)
    alone.load_state_dict(net.state_dict())
    data = facula.randn(2 * size, 4, generator=facula.Generator().manual_seed(1))
    parallel = facula.nn.parallel.DistributedDataParallel(net)
    parallel(data[2 * rank : 2 * rank + 2]).square().mean().backward()
    alone(data).square().mean().backward()
    facula.testing.assert_close(net.weight.grad, alone.weight.grad)


def with_nccl(rank, store):
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    assert dist.get_backend() == "nccl" and dist.is_nccl_available()
    every_collective(rank, 2)
    train(rank, 2)
    with pytest.raises(RuntimeError, match="reductions sum, avg, product, min and max alone"):
        dist.all_reduce(facula.ones(2, dtype=facula.int64), dist.ReduceOp.BXOR)
    pair = dist.new_group([0, 1])
    dist.all_reduce(x := facula.ones(2), group=pair)
    assert x.tolist() == [2, 2]
    dist.destroy_process_group()


def test_nccl_runs_collectives_and_data_parallel_training(nccl, tmp_path):
    before = set(Path("/dev/shm").glob("nccl_double_*"))
    environment = {"FACULA_NCCL_LIBRARY": str(nccl)}
    results(2, with_nccl, str(tmp_path / "store"), init=False, environment=environment)
    assert not set(Path("/dev/shm").glob("nccl_double_*")) - before


def without_libraries(rank):
    for name in ("nccl", "mpi"):
        assert not dist.is_backend_available(name)
        with pytest.raises(RuntimeError, match=f"doesn't have {name.upper()} built in.*needs the library"):
            dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)


def test_a_missing_library_is_named():
    nowhere = {f"FACULA_{name}_LIBRARY": "/nowhere.so" for name in ("NCCL", "MPI")}
    results(1, without_libraries, init=False, environment=nowhere)


MPI_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import facula.distributed as dist
from test_distributed_engines import every_collective, train
dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 2
every_collective(rank, size)
train(rank, size)
part = dist.new_group([rank], use_local_synchronization=True)
assert dist.get_world_size(part) == 1
dist.destroy_process_group()
print("passed", rank, flush=True)
"""


@pytest.mark.skipif(not shutil.which("mpirun"), reason="needs Open MPI (setup/mpi.sh)")
def test_mpi_runs_collectives_and_data_parallel_training(tmp_path):
    (tmp_path / "program.py").write_text(MPI_PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = ["mpirun", "--oversubscribe", "-n", "2", sys.executable, tmp_path / "program.py"]
    done = subprocess.run(
        [*command, Path(__file__).parent], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["0", "1", "passed", "passed"], done.stderr


# ---- backends of others


class Doubling(dist.ProcessGroup):
    """A backend of one rank, which doubles instead of adding."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.store, self.timeout = store, timeout

    def allreduce(self, tensors, opts=None):
        for tensor in tensors:
            tensor.mul_(2)
        return dist.Work(None, tensors)


def use_another_backend(rank):
    dist.Backend.register_backend("doubling", Doubling)
    assert dist.Backend.DOUBLING == "doubling" and dist.is_backend_available("doubling")
    dist.init_process_group("doubling", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.get_backend() == "doubling"
    dist.all_reduce(x := facula.ones(2))
    assert x.tolist() == [2, 2]
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and x.tolist() == [4, 4]
    part = dist.new_group([0])
    dist.all_reduce(x, group=part)
    assert isinstance(part, Doubling) and x.tolist() == [8, 8]
    dist.destroy_process_group()
    with pytest.raises(RuntimeError, match="doubling creator function already exist"):
        dist.Backend.register_backend("doubling", Doubling)


def test_a_package_brings_a_backend():
    results(1, use_another_backend, init=False)
