"""Kernels printed as C99: the same operators by LLVM and by way of the machine's C compiler."""

from pathlib import Path

import pytest
from support.targets import compared, run_by

import facula as F

HERE = Path(__file__).resolve().parent
PARTS = 8


def run(*command, **environment):
    return run_by("c99", *command, **environment)


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_and_their_gradients_are_what_llvm_makes_of_them(part, tmp_path):
    """Whole numbers alike; others up to the order of sums and elementary functions' last places."""
    by = {}
    for target in ("c99", "llvm"):  # in processes of their own, where no other test has defined operators
        file = tmp_path / target
        made = run(HERE / "support/by_target.py", part, PARTS, file, FACULA_TARGET=target)
        assert made.returncode == 0, made.stderr
        by[target] = F.load(file)
    assert len(by["c99"]) > 80
    compared(by["c99"], by["llvm"])


def test_random_numbers_are_the_same():
    program = "import facula as F; F.manual_seed(3); print(F.rand(9).tolist(), F.randperm(9).tolist())"
    by_c = run("-c", program)
    F.manual_seed(3)
    assert by_c.stdout == f"{F.rand(9).tolist()} {F.randperm(9).tolist()}\n", by_c.stderr


def test_errors_of_kernels_are_raised():
    by_c = run("-c", "import facula as F; F.ones(3)[F.tensor([1, -4])]")
    assert "IndexError: index: index -4 is out of bounds for dimension with size 3" in by_c.stderr
    by_c = run("-c", "import facula as F; F.ones(3).int() // F.zeros(3).int()")
    assert "ZeroDivisionError" in by_c.stderr


def test_an_index_of_no_elements_is_not_looked_at(tmp_path):
    """It has no memory: what is read there, and whether it fits, is chance."""
    program = "import facula as F; F.index_fill(F.ones(3), 0, F.tensor([], dtype=F.int64), 1)"
    made = run("-c", program, FACULA_LOG="kernels", FACULA_CACHE_DIR=str(tmp_path))
    nest = made.stderr.split('nest "index_fill"')[1].split("\n}")[0]
    assert "check(" in nest and nest.index("for ") < nest.index("check("), nest


def test_people_can_read_it():
    """Padding is read where there is something to read, and places in memory are plain arithmetic."""
    program = "import facula as F; F.nn.functional.pad(F.ones(3, 4), (1, 1))"
    text = run("-c", program, FACULA_LOG="kernels").stderr
    text = text[text.index("/* constant_pad_nd */") :]
    wanted = """
      for (int64_t i2 = 0; i2 < params[6]; ++i2) {
        const int64_t t2 = i2 + -1;
        float t3;
        if ((uint8_t)((t2 >= 0) & (t2 < params[7]))) {
          t3 = b0[i2 + v3];
        }
        else {
          t3 = (float)(b1[0]);
        }
        b2[i2 + v4] = t3;
      }
"""
    assert wanted in text, text


def test_what_is_missing_is_named(tmp_path):
    program = "import facula as F; F.ones(3) + 1"
    wrong = run("-c", program, FACULA_TARGET="c98").stderr
    assert 'FACULA_TARGET is "c98"\n  hint: it may be llvm, c99 or cuda' in wrong
    without = run("-c", program, PATH=str(tmp_path)).stderr
    assert "FACULA_TARGET=c99 needs a C compiler named cc" in without
