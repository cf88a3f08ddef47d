"""Kernels printed as CUDA C, under an emulation of the GPU: the same operators as by LLVM.

An ordinary run takes every 64th operator and the special functions, FACULA_ALL_CUDA=1 all of them (half
an hour of one core). The nests of codegen_nest_test.cpp all run so too.
"""

import os
from pathlib import Path

import pytest
from support.targets import compared, run_by

import facula as F

HERE = Path(__file__).resolve().parent
EMULATION = HERE.parents[0] / "cuda/emulation.h"
PARTS = 64
CHOSEN = range(PARTS) if os.environ.get("FACULA_ALL_CUDA") else [0, "special"]


def on_a_grid(*command, **environment):
    return run_by("cuda", *command, **{"FACULA_CUDA_EMULATION": str(EMULATION)} | environment)


@pytest.mark.parametrize("part", CHOSEN)
def test_operators_and_their_gradients_are_what_llvm_makes_of_them(part, tmp_path):
    by = {}
    for target in ("cuda", "llvm"):
        file = tmp_path / target
        made = on_a_grid(HERE / "support/by_target.py", part, PARTS, file, FACULA_TARGET=target)
        assert made.returncode == 0, made.stderr
        by[target] = F.load(file)
    assert len(by["cuda"]) > 8
    compared(by["cuda"], by["llvm"])


def test_errors_of_kernels_are_raised():
    failed = on_a_grid("-c", "import facula as F; F.ones(3)[F.tensor([1, -4])]")
    assert "IndexError: index: index -4 is out of bounds for dimension with size 3" in failed.stderr


def test_the_text_is_logged():
    program = "import facula as F; F.ones(3, 4).sum(1)"
    text = on_a_grid("-c", program, FACULA_LOG="kernels").stderr
    for part in ("/* sum */", "__global__ void __launch_bounds__(256)", "+= 256) {", "__syncthreads();"):
        assert part in text, text


def test_there_is_no_gpu_yet():
    without = run_by("cuda", "-c", "import facula as F; F.ones(3) + 1").stderr
    assert (
        "FACULA_TARGET=cuda has no GPU to run kernels on\n  hint: FACULA_CUDA_EMULATION names a header"
        in without
    )
