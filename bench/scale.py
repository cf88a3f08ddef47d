"""Measures how long large programs take to trace, differentiate, fuse and plan, without code generation.

    PYTHONPATH=build/python python bench/scale.py [nodes ...]

A chain of matrix products, element-wise operators and means with its gradient; processor time. There are
few kernels, the same in each program, and they are compiled before the measurement.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time


def step_of(calls):
    import facula

    def step(x, w):
        y = x
        for _ in range(calls // 8):
            y = facula.tanh(y @ w + 1) * y.sin().relu()
            y = y - y.mean(1, keepdim=True)
        return facula.autograd.grad(y.sum(), [x, w])

    return step


def measure(nodes):
    from facula.program import trace

    import facula

    x, w = (facula.randn(8, 8).requires_grad_() for _ in range(2))
    started = time.process_time()
    program = trace(step_of(nodes * 3 // 8), x, w)
    traced = time.process_time()
    program(x, w)
    planned = time.process_time()
    steps = len(program.steps())
    again = time.process_time()
    for _ in range(3):
        program(x, w)
    call = (time.process_time() - again) / 3
    lines = sum(" = " in line for line in str(program).splitlines())
    return lines, steps, traced - started, planned - traced, call


def main():
    with tempfile.TemporaryDirectory() as kernels:
        os.environ["FACULA_CACHE_DIR"] = kernels
        sizes = [int(n) for n in sys.argv[1:]] or [2000, 20000]
        measure(200)
        totals = []
        for n in sizes:
            nodes, steps, trace, plan, call = measure(n)
            totals.append((trace + plan) / nodes)
            print(
                f"{nodes} nodes, {steps} steps: trace and gradient {trace:.3f} s, passes and plan "
                f"{plan:.3f} s, {totals[-1] * 1e6:.1f} us a node; a call {call * 1e3:.2f} ms"
            )
        print(f"a node of the largest takes {totals[-1] / totals[0]:.2f} times what one of the smallest does")


if __name__ == "__main__":
    main()
