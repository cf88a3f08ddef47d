"""Collectives as operators: their results, their gradients, and programs that hold them in order."""

from __future__ import annotations

import os

import pytest
from support.ranks import results

import facula
from facula import distributed as dist


def values(rank):
    from facula.distributed import _functional_collectives as collectives

    size, world = dist.get_world_size(), dist.group.WORLD
    own = facula.arange(4.0).reshape(2, 2) + 10 * rank
    everyone = [facula.arange(4.0).reshape(2, 2) + 10 * r for r in range(size)]
    total = sum(everyone[1:], everyone[0])
    for group in (world, world.group_name, list(range(size)), dist.init_device_mesh("cpu", (size,))):
        assert facula.equal(collectives.all_reduce(own, "sum", group), total)
    assert facula.equal(collectives.all_reduce(own, "avg", world), total / size)
    assert facula.equal(collectives.broadcast(own, 1, world), everyone[1])
    for dim in (0, 1):
        assert facula.equal(collectives.all_gather_tensor(own, dim, world), facula.cat(everyone, dim))
        part = total.chunk(size, dim)[rank]
        assert facula.equal(collectives.reduce_scatter_tensor(own, "sum", dim, world), part)
    received = facula.cat([e.chunk(size)[rank] for e in everyone])
    assert facula.equal(collectives.all_to_all_single(own, None, None, world), received)
    assert facula.equal(collectives.permute_tensor(own, [1, 0], world), everyone[1 - rank])
    operators = facula.ops._c10d_functional
    pair = operators.all_reduce_coalesced([own, own + 1], "max", world.group_name)
    assert facula.equal(operators.wait_tensor(pair[1]), everyone[-1] + 1)
    assert facula.equal(operators.all_reduce_(x := own.clone(), "sum", world.group_name), total)
    assert facula.equal(x, total)
    with pytest.raises(RuntimeError, match="unknown reduction 'mean'"):
        collectives.all_reduce(own, "mean", world)
    with pytest.raises(ValueError, match="Group 'nowhere' is not registered"):
        collectives.all_reduce(own, "sum", "nowhere")


def test_functional_collectives_return_new_tensors():
    results(2, values)


def gradients(rank):
    """Each gradient against that of the sum of all ranks' losses, computed by one process."""
    from facula.distributed import _functional_collectives as collectives

    size, world = dist.get_world_size(), dist.group.WORLD

    def inputs():
        return [facula.arange(4.0).mul(r + 1).requires_grad_() for r in range(size)]

    def whole(f):
        """The gradient of this rank's input of the total loss. ``f`` maps all inputs to all results."""
        xs = inputs()
        loss = sum((y * (facula.arange(float(y.numel())) + r + 1)).sum() for r, y in enumerate(f(xs)))
        return facula.autograd.grad(loss, xs[rank], allow_unused=True)[0]

    def part(f):
        x = inputs()[rank]
        y = f(x)
        (y * (facula.arange(float(y.numel())) + rank + 1)).sum().backward()
        return x.grad

    cases = [
        (lambda x: collectives.all_reduce(x, "sum", world), lambda xs: [sum(xs)] * size),
        (lambda x: collectives.all_reduce(x, "avg", world), lambda xs: [sum(xs) / size] * size),
        (lambda x: collectives.broadcast(x, 1, world), lambda xs: [xs[1]] * size),
        (lambda x: collectives.all_gather_tensor_autograd(x, 0, world), lambda xs: [facula.cat(xs)] * size),
        (
            lambda x: collectives.reduce_scatter_tensor_autograd(x, "sum", 0, world),
            lambda xs: list(sum(xs).chunk(size)),
        ),
        (
            lambda x: collectives.reduce_scatter_tensor_autograd(x, "avg", 0, world),
            lambda xs: list((sum(xs) / size).chunk(size)),
        ),
        (
            lambda x: collectives.all_to_all_single_autograd(
                x, [1, 1] if rank == 0 else [3, 3], [1, 3], world
            ),
            lambda xs: [facula.cat([x[:1] for x in xs]), facula.cat([x[1:] for x in xs])],
        ),
    ]
    for k, (own, all_ranks) in enumerate(cases):
        expected = whole(all_ranks)
        got = part(own)
        assert facula.equal(got, facula.zeros(4) if expected is None else expected), k
    x = facula.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="gradient is defined for the reductions sum and avg"):
        collectives.all_reduce(x, "max", world).sum().backward()
    dist.barrier()


def test_gradients_are_those_of_the_sum_of_all_losses():
    results(2, gradients)


