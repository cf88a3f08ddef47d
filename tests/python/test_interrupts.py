"""Ctrl-C ends a long operation soon, and what is not its result stays as it was."""

import os
import signal
import subprocess
import sys
import time

import pytest

import facula as F


def hear_control_c():
    """In a child that is to hear it: who runs the tests in the background may ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def interrupt():
    """interrupt(f) runs f, sends the signal after 0.1 s, and tells how many seconds later f ended with it."""

    def handler(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

    def run(f):
        before = signal.signal(signal.SIGALRM, handler)
        start = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                f()
            return time.monotonic() - start - 0.1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return run


@pytest.mark.parametrize("threads", [1, 2])
def test_a_long_operator_ends_between_pieces_of_its_kernel(interrupt, threads):
    before = F.get_num_threads()
    F.set_num_threads(threads)
    try:
        assert interrupt(lambda: F.randn(150_000_000)) < 1.0  # takes seconds
    finally:
        F.set_num_threads(before)
    assert (F.ones(1000) + 1).sum().item() == 2000


def test_a_backward_ends_between_nodes(interrupt):
    x = F.ones(100, requires_grad=True)

    def deep(n):
        y = x
        for _ in range(n):
            y = y.sin()
        return y.sum()

    y = deep(100_000)
    assert interrupt(y.backward) < 1.0
    assert x.grad is None
    del y
    deep(10).backward()
    assert x.grad is not None and F.isfinite(x.grad).all()


def test_a_handler_may_use_tensors_while_an_operator_runs():
    seen = []

    def handler(*_):
        seen.append((F.arange(5) * 2).sum().item())

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        x = F.randn(20_000_000, generator=F.Generator().manual_seed(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [20]
    assert F.equal(x, F.randn(20_000_000, generator=F.Generator().manual_seed(3)))


def test_an_interrupted_save_leaves_the_file_that_was_there(interrupt, tmp_path):
    path = tmp_path / "a.pt"
    F.save({"x": F.ones(3)}, path)

    class Slow:
        def __reduce__(self):
            time.sleep(5)
            return (int, ())

    assert interrupt(lambda: F.save({"y": F.zeros(3), "slow": Slow()}, path)) < 1.0
    assert F.equal(F.load(path)["x"], F.ones(3))
    assert os.listdir(tmp_path) == ["a.pt"]


COMPILES = """
import sys, facula as F
x, target = F.arange(32.0).reshape(4, 8), F.arange(4)
print("ready", file=sys.stderr, flush=True)
try:
    F.nn.functional.cross_entropy(x, target)
except KeyboardInterrupt:
    print("interrupted")
for _ in range(2):
    print(round(F.nn.functional.cross_entropy(x, target).item(), 4))
"""


def test_control_c_while_a_kernel_is_compiled_arrives_and_leaves_a_cache_that_works(tmp_path):
    env = dict(
        os.environ, FACULA_CACHE_DIR=str(tmp_path), FACULA_SHIPPED_CACHE="/nowhere", FACULA_LOG="cache"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", COMPILES],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_control_c,
    )
    try:
        while program.stderr.readline() != "ready\n":
            pass
        assert program.stderr.readline().startswith("facula cache: miss ")  # now it compiles
        program.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, err = program.communicate(timeout=30)
        assert time.monotonic() - start < 10.0
    finally:
        program.kill()
    assert program.returncode == 0, err
    assert out.splitlines() == ["interrupted"] + ["5.9583"] * 2
    assert {path.suffix for path in tmp_path.iterdir()} <= {".o", ".plan", ".graph", ".sequence"}
    again = subprocess.run([sys.executable, "-c", COMPILES], env=env, capture_output=True, text=True)
    assert again.stdout.splitlines() == ["5.9583"] * 2
    assert "miss" not in again.stderr and "hit" in again.stderr


EPOCH = """
import multiprocessing, sys, time
import facula as F
from facula.utils.data import DataLoader

class Set:
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(30.0 if i > 4 else 0.0)
        return F.ones(10)

try:
    for k, batch in enumerate(DataLoader(Set(), num_workers=2)):
        print(k, flush=True)
except KeyboardInterrupt:
    print("interrupted", len(multiprocessing.active_children()))
"""


@pytest.mark.parametrize(
    "whom", [os.kill, os.killpg], ids=["only the program hears it", "the terminal tells all"]
)
def test_an_epoch_with_workers_ends_and_leaves_no_process(whom):
    program = subprocess.Popen(
        [sys.executable, "-c", EPOCH],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_control_c,
    )
    try:
        assert program.stdout.readline() == "0\n"
        time.sleep(0.2)
        start = time.monotonic()
        whom(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=20)
        assert time.monotonic() - start < 3.0
        assert out.splitlines()[-1] == "interrupted 0"
        assert err == ""
        with pytest.raises(ProcessLookupError):  # the whole group is gone
            os.killpg(program.pid, 0)
    finally:
        program.kill()
