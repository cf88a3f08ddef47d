"""How threads wait for work is settled before the OpenMP library is loaded, and leaves no trace."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import facula


def imported(**environment):
    inherited = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return subprocess.run(
        [sys.executable, "-c", "import facula, os; print(sorted(k for k in os.environ if 'SPIN' in k))"],
        env=inherited | {"OMP_DISPLAY_ENV": "verbose"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_threads_that_wait_soon_sleep_and_other_programs_are_not_told():
    run = imported()
    assert re.search(r"GOMP_SPINCOUNT = '\d{4}'", run.stderr)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    "chosen, spins", [({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")]
)
def test_who_chose_otherwise_is_obeyed(chosen, spins):
    run = imported(**chosen)
    assert re.search(rf"GOMP_SPINCOUNT = '{spins}'", run.stderr)
    assert run.stdout == ("['GOMP_SPINCOUNT']\n" if "GOMP_SPINCOUNT" in chosen else "[]\n")


def test_a_factorization_starts_no_threads_of_a_library_and_the_process_may_run_where_it_could():
    program = """if True:
        import os, facula
        facula.set_num_threads(1)
        before = os.sched_getaffinity(0)
        assert facula.linalg.inv(facula.eye(40)).trace() == 40  # a small one needs no library
        assert any("openblas" in line for line in open("/proc/self/maps"))
        assert os.sched_getaffinity(0) == before
        print(len(os.listdir("/proc/self/task")))
    """
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


@pytest.mark.parametrize("first", [True, False])
def test_a_library_that_keeps_memory_in_each_thread_finds_room_beside_facula(tmp_path, first):
    """The loader has some 1600 bytes for all libraries with such memory that a process loads later."""
    source = (
        '__attribute__((tls_model("initial-exec"))) __thread char room[384]; char* get(void) { return room; }'
    )
    (tmp_path / "other.c").write_text(source)
    other = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "other.c", "-o", other], check=True)
    steps = ["import ctypes; ctypes.CDLL(sys.argv[1])", "import facula; facula.ones(2).exp()"]
    program = "\n".join(["import sys", *(steps if first else steps[::-1])])
    run = subprocess.run([sys.executable, "-c", program, other], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("sizes", [(33, 64, 64), (130, 100, 300), (390, 40, 100), (64, 30, 1100)])
def test_products_of_matrices_have_the_same_bits_for_any_number_of_threads(dtype, sizes):
    m, k, n = sizes
    a = facula.randn(m, k, dtype=getattr(facula, dtype))
    b = facula.randn(n, k, dtype=getattr(facula, dtype))
    before, found = facula.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            facula.set_num_threads(threads)
            found.append((a @ b.t(), facula.nn.functional.linear(a, b, b[:, 0]), a.t() @ (a @ b.t())))
    finally:
        facula.set_num_threads(before)
    for other in found[1:]:
        assert all(map(facula.equal, found[0], other))
    want = a.numpy().astype("complex128") @ b.numpy().astype("complex128").T
    rounding = 2e-14 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found[0][0].numpy(), want, rtol=0, atol=rounding * k)


@pytest.mark.parametrize("sizes", [(16, 1400, 800), (300, 90, 1000), (1100, 40, 770), (40, 300, 3072)])
def test_products_with_long_rows_on_the_right_are_right_and_the_same_for_any_number_of_threads(sizes):
    m, k, n = sizes
    a, wide, bias = facula.randn(k, m).t(), facula.randn(k, n + 5), facula.randn(n)
    calls = {
        "mm": lambda a, b, y: a @ b,
        "rows": lambda a, b, y: a.contiguous() @ b,
        "bias": lambda a, b, y: facula.addmm(bias, a, b),
        "scaled": lambda a, b, y: facula.addmm(y, a, b, beta=0.5, alpha=-2),
        "batch": lambda a, b, y: facula.stack([a, 2 * a]) @ facula.stack([b, -b]),
    }
    given = facula.randn(m, n)
    before, found = facula.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            facula.set_num_threads(threads)
            for b in (wide[:, :n], wide[:, :n].contiguous()):
                found.append([f(a, b, given) for f in calls.values()])
                unread = facula.full((m, n), float("nan"))  # beta of 0 does not read what is there
                found[-1].append(unread.addmm_(a, b, beta=0))
    finally:
        facula.set_num_threads(before)
    for other in found[2::2]:
        assert all(map(facula.equal, found[0], other))
    for other in found[3::2]:
        assert all(map(facula.equal, found[1], other))
    x, y = a.numpy().astype("float64"), wide[:, :n].numpy().astype("float64")
    want = [x @ y, x @ y, x @ y + bias.numpy(), 0.5 * given.numpy() - 2 * (x @ y)]
    want += [np.stack([x @ y, -2 * (x @ y)]), x @ y]
    for results in found[:2]:
        for result, exact in zip(results, want, strict=True):
            np.testing.assert_allclose(result.numpy(), exact, rtol=0, atol=1e-6 * k)
