"""Groups of several processes: collectives against sums and copies that NumPy computes, faults, launchers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from facula.distributed._groups import _get_default_store
from facula.distributed._presence import Presence
from support.ranks import SOON, TIMEOUT, outcomes, results

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


# ---- encryption


def certificates(folder):
    """Writes an authority, a certificate that it signed, and one of another authority."""
    names = {}
    for name in ("ours", "other"):
        ca, key, request, certificate = (
            folder / f"{name}.{suffix}" for suffix in ("ca", "key", "csr", "crt")
        )
        authority = folder / f"{name}.ca.key"
        new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj"]
        for command in (
            [*new, f"/CN=authority {name}", "-x509", "-days", "2", "-keyout", authority, "-out", ca],
            [*new, f"/CN=rank {name}", "-keyout", key, "-out", request],
            ["openssl", "x509", "-req", "-in", request, "-CA", ca, "-CAkey", authority, "-CAcreateserial"]
            + ["-days", "2", "-out", certificate],
        ):
            subprocess.run(command, check=True, capture_output=True)
        prefix = "GLOO_DEVICE_TRANSPORT_TCP_TLS_"
        names[name] = {
            "GLOO_DEVICE_TRANSPORT": "TCP_TLS",
            "FACULA_DISTRIBUTED_TRANSPORT": "tcp",
            f"{prefix}PKEY": str(key),
            f"{prefix}CERT": str(certificate),
            f"{prefix}CA_FILE": str(ca),
        }
    return names


def test_collectives_over_encrypted_connections(tmp_path):
    results(3, some, environment=certificates(tmp_path)["ours"])


def join_with_another_certificate(rank, store, environments):
    os.environ |= environments["ours" if rank == 0 else "other"]
    limit = timedelta(seconds=3)
    with pytest.raises(RuntimeError, match="TLS handshake failed|did not come within"):
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit)


def test_a_rank_with_a_certificate_of_another_authority_is_refused(tmp_path):
    environments = certificates(tmp_path)
    results(2, join_with_another_certificate, str(tmp_path / "store"), environments, init=False)


def join_without_a_key(rank):
    with pytest.raises(ValueError, match="TCP_TLS needs the files GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY"):
        dist.init_process_group(
            "gloo", rank=rank, world_size=2, init_method=f"file:///tmp/{os.getppid()}.tls"
        )


def test_the_files_of_encryption_are_asked_for():
    environment = {"GLOO_DEVICE_TRANSPORT": "TCP_TLS", "FACULA_DISTRIBUTED_TRANSPORT": "tcp"}
    try:
        results(2, join_without_a_key, init=False, environment=environment)
    finally:
        Path(f"/tmp/{os.getpid()}.tls").unlink()


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


def normalise_in_parts(rank, seed):
    """SyncBatchNorm of a part of a batch, with another size on each rank: results, gradients, statistics."""
    generator = facula.Generator().manual_seed(seed)
    batch = facula.randn(7, 3, 5, generator=generator, dtype=facula.float64)
    wanted = facula.randn(7, 3, 5, generator=generator, dtype=facula.float64)
    rows = slice(0, 3) if rank == 0 else slice(3, 7)
    norm = facula.nn.SyncBatchNorm(3, dtype=facula.float64)
    x = batch[rows].clone().requires_grad_()
    y = norm(x)
    (y * wanted[rows]).sum().backward()
    for p in norm.parameters():
        dist.all_reduce(p.grad)
    reference = facula.nn.BatchNorm1d(3, dtype=facula.float64)
    whole = batch.clone().requires_grad_()
    expected = reference(whole)
    (expected * wanted).sum().backward()
    pairs = [(y, expected[rows]), (x.grad, whole.grad[rows]), (norm.running_mean, reference.running_mean)]
    pairs += [(norm.running_var, reference.running_var)]
    pairs += [(p.grad, q.grad) for p, q in zip(norm.parameters(), reference.parameters())]
    for value, right in pairs:
        np.testing.assert_allclose(value.detach().numpy(), right.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_batch_norm_of_two_ranks_equals_that_of_the_whole_batch():
    results(2, normalise_in_parts, int.from_bytes(os.urandom(3), "big"))


def use_a_mesh(rank):
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert mesh.get_coordinate() == (rank // 2, rank % 2)
    assert mesh.get_local_rank("tp") == rank % 2 and mesh["dp"].get_local_rank() == rank // 2
    for name, ranks in (("dp", [rank % 2, rank % 2 + 2]), ("tp", [rank // 2 * 2, rank // 2 * 2 + 1])):
        x = facula.tensor([float(rank)])
        dist.all_reduce(x, group=mesh.get_group(name))
        assert x.item() == sum(ranks)
        assert mesh[name].mesh.tolist() == ranks
        x = facula.tensor([float(rank)])
        dist.all_reduce(x, group=mesh[name].get_group())
        assert x.item() == sum(ranks)
    assert mesh._flatten().get_local_rank() == rank


def test_a_mesh_has_a_group_for_each_of_its_lines():
    results(4, use_a_mesh)


def test_data_parallel_training_equals_one_process():
    results(2, data_parallel)


# ---- communication hooks


def trained_with(hook, state, steps=40):
    facula.manual_seed(3)
    net = facula.nn.parallel.DistributedDataParallel(
        facula.nn.Sequential(facula.nn.Linear(16, 32), facula.nn.Tanh(), facula.nn.Linear(32, 4))
    )
    if hook is not None:
        net.register_comm_hook(state, hook)
    facula.manual_seed(dist.get_rank())
    x = facula.randn(64, 16)
    y = facula.sin(x[:, :4] * 2)
    opt = facula.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(steps):
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
    return [p.detach() for p in net.parameters()], loss.item()


def communication_hooks(rank):
    from facula.distributed.algorithms.ddp_comm_hooks import (
        default_hooks,
        post_localSGD_hook,
        powerSGD_hook,
        quantization_hooks,
    )

    plain, loss = trained_with(None, None)

    def custom(state, bucket):
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda f: f.value()[0] / dist.get_world_size())

    exact = [(default_hooks.allreduce_hook, None), (custom, None)]
    exact.append(
        (post_localSGD_hook.post_localSGD_hook, post_localSGD_hook.PostLocalSGDState(None, None, 100))
    )
    for hook, state in exact:
        for got, expected in zip(trained_with(hook, state)[0], plain):
            facula.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    power = {"start_powerSGD_iter": 2, "min_compression_rate": 0.5}
    rough = [
        (default_hooks.fp16_compress_hook, None),
        (default_hooks.bf16_compress_hook, None),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None),
        (quantization_hooks.quantization_pertensor_hook, None),
        (quantization_hooks.quantization_perchannel_hook, None),
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, 4, **power)),
        (powerSGD_hook.batched_powerSGD_hook, powerSGD_hook.PowerSGDState(None, 4, **power)),
    ]
    for hook, state in rough:
        weights, final = trained_with(hook, state)
        assert final < loss * 1.1, (hook.__name__, final, loss)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, [w.tolist() for w in weights])
        assert everyone[0] == everyone[1], hook.__name__
    state = powerSGD_hook.PowerSGDState(None, 1, **power)
    trained_with(powerSGD_hook.powerSGD_hook, state, steps=4)
    assert state.compression_stats()[0] > 4


def test_communication_hooks_train_like_all_reduce():
    results(2, communication_hooks)


# ---- faults


def disagree(rank, case):
    if case == "operation":
        call = (
            (lambda: dist.all_reduce(facula.ones(2))) if rank else (lambda: dist.broadcast(facula.ones(2), 0))
        )
    elif case == "shape":
        call = lambda: dist.all_reduce(facula.ones(2 + rank % 2))  # noqa: E731
    elif case == "dtype":
        call = lambda: dist.all_reduce(facula.ones(2, dtype=facula.float64 if rank else facula.float32))  # noqa: E731
    elif case == "root":
        call = lambda: dist.broadcast(facula.ones(2), rank % 2)  # noqa: E731
    elif case == "reduction":
        call = lambda: dist.all_reduce(facula.ones(2), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)  # noqa: E731
    elif case == "broadcast":  # the root has nothing to receive
        call = lambda: dist.broadcast(facula.ones(2 + rank), 0)  # noqa: E731
    elif case == "gather":  # the other ranks have nothing to receive
        into = [facula.empty(3), facula.empty(3)] if rank else None
        call = lambda: dist.gather(facula.ones(2 + rank), into, 1)  # noqa: E731
    elif case == "order":
        calls = [lambda: dist.all_reduce(facula.ones(2)), lambda: dist.reduce(facula.ones(2), 0)]
        call = calls[rank]
    elif case == "inputs":  # rank 1 has one batch more
        net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(1, 1))

        def call():
            for _ in range(2 + rank):
                net(facula.ones(1, 1)).sum().backward()
            dist.broadcast(facula.ones(1), 0)

    else:
        call = lambda: dist.all_to_all_single(facula.ones(6), facula.ones(6), [1 + rank, 5 - rank], [3, 3])  # noqa: E731
    began = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        call()
    return time.monotonic() - began, str(error.value)


CASES = ["operation", "shape", "dtype", "root", "reduction", "split", "broadcast", "gather", "order"]
CASES += ["inputs"]


@pytest.mark.parametrize("transport", ["", "tcp"])
@pytest.mark.parametrize("case", CASES)
def test_ranks_that_disagree_are_both_named_on_all_ranks(case, transport):
    for seconds, text in results(2, disagree, case, environment={"FACULA_DISTRIBUTED_TRANSPORT": transport}):
        assert seconds < SOON, text
        assert "rank 0" in text and "rank 1" in text, text


def go_on_without_the_others(rank):
    """The root returns although the others are late, and learns of a disagreement in its next operation."""
    store = _get_default_store()
    if rank:
        store.get("returned")
    else:
        dist.broadcast(facula.ones(2), 0)
        store.set("returned", "1")
    with pytest.raises(RuntimeError) as error:
        dist.broadcast(facula.ones(3), 0)
    for r in range(2):
        assert f"rank {r} calls broadcast(float32[{2 + r}], root 0)" in str(error.value)


def test_the_root_of_a_broadcast_does_not_wait_until_the_others_have_come():
    results(2, go_on_without_the_others)


def die_or_wait(rank, victim):
    dist.all_reduce(facula.ones(3))
    dist.barrier()
    x = facula.ones(1_000_000)
    if rank == victim:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        time.sleep(60)
    began = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        while True:
            dist.all_reduce(x)
    return time.monotonic() - began, str(error.value)


@pytest.mark.parametrize("transport", ["", "tcp"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_all_others(victim, transport):
    environment = {"FACULA_DISTRIBUTED_TRANSPORT": transport}
    answers = outcomes(3, die_or_wait, victim, environment=environment)
    assert answers.pop(victim) == ("ended", -signal.SIGKILL)
    for kind, *answer in answers:
        assert kind == "result", answer
        seconds, text = answer[0]
        assert seconds < SOON and f"rank {victim} (pid" in text and "died" in text, text


def give_up(rank):
    """Rank 1 ends while others send to it: their connections to it break before they have read why."""
    if rank == 1:
        dist.barrier()
        dist.group.WORLD._native.abort("rank 1 gives up")
        os._exit(0)
    x = facula.ones(1_000_000)
    with pytest.raises(RuntimeError) as error:
        dist.barrier()
        while True:
            dist.all_reduce(x)
    return str(error.value)


@pytest.mark.parametrize("transport", ["", "tcp"])
def test_a_rank_that_gives_up_tells_the_others_why(transport):
    for _ in range(2):
        answers = outcomes(3, give_up, environment={"FACULA_DISTRIBUTED_TRANSPORT": transport})
        assert answers.pop(1) == ("ended", 0)
        assert all(a[0] == "result" and "rank 1 gives up" in a[1] for a in answers), answers


def die_in_init(rank, victim, port):
    limit = timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", port, None, False, limit)
    if rank == victim:
        gather = Presence.gather
        Presence.gather = lambda self, keys, check=None: (
            os.kill(os.getpid(), signal.SIGKILL) if "address/0" in keys else gather(self, keys, check)
        )
    with pytest.raises(RuntimeError, match=f"rank {victim} died .*before group 0 was connected"):
        dist.init_process_group("gloo", store=store, rank=rank, world_size=3, timeout=limit)
    return time.monotonic()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_dies_before_the_group_is_connected_is_named(victim):
    """The victim dies after it has published its address, and before it says whom it reaches."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    began = time.monotonic()
    answers = outcomes(3, die_in_init, victim, server.port, init=False)
    assert answers.pop(victim) == ("ended", -signal.SIGKILL)
    for kind, *answer in answers:
        assert kind == "result" and answer[0] - began < SOON, answer


