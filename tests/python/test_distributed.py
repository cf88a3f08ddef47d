"""Groups of several processes: collectives against sums and copies that NumPy computes, faults, launchers."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from support.ranks import results

import facula
from facula import distributed as dist

REDUCTIONS = {
    "SUM": lambda all: sum(all[1:], all[0]),
    "PRODUCT": lambda all: np.multiply.reduce(all),
    "MIN": lambda all: np.minimum.reduce(all),
    "MAX": lambda all: np.maximum.reduce(all),
    "BAND": lambda all: np.bitwise_and.reduce(all),
    "BOR": lambda all: np.bitwise_or.reduce(all),
    "BXOR": lambda all: np.bitwise_xor.reduce(all),
}
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"]


def numbers(rank, dtype, n):
    """Small integers, whose sums and products every dtype represents."""
    values = np.random.RandomState(rank + 1).randint(0, 3, n)
    return values.astype(bool if dtype == "bool" else dtype)


# ---- collectives


def reduce_everything(rank):
    size = dist.get_world_size()
    for dtype in DTYPES:
        for name, reduction in REDUCTIONS.items():
            bitwise = name in ("BAND", "BOR", "BXOR")
            if (bitwise and dtype.startswith(("float", "complex"))) or (
                name != "SUM" and dtype == "complex64"
            ):
                continue
            for n in (0, 1, 5, 3000):
                everyone = [numbers(r, dtype, n) for r in range(size)]
                x = facula.from_numpy(everyone[rank].copy())
                dist.all_reduce(x, getattr(dist.ReduceOp, name))
                expected = reduction(everyone).astype(everyone[0].dtype)
                assert np.array_equal(x.numpy(), expected), (dtype, name, n)


def exchange_everything(rank):
    size = dist.get_world_size()
    for n in (0, 3, 100_003):  # the last one is sent in chunks
        own = facula.arange(float(n)) + 1000 * rank
        everyone = [facula.arange(float(n)) + 1000 * r for r in range(size)]
        x = own.clone()
        dist.all_reduce(x)
        assert facula.equal(x, sum(everyone[1:], everyone[0]))
        x = own.clone()
        dist.reduce(x, size - 1)
        assert facula.equal(x, sum(everyone[1:], everyone[0]) if rank == size - 1 else own)
        for root in range(size):
            x = own.clone()
            dist.broadcast(x, root)
            assert facula.equal(x, everyone[root])
            parts = [facula.full((n,), float(k)) for k in range(size)] if rank == root else None
            dist.scatter(x, parts, root)
            assert facula.equal(x, facula.full((n,), float(rank)))
            into = [facula.empty(n) for _ in range(size)] if rank == root else None
            dist.gather(own, into, root)
            assert rank != root or all(map(facula.equal, into, everyone))
        into = [facula.empty(n) for _ in range(size)]
        dist.all_gather(into, own)
        assert all(map(facula.equal, into, everyone))
        flat = facula.empty(n * size)
        dist.all_gather_into_tensor(flat, own)
        assert facula.equal(flat, facula.cat(everyone))
        x = facula.empty(n)
        dist.reduce_scatter(x, [own + k for k in range(size)])
        assert facula.equal(x, sum(e + rank for e in everyone))
        dist.reduce_scatter_tensor(x, facula.cat([own + k for k in range(size)]))
        assert facula.equal(x, sum(e + rank for e in everyone))
        dist.all_to_all(into, [own + k for k in range(size)])
        assert all(map(facula.equal, into, [e + rank for e in everyone]))
    # Splits of different sizes: rank r sends r + k + 1 rows to rank k.
    rows = facula.cat([facula.full((rank + k + 1, 2), 10.0 * rank + k) for k in range(size)])
    out = facula.empty(sum(r + rank + 1 for r in range(size)), 2)
    dist.all_to_all_single(
        out, rows, [r + rank + 1 for r in range(size)], [rank + k + 1 for k in range(size)]
    )
    assert facula.equal(
        out, facula.cat([facula.full((r + rank + 1, 2), 10.0 * r + rank) for r in range(size)])
    )


def layouts_and_objects(rank):
    size = dist.get_world_size()
    x = (facula.arange(12.0).reshape(3, 4) + rank).t()
    dist.all_reduce(x)
    assert facula.equal(x, (size * facula.arange(12.0).reshape(3, 4) + sum(range(size))).t())
    z = facula.full((3,), 1 + 1j * rank).conj()
    dist.all_reduce(z)
    assert z.tolist() == [size - 1j * sum(range(size))] * 3
    work = dist.all_reduce(y := facula.ones(5)[::2], async_op=True)
    assert work.wait() and work.is_completed() and work.is_success() and y.tolist() == [size] * 3
    work = dist.all_reduce(y := facula.ones(5), async_op=True)
    future = work.get_future().then(lambda f: f.value()[0] / size)
    assert future.wait().tolist() == [1] * 5
    half = facula.full((100,), 1 / 3, dtype=facula.bfloat16) * (rank + 1)
    expected = sum((facula.full((100,), 1 / 3, dtype=facula.bfloat16) * (r + 1)).float() for r in range(size))
    dist.all_reduce(half)
    assert facula.equal(half, expected.bfloat16())  # added in float, rounded once
    mean = facula.full((3,), float(rank))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert mean.tolist() == [sum(range(size)) / size] * 3
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 100 * rank})
    assert objects == [{"rank": r, "text": "x" * 100 * r} for r in range(size)]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object((rank, "a"), gathered, 1)
    assert rank != 1 or gathered == [(r, "a") for r in range(size)]
    objects = ["a", 3, {4: 5}] if rank == 0 else [None] * 3
    dist.broadcast_object_list(objects, 0)
    assert objects == ["a", 3, {4: 5}]
    dist.scatter_object_list(own := [None], [r * "y" for r in range(size)] if rank == 0 else None, 0)
    assert own == [rank * "y"]
    with dist._coalescing_manager(async_ops=True) as manager:
        a, b = facula.ones(3), facula.ones(2) * rank
        dist.all_reduce(a)
        dist.all_reduce(b)
    manager.wait()
    assert a.tolist() == [size] * 3 and b.tolist() == [sum(range(size))] * 2
    for bad in (facula.ones(2).half() if rank else None,):
        assert bad is None or bad.dtype == facula.float16
    with pytest.raises(RuntimeError, match="non-integral"):
        dist.all_reduce(facula.ones(2), dist.ReduceOp.BOR)
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=30))


def messages(rank):
    size = dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in (0, 1, 1_000_000):
        sent, got = facula.full((n,), float(rank)), facula.empty(n)
        work = dist.isend(sent, right)
        assert dist.recv(got, left) == left and facula.equal(got, facula.full((n,), float(left)))
        work.wait()
    # Tags select messages in any order.
    works = [dist.isend(facula.tensor([10.0 * rank + t]), right, tag=t) for t in (1, 2, 3)]
    for tag in (3, 1, 2):
        dist.recv(got := facula.empty(1), left, tag=tag)
        assert got.item() == 10 * left + tag
    [w.wait() for w in works]
    if rank == 0:
        senders = [dist.recv(got := facula.empty(1), tag=7) for _ in range(size - 1)]
        assert sorted(senders) == list(range(1, size))
    else:
        dist.send(facula.tensor([float(rank)]), 0, tag=7)
    ops = [
        dist.P2POp(dist.isend, facula.tensor([rank]), right),
        dist.P2POp(dist.irecv, got := facula.tensor([0]), left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.item() == left
    if rank == 0:
        dist.send_object_list(["a", {1: 2}], 1)
    elif rank == 1:
        dist.recv_object_list(objects := [None, None], 0)
        assert objects == ["a", {1: 2}]


def subgroups(rank):
    size = dist.get_world_size()
    even = dist.new_group(list(range(0, size, 2)))
    odd = dist.new_group(list(range(1, size, 2)))
    own, other = (odd, even) if rank % 2 else (even, odd)
    assert other == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(other) == -1
    x = facula.tensor([float(rank)])
    dist.all_reduce(x, group=own)
    assert x.item() == sum(range(rank % 2, size, 2))
    assert dist.get_process_group_ranks(own) == list(range(rank % 2, size, 2))
    assert dist.get_rank(own) == rank // 2 and dist.get_global_rank(own, rank // 2) == rank
    last = size - 2 + rank % 2
    y = facula.tensor([float(rank)])
    dist.broadcast(y, last, group=own)
    assert y.item() == last
    part, parts = dist.new_subgroups(2)
    assert part.size() == 2 and len(parts) == size // 2
    local = dist.new_group([rank], use_local_synchronization=True)
    assert dist.get_world_size(local) == 1
    dist.destroy_process_group(own)
    with pytest.raises(ValueError):
        dist.get_group_rank(own, rank)


def everything(rank):
    for part in (reduce_everything, exchange_everything, layouts_and_objects, messages, subgroups):
        part(rank)


def some(rank):
    for part in (exchange_everything, layouts_and_objects, messages):
        part(rank)


def test_collectives_of_four_ranks():
    results(4, everything)


def test_collectives_over_tcp():
    results(3, some, environment={"FACULA_DISTRIBUTED_TRANSPORT": "tcp"})


# ---- DistributedDataParallel


def network(seed):
    facula.manual_seed(seed)
    return facula.nn.Sequential(
        facula.nn.Linear(6, 16),
        facula.nn.Tanh(),
        facula.nn.Linear(16, 8),
        facula.nn.Tanh(),
        facula.nn.Linear(8, 3),
    ).double()


def train_in_parallel(rank):
    size = dist.get_world_size()
    data = facula.randn(4, 8 * size, 6, generator=facula.Generator().manual_seed(1), dtype=facula.float64)
    target = facula.randn(4, 8 * size, 3, generator=facula.Generator().manual_seed(2), dtype=facula.float64)

    def trained(net, mine, steps=4, accumulate=False):
        opt = facula.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for x, y in zip(data[:steps], target[:steps]):
            opt.zero_grad()
            if accumulate:
                with net.no_sync():
                    ((net(x[mine]) - y[mine]) ** 2).mean().backward()
            ((net(x[mine]) - y[mine]) ** 2).mean().backward()
            opt.step()
        return [p.detach() for p in net.parameters()]

    alone = trained(network(5), slice(None))
    DDP = facula.nn.parallel.DistributedDataParallel
    mine = slice(8 * rank, 8 * rank + 8)
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"bucket_cap_mb": 0.0005},
    ):
        net = DDP(network(5 if rank == 0 else 99), **options)  # the weights of rank 0 count
        for got, expected in zip(trained(net, mine), alone):
            facula.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
        net = DDP(network(5), **options)
        doubled = [p for p in trained(net, mine, accumulate=True)]
        first = [None] * size
        dist.all_gather_object(first, [p.tolist() for p in doubled])
        assert all(f == first[0] for f in first)


def unused_parameters(rank):
    class Branches(facula.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.never = (facula.nn.Linear(2, 2) for _ in range(3))

        def forward(self, x, left):
            return self.left(x) if left else self.right(x)

    DDP = facula.nn.parallel.DistributedDataParallel
    net = DDP(Branches(), find_unused_parameters=True)
    x = facula.ones(1, 2)
    net(x, rank == 0).sum().backward()
    # Rank 0 alone uses `left`: the mean has its gradient divided by the number of ranks.
    size = dist.get_world_size()
    assert facula.equal(net.module.left.weight.grad, facula.ones(2, 2) / size)
    assert facula.equal(net.module.right.weight.grad, facula.ones(2, 2) * (size - 1) / size)
    assert net.module.never.weight.grad is None
    net = DDP(Branches())
    net(x, True).sum().backward()
    with pytest.raises(RuntimeError, match="did not receive grad for rank .*right.weight, right.bias, never"):
        net(x, True)


def uneven_inputs(rank):
    DDP = facula.nn.parallel.DistributedDataParallel
    for divide in (True, False):
        net = DDP(facula.nn.Linear(1, 1, bias=False))
        with facula.no_grad():
            net.module.weight.fill_(1.0)
        with net.join(divide_by_initial_world_size=divide):
            for _ in range(2 + rank):
                net.zero_grad()
                (net(facula.ones(1, 1)) * (rank + 1)).sum().backward()
        assert net._get_ddp_logging_data()["join_uneven_inputs"] == (1 if rank else 0)
        if rank == 1:  # only this rank had a third input
            assert net.module.weight.grad.item() == (1.0 if divide else 2.0)


def disagreeing_models(rank):
    with pytest.raises(
        RuntimeError, match="same model across all ranks, but Rank 0 has 2 params, while rank 1"
    ):
        facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(2, 2, bias=rank == 0))
    with pytest.raises(RuntimeError, match="in process 1 with sizes"):
        facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(2, 2 + rank))


def data_parallel(rank):
    for part in (train_in_parallel, unused_parameters, uneven_inputs, disagreeing_models):
        part(rank)


def test_data_parallel_training_equals_one_process():
    results(2, data_parallel)
