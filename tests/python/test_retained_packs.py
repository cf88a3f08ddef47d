"""Packed weights that are retained between calls: never older than the weight, and of the same bits."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading

import facula.nn.functional as F
import numpy as np
import pytest

import facula
from facula import _C as C

ROWS, TERMS, COLUMNS = 24, 40, 48


@pytest.fixture(autouse=True, params=["generated", "tiles"])
def products(request):
    C.set_setting("products", request.param)
    yield request.param
    C.set_setting("products", "")
    facula.set_grad_enabled(True)


def normal(*sizes):
    facula.manual_seed(sum(sizes))
    return facula.randn(*sizes)


def without_packs(run):
    C.set_setting("retained_packs", 0)
    try:
        return run()
    finally:
        C.set_setting("retained_packs", 1024)


def used_by(run):
    """Returns how often a pack was used again by a call."""
    before = C.derived_counts()["used"]
    run()
    return C.derived_counts()["used"] - before


def same_bits(a, b):
    return np.array_equal(a.detach().numpy().view("i4"), b.detach().numpy().view("i4"))


def fresh_product(x, w):
    """The product with a copy of the weight, of which nothing is retained."""
    return without_packs(lambda: F.linear(x, w.detach().clone()))


def retain(x, w):
    """Multiplies until the packed weight is retained and used."""
    for _ in range(2):
        F.linear(x, w)
    assert used_by(lambda: F.linear(x, w)) == 1


def test_a_weight_is_packed_once_for_repeated_products():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    results = [F.linear(x, w) for _ in range(4)]
    assert used_by(lambda: F.linear(x, w)) == 1
    for y in results:
        assert same_bits(y, fresh_product(x, w))
    np.testing.assert_allclose(results[-1].numpy(), x.numpy() @ w.numpy().T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [17, 64, 300])
def test_results_have_the_same_bits_for_any_number_of_rows(rows):
    x, w, b = normal(rows, 530), normal(70, 530), normal(70)
    for _ in range(3):
        y = F.linear(x, w, b)
    assert same_bits(y, without_packs(lambda: F.linear(x, w, b)))
    assert same_bits(F.linear(x[:20], w, b), without_packs(lambda: F.linear(x[:20], w, b)))


def test_small_numbers_elsewhere_do_not_change_the_bits():
    # Sums of the first K block are of a size that parts hold only if no number of the block is subnormal.
    x = (facula.rand(ROWS, 1100) + 1) * 1e-14
    w = (facula.rand(COLUMNS, 1100) + 1) * 1e-15 * (facula.rand(COLUMNS, 1100) - 0.5).sign()
    w[:, 600:] = 1e-40
    for _ in range(3):
        y = F.linear(x, w)
    assert same_bits(y, fresh_product(x, w))


WRITES = {
    "in place": lambda w: w.add_(1),
    "data": lambda w: w.data.add_(1),
    "detached": lambda w: w.detach().mul_(2),
    "a row of a view": lambda w: w.t()[3].zero_(),
    "an element": lambda w: w.__setitem__((0, 0), 5.0),
    "copy_": lambda w: w.copy_(normal(COLUMNS, TERMS) * 3),
    "out": lambda w: facula.add(w, 1, out=w),
    "a product into it": lambda w: facula.mm(normal(COLUMNS, 8), normal(8, TERMS), out=w),
    "index_put_": lambda w: w.index_put_((facula.tensor([1]),), facula.tensor(7.0)),
    "random": lambda w: w.uniform_(),
    "foreach": lambda w: facula._foreach_add_([w, w.detach()[:2]], 1.0),
    "set_": lambda w: w.set_(normal(COLUMNS, TERMS) + 2),
    "set data": lambda w: setattr(w, "data", normal(COLUMNS, TERMS) - 1),
    "numpy": lambda w: w.numpy().__setitem__((1, 2), 9.0),
    "dlpack": lambda w: facula.from_dlpack(w.__dlpack__()).fill_(2.0),
    "bytes": lambda w: w.untyped_storage().copy_((normal(COLUMNS, TERMS) * 2).untyped_storage()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_written_weight_is_packed_anew(write):
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    before = F.linear(x, w)
    write(w)
    for _ in range(3):
        assert same_bits(F.linear(x, w), fresh_product(x, w))
    assert not same_bits(before, F.linear(x, w))


def test_memory_that_numpy_shares_is_never_retained():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    array = w.numpy()
    for k in range(4):
        array[0, 0] = k
        assert same_bits(F.linear(x, w), fresh_product(x, w))
    w = facula.from_numpy(np.ones((COLUMNS, TERMS), "f"))
    assert used_by(lambda: [F.linear(x, w) for _ in range(4)]) == 0


def test_a_program_that_writes_a_weight_between_products_reads_what_it_wrote():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)

    def step(x, w):
        first = F.linear(x, w) + F.linear(x * 2, w)
        w.mul_(0.5)
        return first, F.linear(x, w) - F.linear(x * 2, w)

    compiled = facula.compile(step)
    for _ in range(4):
        v = w.clone()
        want = without_packs(lambda v=v: step(x, v))
        for y, z in zip(compiled(x, w), want, strict=True):
            np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=1e-4, atol=1e-4)
        assert same_bits(w, v)


def train(retained_packs, compiled, optimizer):
    C.set_setting("retained_packs", retained_packs)
    facula.manual_seed(3)
    model = facula.nn.Sequential(facula.nn.Linear(40, 64), facula.nn.GELU(), facula.nn.Linear(64, 48))
    opt = optimizer(model.parameters())
    x, y = normal(ROWS, 40), normal(ROWS, 48)

    def step():
        for _ in range(2):  # gradients of two batches add up
            F.mse_loss(model(x), y).backward()
        opt.step()
        opt.zero_grad()
        with facula.no_grad():
            return [model(x) for _ in range(3)][-1]

    run = facula.compile(step) if compiled else step
    return [run() for _ in range(4)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_training_has_the_same_bits_with_packs(name, compiled):
    make = lambda p: getattr(facula.optim, name)(p, lr=0.01)  # noqa: E731
    try:
        want = train(0, compiled, make)
        got = train(1024, compiled, make)
    finally:
        C.set_setting("retained_packs", 1024)
    for y, z in zip(got, want, strict=True):
        assert same_bits(y, z)


def test_training_retains_no_packs():
    facula.manual_seed(0)
    layer = facula.nn.Linear(TERMS, COLUMNS)
    opt = facula.optim.SGD(layer.parameters(), lr=0.1)
    before = C.derived_counts()["retained"]
    for _ in range(4):
        for _ in range(2):
            x = normal(ROWS, TERMS).requires_grad_()
            layer(x).square().sum().backward()
        opt.step()
    assert C.derived_counts()["retained"] == before


def test_packs_go_with_their_weight():
    gc.collect()
    start = C.derived_counts()["bytes"]
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    assert C.derived_counts()["bytes"] >= start + 4 * TERMS * COLUMNS
    del w
    gc.collect()
    assert C.derived_counts()["bytes"] == start


def test_a_weight_in_memory_of_an_earlier_one_is_packed_anew():
    x = normal(ROWS, TERMS)
    for k in range(12):
        w = normal(COLUMNS, TERMS) + k
        for _ in range(3):
            y = F.linear(x, w)
        assert same_bits(y, fresh_product(x, w))
        del w


def test_views_of_one_memory_have_their_own_packs():
    x, both = normal(ROWS, TERMS), normal(2 * COLUMNS, TERMS)
    for _ in range(3):
        for w in (both[:COLUMNS], both[COLUMNS:], both[1 : COLUMNS + 1]):
            assert same_bits(F.linear(x, w), fresh_product(x, w))


def test_copies_have_no_packs_of_the_original():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    for other in (w.clone(), copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        other.add_(1)
        assert same_bits(F.linear(x, other), fresh_product(x, other))
        assert same_bits(F.linear(x, w), fresh_product(x, w))


def test_a_resized_weight_is_packed_anew():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    storage, held = w.untyped_storage(), w.clone()
    storage.resize_(0)
    storage.resize_(4 * TERMS * COLUMNS)
    w.copy_(held + 1)
    assert same_bits(F.linear(x, w), fresh_product(x, held + 1))


def test_emptying_the_caches_releases_packs():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    retain(x, w)
    C.empty_cache() if hasattr(C, "empty_cache") else facula.cpu.empty_cache()
    assert C.derived_counts()["bytes"] == 0
    assert same_bits(F.linear(x, w), fresh_product(x, w))


def test_threads_that_write_and_multiply_leave_no_old_pack():
    x, w = normal(ROWS, TERMS), normal(COLUMNS, TERMS)
    stop = threading.Event()

    def multiply():
        while not stop.is_set():
            F.linear(x, w)

    readers = [threading.Thread(target=multiply) for _ in range(2)]
    for t in readers:
        t.start()
    for k in range(300):
        w.fill_(float(k))
        y = F.linear(x, w)
        np.testing.assert_allclose(y.numpy()[:, 0], k * x.numpy().sum(1), rtol=1e-5, atol=2e-4 * k)
    stop.set()
    for t in readers:
        t.join()


def test_a_forked_child_has_packs_of_its_own():
    code = """
