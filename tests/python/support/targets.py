"""Programs by another target than LLVM, and whether two agree."""

import os
import subprocess
import sys

import facula as F


def run_by(target, *command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | {"FACULA_TARGET": target} | environment,
        capture_output=True,
        text=True,
    )


def numbers(t):
    t = t.to_dense() if t.is_sparse else t.contiguous()
    return (F.view_as_real(t) if t.is_complex() else t).double()


def compared(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensors in wanted.items():
        assert len(found[name]) == len(tensors), name
        pairs = [(numbers(a), numbers(b)) for a, b in zip(found[name], tensors)]
        largest = max([1.0] + [b.abs().nan_to_num(0, 0, 0).max().item() for _, b in pairs if b.numel()])
        for k, ((a, b), got, want) in enumerate(zip(pairs, found[name], tensors)):
            assert got.dtype == want.dtype and got.shape == want.shape, f"{name}, tensor {k}"
            exact = not (want.is_floating_point() or want.is_complex())
            rounding = 4e-3 if want.dtype in (F.float16, F.bfloat16) else 1e-6
            same = F.equal(a, b) if exact else F.allclose(a, b, rounding, rounding * largest, equal_nan=True)
            assert same, f"{name}, tensor {k}: {got} for {want}"