def pause_in_init(rank, port, pause):
    """Rank 1 stops, or computes for long, while the group is connected; rank 0 lets it go on."""
    limit = timedelta(seconds=60)
    store = dist.TCPStore("127.0.0.1", port, None, False, limit)
    if rank == 1:
        gather = Presence.gather

        def stay(self, keys, check=None):
            if "address/0" in keys:
                store.set("stopped", str(os.getpid()))
                pause()
            return gather(self, keys, check)

        Presence.gather = stay
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
        dist.barrier()
        return ""
    except RuntimeError as error:
        if rank == 0:
            os.kill(int(store.get("stopped")), signal.SIGCONT)
        return str(error)


def stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def compute_for_long():
    end = time.monotonic() + 4
    while time.monotonic() < end:
        sum(range(10_000_000))  # holds the interpreter's lock


def test_a_rank_that_is_stopped_before_the_group_is_connected_is_named():
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    text, _ = results(2, pause_in_init, server.port, stop_itself, init=False)
    assert "rank 1 is stopped by a signal before group 0 was connected" in text, text


def test_a_rank_that_is_slow_before_the_group_is_connected_is_not_taken_for_dead():
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    assert results(2, pause_in_init, server.port, compute_for_long, init=False) == ["", ""]


STOP_FOR_LONGER = """
import os, signal, sys, threading, time
from datetime import timedelta
import facula, facula.distributed as dist
rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
if rank == 0:
    pid = int(store.get("pid"))
    threading.Timer(2.5, os.kill, (pid, signal.SIGCONT)).start()
else:
    store._apply("_hold", "gone/here")
    store.set("pid", str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
dist.barrier()
assert not store.check(["gone/here"])
dist.barrier()
dist.destroy_process_group()
"""