import os, facula, facula.nn.functional as F
from facula import _C as C
C.set_setting("products", "generated")
x, w = facula.randn(24, 40), facula.randn(48, 40)
for _ in range(3): F.linear(x, w)
pid = os.fork()
w.add_(1 + (pid == 0))
for _ in range(3): y = F.linear(x, w)
C.set_setting("retained_packs", 0)
ok = bool((y == F.linear(x, w.clone())).all())
if pid == 0: os._exit(0 if ok else 1)
assert ok and os.waitpid(pid, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=dict(os.environ))


IMAGES = [(3, 1, 32, 32), (1, 0, 32, 48), (3, 2, 16, 32)]


@pytest.mark.parametrize("kernel, padding, channels, results", IMAGES, ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_convolutions_retain_reordered_weights(kernel, padding, channels, results, last):
    x, w = normal(2, channels, 30, 30), normal(results, channels, kernel, kernel)
    if last:
        x, w = (t.to(memory_format=facula.channels_last) for t in (x, w))
    run = lambda: F.conv2d(x, w, padding=padding)  # noqa: E731
    for _ in range(3):
        y = run()
    assert same_bits(y.contiguous(), without_packs(run).contiguous())
    w.mul_(0.5)
    for _ in range(3):
        assert same_bits(run().contiguous(), without_packs(run).contiguous())
    assert not same_bits(run().contiguous(), y.contiguous())


def test_convolutions_train_with_the_same_bits():
    def steps(retained_packs):
        C.set_setting("retained_packs", retained_packs)
        facula.manual_seed(1)
        model = facula.nn.Sequential(
            facula.nn.Conv2d(32, 32, 3, padding=1), facula.nn.ReLU(), facula.nn.Conv2d(32, 32, 3, padding=1)
        )
        opt = facula.optim.AdamW(model.parameters(), lr=0.01)
        x, seen = normal(1, 32, 30, 30), []
        for _ in range(3):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
            with facula.no_grad():
                seen += [model(x).contiguous() for _ in range(3)]
        return seen

    try:
        want, got = steps(0), steps(1024)
    finally:
        C.set_setting("retained_packs", 1024)
    for y, z in zip(got, want, strict=True):
        assert same_bits(y, z)


def test_packed_weights_of_8_bits_follow_writes_to_data():
    x = facula.randint(0, 255, (20, 64)).to(facula.uint8)
    w = facula.randint(-128, 127, (64, 32)).to(facula.int8)
    for _ in range(3):
        facula._int_mm(x.to(facula.int8), w)
    w.data.fill_(1)
    y = facula._int_mm(x.to(facula.int8), w)
    np.testing.assert_array_equal(y.numpy(), x.to(facula.int8).numpy().astype("i4") @ np.ones((64, 32), "i4"))
