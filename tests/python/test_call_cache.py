"""A call that was made before finds its kernels again: only where everything that they depend on is the
same.
"""

import os
import subprocess
import sys
import tempfile
import threading

import pytest

import facula
from facula.nn import functional as F


@pytest.mark.parametrize("shape", [(0,), (3,)])
def test_out_of_another_size_is_resized_every_time(shape):
    a = facula.arange(64.0).reshape(8, 8)
    for _ in range(3):
        out = facula.empty(shape)
        assert facula.add(a, a, out=out) is out
        assert out.tolist() == (a * 2).tolist()


def test_default_dtype_is_part_of_the_call():
    a = facula.tensor([1, 2])
    try:
        for dtype in (facula.float32, facula.float64, facula.float32):
            facula.set_default_dtype(dtype)
            assert (a / 2).dtype == dtype
            assert facula.exp(a).dtype == dtype
    finally:
        facula.set_default_dtype(facula.float32)


def test_numbers_are_given_anew():
    a = facula.ones(2)
    assert [(a * k).tolist() for k in (1.0, 2.0, 3.0)] == [[1, 1], [2, 2], [3, 3]]
    assert (a.int() * 2).dtype == facula.int32
    assert (a.int() * 2.5).tolist() == [2.5, 2.5]


@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_any_number_of_results(n):
    a = facula.arange(float(2 * n)).reshape(n, 2).requires_grad_()
    parts = a.unbind(0)
    assert [p.tolist() for p in parts] == [[2.0 * k, 2.0 * k + 1] for k in range(n)]
    sum((k + 1) * p.sum() for k, p in enumerate(parts)).backward()
    assert a.grad.tolist() == [[k + 1.0] * 2 for k in range(n)]


def test_sizes_beyond_those_that_are_kept():
    for n in range(2, 600):
        a = facula.ones(n)
        assert (a + a).sum().item() == 2 * n


def test_threads_call_alike():
    wrong = []

    def work(k):
        a = facula.full((8, 8), float(k), requires_grad=True)
        for _ in range(200):
            a.grad = None
            facula.relu(a * 2 + 1).sum().backward()
            if a.grad.tolist() != [[2.0] * 8] * 8:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_of_inference_mode_say_so():
    a = facula.ones(2, requires_grad=True)
    with facula.inference_mode():
        b = a * 2
    assert b.is_inference() and not b.requires_grad
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        a * b


def kernels_found() -> int:
    stats = facula._C.cache_stats()
    return sum(stats[k] for k in ("shipped_hits", "disk_hits", "compiled"))


def test_places_that_are_picked_share_their_kernels():
    x = facula.randn(3, 24, 5, dtype=facula.float64, requires_grad=True)
    before = kernels_found()
    for at in range(24):
        x.grad = None
        x.select(1, at).sum().backward()
        expected = facula.zeros(3, 24, 5, dtype=facula.float64)
        expected[:, at] = 1
        assert (x.grad == expected).all()
    for start in range(20):
        x.grad = None
        x[:, start : start + 3].sum().backward()
        expected = facula.zeros(3, 24, 5, dtype=facula.float64)
        expected[:, start : start + 3] = 1
        assert (x.grad == expected).all()
    for count in range(2, 40):
        row = facula.ones(2, count, requires_grad=True)
        row.mean(1).backward(facula.ones(2))
        assert (row.grad == facula.ones(2, count) / count).all()
    assert kernels_found() - before < 48  # of 82 places


def test_a_process_may_end_while_kernels_are_made():
    program = (
        "import facula as torch\n"
        "x = torch.randn(8, 16, requires_grad=True)\n"
        "torch.nn.functional.layer_norm(x, (16,))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(
            os.environ, FACULA_CACHE_DIR=folder, FACULA_SHIPPED_CACHE=folder, OMP_NUM_THREADS="2"
        )
        for _ in range(3):
            subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_another_eps_or_momentum_needs_no_other_kernel():
    x, image = facula.randn(8, 8, requires_grad=True), facula.randn(2, 4, 6, 6, requires_grad=True)

    def kernels_after(eps):
        mean, var = facula.zeros(4), facula.ones(4)
        for y in (
            F.layer_norm(x, (8,), eps=eps),
            F.group_norm(image, 2, eps=eps),
            F.instance_norm(image, eps=eps),
            F.batch_norm(image, mean, var, training=True, momentum=10 * eps, eps=eps),
            F.batch_norm(image, mean, var, eps=eps),
            F.dropout(x, eps),
        ):
            y.backward(facula.ones_like(y))
        found = facula._C.cache_stats()
        return found["compiled"] + found["disk_hits"] + found["shipped_hits"]

    assert kernels_after(1e-5) == kernels_after(1e-3)