def test_a_longer_silence_is_allowed_by_the_switch_of_pytorch(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {**os.environ, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "10"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", STOP_FOR_LONGER, str(r), str(port)], env=environment)
        for r in range(2)
    ]
    assert [p.wait(60) for p in ranks] == [0, 0]


def late(rank):
    store = _get_default_store()
    if rank == 1:
        store.get("raised")
        return ""
    with pytest.raises(RuntimeError) as error:
        dist.barrier(timeout=timedelta(milliseconds=300))
    store.set("raised", "1")
    return str(error.value)


def test_a_collective_raises_at_its_deadline():
    assert "Timed out waiting 300ms for barrier" in results(2, late)[0]


def stop_one(rank, errors):
    """Rank 1 stops itself. Rank 0 waits for it in a collective, and lets it go on when it has named it."""
    store = _get_default_store()
    if rank == 1:
        store.set("pid", str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        dist.barrier()
        return
    pid = int(store.get("pid"))
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)

    def continue_it():
        end = time.monotonic() + SOON
        while "stopped by a signal" not in errors.read_text() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)

    threading.Thread(target=continue_it).start()
    dist.barrier()


def test_a_stopped_rank_is_named(tmp_path):
    errors = tmp_path / "errors"
    results(2, stop_one, errors)
    assert re.search(r"rank 1 \(pid \d+\) of group 0: stopped by a signal", errors.read_text())