def compiled(rank, seed):
    from facula.distributed import _functional_collectives as collectives

    world = dist.group.WORLD
    facula.manual_seed(seed + rank)

    def step(x, w):
        y = collectives.all_reduce((x @ w).relu(), "sum", world)
        collectives.broadcast(y, 0, world)  # its result is not used, but the other ranks take part
        z = collectives.all_gather_tensor(y * 2, 0, world)
        return collectives.reduce_scatter_tensor(z, "avg", 0, world).sum(1)

    x, w = facula.randn(4, 6), facula.randn(6, 4).requires_grad_()
    expected = step(x, w)
    (wanted,) = facula.autograd.grad(expected.square().sum(), w)
    program = facula.compile(step, fullgraph=True)
    for _ in range(3):
        before = world._get_sequence_number_for_group()
        y = program(x, w)
        assert world._get_sequence_number_for_group() == before + 4
        facula.testing.assert_close(y, expected)
        (grad,) = facula.autograd.grad(y.square().sum(), w)
        facula.testing.assert_close(grad, wanted)


def test_programs_hold_collectives_and_their_order():
    results(2, compiled, int.from_bytes(os.urandom(3), "big"))


def in_place(x, other, rank, size):
    """Each collective that writes its arguments, in the middle of a computation."""
    y = x * 2
    dist.all_reduce(y)
    dist.broadcast(other[1:], 1)  # a view
    work = dist.all_reduce(other, dist.ReduceOp.MAX, async_op=True)
    work.wait()
    many = facula.empty(size * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(many, y + rank)
    parts = [facula.empty_like(x) for _ in range(size)]
    dist.all_gather(parts, x)
    mean = facula.empty_like(x)
    dist.reduce_scatter_tensor(mean, many, dist.ReduceOp.AVG)
    total = facula.empty_like(x)
    dist.reduce_scatter(total, [p + rank for p in parts])
    exchanged = facula.empty(2 * size, 3)
    dist.all_to_all_single(exchanged, (many[: 2 * size] + rank).contiguous())
    return y, many.relu(), mean, total + parts[-1], exchanged


def programs_in_place(rank, seed):
    from facula.program import trace

    size = dist.get_world_size()
    facula.manual_seed(seed + rank)
    x = facula.randn(4, 3)
    given = facula.randn(5)
    changed = given.clone()
    wanted = in_place(x, changed, rank, size)
    f = lambda x, other: in_place(x, other, rank, size)  # noqa: E731
    for make in (lambda: facula.compile(f, fullgraph=True), lambda: trace(f, x, given)):
        program = make()
        for _ in range(2):
            other = given.clone()
            before = dist.group.WORLD._get_sequence_number_for_group()
            for got, expected in zip(program(x, other), wanted):
                assert facula.equal(got, expected)
            assert facula.equal(other, changed)
            assert dist.group.WORLD._get_sequence_number_for_group() == before + 8
    dist.barrier()


def test_programs_hold_collectives_that_write_their_arguments():
    results(2, programs_in_place, int.from_bytes(os.urandom(3), "big"))


def compiled_data_parallel(rank, seed, how):
    facula.manual_seed(seed)
    make = lambda: facula.nn.Sequential(  # noqa: E731
        facula.nn.Linear(6, 16), facula.nn.Tanh(), facula.nn.Linear(16, 3)
    ).double()
    alone, net = make(), make()
    net.load_state_dict(alone.state_dict())
    DDP = facula.nn.parallel.DistributedDataParallel
    parallel = facula.compile(DDP(net)) if how == "outside" else DDP(facula.compile(net))
    data = facula.randn(4, 8, 6, dtype=facula.float64)
    mine = slice(4 * rank, 4 * rank + 4)
    for model, rows in ((alone, slice(None)), (parallel, mine)):
        optimizer = facula.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x in data:
            optimizer.zero_grad()
            model(x[rows]).square().mean().backward()
            optimizer.step()
    for got, expected in zip(net.parameters(), alone.parameters()):
        facula.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("how", ["outside", "inside"])
def test_data_parallel_training_of_programs_equals_one_process(how):
    results(2, compiled_data_parallel, int.from_bytes(os.urandom(3), "big"), how)


def collectives_in_place(rank):
    """The collectives of ``torch.distributed`` inside of a compiled function."""

    def step(x):
        y = x * 2
        dist.all_reduce(y)
        rows = facula.empty(2 * y.shape[0])
        dist.all_gather_into_tensor(rows, y + rank)
        return rows + 1

    program = facula.compile(step)
    for _ in range(2):
        x = facula.arange(3.0) + rank
        facula.testing.assert_close(program(x), step(x))


def test_compiled_functions_may_call_collectives_in_place():
    results(2, collectives_in_place)
