"""The log: FACULA_LOG and set_logs."""

import os
import re
import subprocess
import sys

import pytest

import facula
from facula import _logging


def logged(program: str, log: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import facula\n" + program],
        env=dict(os.environ, FACULA_LOG=log, **environment),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_help_lists_every_area_and_the_program_runs_on():
    text = logged("print(1)", "help")
    assert all(f"\n{name} " in text for name in ("ops", "kernels", "cache", "layouts", "passes", "llvm"))


def test_an_unknown_area_is_named_with_the_known_ones_and_the_program_runs_on():
    text = logged("import sys; print('went on', file=sys.stderr)", "opps")
    assert "'opps'" in text and "went on" in text
    assert all(name in text for name in _logging.areas())


def test_ops_shows_each_call_with_shapes_and_dtypes():
    lines = logged("a = facula.zeros(2, 3); b = a + 1.5", "ops").splitlines()
    (line,) = [x for x in lines if "add" in x]
    assert line.startswith("facula ops: ") and "float32[2, 3]" in line


def test_a_kernel_is_missed_stored_and_then_found_in_the_cache(tmp_path):
    none = tmp_path / "none"
    none.mkdir(mode=0o700)
    folders = {"FACULA_CACHE_DIR": str(tmp_path / "cache"), "FACULA_SHIPPED_CACHE": str(none)}
    program = "facula.ones(2, 3).sinh()"
    first = logged(program, "cache,kernels", **folders)
    assert "facula cache: miss" in first and f"facula cache: stored {tmp_path}/cache/" in first
    assert "compiled in" in first and "is arranged as" in first
    second = logged(program, "cache", **folders)
    assert f"facula cache: hit {tmp_path}/cache/" in second and "cache: miss" not in second


def test_a_leading_minus_leaves_an_area_out():
    assert "facula ops" not in logged("facula.ones(2) + 1", "all,-ops")


def test_set_logs_changes_what_is_logged(capfd):
    a = facula.ones(4)
    try:
        facula.set_logs(ops=True)
        a + a
        assert "facula ops: " in capfd.readouterr().err
        facula.set_logs(cache=True)
        a + a
        assert "facula ops" not in capfd.readouterr().err
    finally:
        facula.set_logs()


def test_set_logs_refuses_an_unknown_area():
    with pytest.raises(ValueError, match="no area 'opps'.*\n.*ops, kernels"):
        facula.set_logs(opps=True)


def test_other_sizes_take_the_kernels_that_are_there(tmp_path):
    program = """
import sys, facula.nn.functional as F
for n in (4, 5, 6):
    x = facula.randn(n, 8, 7, 7).requires_grad_()
    F.batch_norm(x, facula.zeros(8), facula.ones(8), training=True).sum().backward()
    y = facula.randn(3, n * 10).requires_grad_()
    (F.layer_norm(y, (n * 10,)).sum() + y.var(0).sum() + y.std(1).sum() + F.mse_loss(y, y * 2)).backward()
    sys.stderr.write("batch\\n")  # at once: lines of other threads may come between
"""
    first, *rest, _ = logged(
        program, "kernels", FACULA_CACHE_DIR=str(tmp_path), FACULA_SHIPPED_CACHE=str(tmp_path)
    ).split("batch\n")
    assert " compiled in " in first
    assert len(rest) == 2 and not any(" compiled in " in x for x in rest)


def test_passes_shows_the_time_of_each_pass_in_order(tmp_path):
    program = "x = facula.randn(3, 7, requires_grad=True); facula.nn.functional.layer_norm(x, (7,)).sum()"
    lines = logged(program, "passes", FACULA_CACHE_DIR=str(tmp_path), FACULA_SHIPPED_CACHE=str(tmp_path))
    passes = re.findall(r"^facula passes: layer_norm: ([a-z ]+) took \d+ us$", lines, re.M)
    ordered = ["trace", "differentiate", "partition", "merge equal", "rematerialize", "fuse", "analyse"]
    assert list(dict.fromkeys(passes)) == ordered
    assert re.search(r"^facula passes: \w*rsqrt\w*: schedule took \d+ us$", lines, re.M)
    assert re.search(r"^facula passes: \w*rsqrt\w*: kernel took \d+ us$", lines, re.M)