def be_slow(rank):
    dist.all_reduce(facula.ones(2))
    end = time.monotonic() + 4
    while rank == 1 and time.monotonic() < end:
        sum(range(10_000_000))  # holds the interpreter's lock
    dist.barrier()


@pytest.mark.parametrize("transport", ["", "tcp"])
def test_a_slow_rank_is_not_taken_for_dead(transport, capfd):
    patient = {"FACULA_DISTRIBUTED_WATCHDOG_SECONDS": str(TIMEOUT)}
    results(2, be_slow, environment={"FACULA_DISTRIBUTED_TRANSPORT": transport, **patient})
    assert "rank" not in capfd.readouterr().err


def watched(rank):
    dist.all_reduce(facula.ones(2))
    if rank == 1:
        time.sleep(2.5)
    dist.barrier()
    if rank == 0:
        group = dist.group.WORLD
        records = json.loads(group._native.records())
        mine = [(r["operation"], r["state"]) for r in records if r["rank"] == 1]
        assert mine == [("all_reduce", "completed"), ("barrier", "completed")] or mine[-1][1] == "started", (
            mine
        )
        assert "test_distributed.py:" in records[0]["site"]


def test_the_flight_recorder_names_operations_and_lines():
    results(2, watched, environment={"FACULA_DISTRIBUTED_WATCHDOG_SECONDS": "1"})


def lonely(rank):
    return dist.get_rank()


def test_ranks_are_claimed_once(tmp_path):
    program = """
import sys, facula.distributed as dist
from datetime import timedelta
rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = dist.FileStore(path, 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=5))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}

    def start(*arguments):
        command = [sys.executable, "-c", program, *map(str, arguments), tmp_path / "store"]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    twice = [start(0, 2), start(0, 2)]
    errors = [p.communicate()[1] for p in twice]
    assert sum("another process is rank 0 already" in e for e in errors) == 1, errors
    other = start(1, 3).communicate()[1]
    assert "was told of 3 processes, another one of 2" in other


# ---- the launcher

PROGRAM = """
import os, sys, facula, facula.distributed as dist
dist.init_process_group("gloo")
x = facula.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
line = f"{dist.get_rank()} {os.environ['LOCAL_RANK']} {dist.get_world_size()} {x.item()} {attempt}\\n"
os.write(1, line.encode())  # at once: the processes share the pipe
if attempt == 0 and dist.get_rank() == 1:
    os._exit(9)
dist.barrier()
dist.destroy_process_group()
"""


def launch(tmp_path, *options, module="run"):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", f"facula.distributed.{module}", *options, str(tmp_path / "program.py")]
    environment = {**os.environ, "PYTHONPATH": str(Path(facula.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_the_launcher_starts_all_processes_again_after_a_failure(tmp_path):
    done = launch(tmp_path, "--standalone", "--nproc-per-node=2", "--max-restarts=1")
    assert done.returncode == 0, done.stderr
    lines = set(done.stdout.splitlines())
    assert {"0 0 2 3.0 1", "1 1 2 3.0 1"} <= lines, done.stdout
    logs = tmp_path / "logs"
    done = launch(tmp_path, "--standalone", "--nproc-per-node=2", "--redirects=3", f"--log-dir={logs}")
    assert done.returncode == 1 and "exitcode  : 9" in done.stderr and not done.stdout
    (log,) = logs.glob("*/attempt_0/1/stdout.log")
    assert log.read_text() == "1 1 2 3.0 0\n"


def test_nodes_meet_over_a_store(tmp_path):
    """Two agents on one host stand for two nodes."""
    (tmp_path / "free").write_text("")
    with __import__("socket").create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}"]
    options += ["--rdzv-id=job", "--max-restarts=1"]
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(launch(tmp_path, *options))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [a.returncode for a in answers] == [0, 0], answers
    text = "".join(a.stdout for a in answers)
    assert "0 0 2 3.0 1" in text and "1 0 2 3.0 1" in text


# ---- optimizers in parts, status


def optimizer_in_parts(rank):
    from facula.distributed.optim import ZeroRedundancyOptimizer

    facula.manual_seed(0)
    nets = [
        facula.nn.Sequential(facula.nn.Linear(8, 16), facula.nn.Tanh(), facula.nn.Linear(16, 4))
        for _ in range(2)
    ]
    nets[1].load_state_dict(nets[0].state_dict())
    whole = facula.optim.Adam(nets[0].parameters(), lr=0.01)
    parts = ZeroRedundancyOptimizer(nets[1].parameters(), facula.optim.Adam, lr=0.01)
    x = facula.randn(32, 8)
    for k in range(5):
        for net, optimizer in zip(nets, (whole, parts)):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (k + 1)  # as a scheduler does
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()
    for a, b in zip(nets[0].parameters(), nets[1].parameters()):
        assert facula.equal(a, b)
    elements = sum(s["exp_avg"].numel() for s in parts.optim.state.values())
    parts.consolidate_state_dict(to=0)
    if rank == 0:
        mine, theirs = parts.state_dict(), whole.state_dict()
        assert mine["state"].keys() == theirs["state"].keys()
        for k, state in theirs["state"].items():
            assert facula.equal(mine["state"][k]["exp_avg"], state["exp_avg"])
        box = [mine]
    else:
        with pytest.raises(RuntimeError, match="has not been consolidated on this rank"):
            parts.state_dict()
        box = [None]
    dist.broadcast_object_list(box, 0)
    parts.load_state_dict(box[0])
    return elements


def test_an_optimizer_in_parts_equals_the_whole_one_with_a_share_of_the_state():
    shares = results(2, optimizer_in_parts)
    total = 8 * 16 + 16 + 16 * 4 + 4
    assert sum(shares) == total and max(shares) <= 0.75 * total


def state_of_a_deep_network(rank):
    from facula.distributed.optim import ZeroRedundancyOptimizer

    net = facula.nn.Sequential(*(facula.nn.Linear(24 + 8 * k, 32 + 8 * k) for k in range(12)))
    optimizer = ZeroRedundancyOptimizer(net.parameters(), facula.optim.Adam, lr=0.01)
    for p in net.parameters():
        p.grad = facula.ones_like(p)
    optimizer.step()
    total = 2 * sum(p.numel() for p in net.parameters())
    return sum(t.numel() for s in optimizer.optim.state.values() for t in s.values() if t.dim()) / total


@pytest.mark.parametrize("size", [2, 4])
def test_the_state_of_an_optimizer_in_parts_is_an_even_share(size):
    assert max(results(size, state_of_a_deep_network)) <= 1 / size + 0.05


def look_at_the_others(rank):
    from facula.distributed import status

    dist.all_reduce(facula.ones(2))
    for name in os.listdir("/proc/self/fd"):  # as another reader in this process does
        with contextlib.suppress(OSError):
            if "memfd:facula-group" in os.readlink(f"/proc/self/fd/{name}"):
                os.open(f"/proc/self/fd/{name}", os.O_RDONLY)
    objects = [None] * 2
    dist.all_gather_object(objects, os.getpid())
    rows = status.table(objects)
    dist.barrier()
    return [(r["rank"], r["size"], r["state"]) for r in rows]


def test_the_ranks_of_a_running_job_are_shown():
    for rows in results(2, look_at_the_others):
        assert rows == [(0, 2, "alive"), (1, 2, "alive")]


# ---- names that packages use


def end_an_accumulation(rank):
    """As accelerate does: the last backward of a no_sync block reduces what has been accumulated."""
    net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(1, 1, bias=False))
    with net.no_sync():
        for _ in range(2):
            net(facula.ones(1, 1) * (rank + 1)).sum().backward()
        assert net.module.weight.grad.item() == 2 * (rank + 1)
        y = net(facula.ones(1, 1) * (rank + 1)).sum()
        net.require_backward_grad_sync = True
        net.reducer.prepare_for_backward([])
        y.backward()
    assert net.module.weight.grad.item() == (3 + 6) / 2


def test_an_accumulation_of_gradients_can_be_ended_early():
    results(2, end_an_accumulation)
