"""Programs: functions of tensors that are traced once and then run as a whole.

In eager every operator is a program of its own. :func:`trace` runs a function once on tensors without
data, notes its calls as a graph, and gives a :class:`Program`, whose calls are fused with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _C
from .utils._pytree import tree_leaves, tree_map

__all__ = ["Program", "trace"]

Tensor = _C.Tensor


class Program:
    """A traced function: called with tensors like those it was traced with, it gives what the function gives,
    with gradients, and writes what the function writes (inputs, captured tensors, buffers of modules).

    Made by :func:`trace`. ``print(program)`` shows its graph.
    """

    def __init__(self, native: Any, example: Any, results: Any, trace: _Trace) -> None:
        self._native = native
        self._assumed = trace.assumed
        self._checks = [(kind, text) for _, kind, text in trace.checks]  # of the last results
        self._example = example  # (args, kwargs), with None for tensors
        self._results = results  # a tree; leaves: number of the result, or what the function gave
        args, kwargs = example
        plain = not kwargs and all(x is None for x in args)
        self._plain = len(args) if plain else -1  # that many arguments, all of them tensors

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for what, read, value in self._assumed:
            if not _equal(now := read(), value):
                raise ValueError(
                    f"the program was traced when {what} was {value!r}, and it is {now!r} now: numbers are "
                    "part of a program\n"
                    "  hint: give it as a tensor of one element, which is read at each call, or trace again"
                )
        plain = len(args) == self._plain and not kwargs and all(isinstance(x, Tensor) for x in args)
        found = self._native.run(args if plain else self._tensors(args, kwargs))
        if self._checks:
            for valid, (kind, text) in zip(found[-len(self._checks) :], self._checks):
                if not bool(valid):
                    raise kind(text)
        results = self._results
        if isinstance(results, _Result):
            return found[results.number]
        if type(results) is tuple and all(isinstance(x, _Result) for x in results):
            return tuple([found[x.number] for x in results])
        return tree_map(lambda x: found[x.number] if isinstance(x, _Result) else x, results)

    def _tensors(self, args: tuple, kwargs: dict) -> list[Tensor]:
        given, traced = tree_leaves((args, kwargs)), tree_leaves(self._example)
        same = len(given) == len(traced) and all(
            isinstance(g, Tensor) if t is None else not isinstance(g, Tensor) and _equal(g, t)
            for g, t in zip(given, traced)
        )
        if not same:
            raise ValueError(
                "what is no tensor is part of a program: it was traced with "
                f"{_shown(self._example)}, and is called with {_shown(_without_tensors((args, kwargs)))}"
            )
        return [g for g, t in zip(given, traced) if t is None]

    @property
    def captured(self) -> tuple[Tensor, ...]:
        """Tensors that the function read besides its arguments: parameters, buffers, constants."""
        return self._native.captured()

    def steps(self) -> list[str]:
        """What runs when no gradient is asked for: a line for each kernel, with the operators that are fused
        in it, each call of a library, and each view."""
        return self._native.steps()

    def __repr__(self) -> str:
        return self._native.text()


class _Result:
    def __init__(self, number: int) -> None:
        self.number = number


def _without_tensors(tree: Any) -> Any:
    return tree_map(lambda x: None if isinstance(x, Tensor) else x, tree)


def _shown(example: Any) -> str:
    args, kwargs = tree_map(lambda x: "Tensor" if x is None else repr(x), example)
    return "(" + ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]) + ")"


class _Trace:
    """What a function that is being traced leaves to its program besides calls."""

    def __init__(self) -> None:
        self.assumed: list[tuple] = []  # (what, how it is read, its value)
        self.checks: list[tuple] = []  # (tensor of one bool, kind of exception, its text)


_traces: list[_Trace] = []  # the innermost last


def assume(what: str, read: Callable[[], Any]) -> None:
    """While a function is traced: its program raises if ``read()`` gives something else when it is called."""
    _traces[-1].assumed.append((what, read, read()))


def require(valid: Tensor, kind: type[Exception], text: str) -> None:
    """Raises unless ``valid``, a tensor of one bool; while a function is traced, its program does so at the
    end of each call.
    """
    if _C.is_tracing():
        _traces[-1].checks.append((valid, kind, text))
    elif not bool(valid):
        raise kind(text)


def _equal(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def trace(f: Callable, *args: Any, dynamic: bool = False, **kwargs: Any) -> Program:
    """Runs ``f(*args, **kwargs)`` once on tensors without data and gives what it does as a :class:`Program`.

    Tensors among the arguments, also inside of tuples, lists and dicts, are the program's inputs. All else
    is fixed: numbers, flags, the branches that Python took, modules and their training mode. Tensors that
    ``f`` reads besides (parameters, buffers) are read anew at each call, and gradients reach them. Sizes of
    inputs are fixed, or with ``dynamic=True`` may change where they were not 0 or 1 and ``f`` did not rely
    on them (``x.shape`` gives numbers, which are fixed then; operators rely on nothing).

    ``f`` may be a whole step of training: ``zero_grad()``, ``backward()``, ``autograd.grad()`` and the steps
    of optimizers are part of the program then, which fills ``.grad`` as ``f`` does, and its results have no
    history. Options of optimizers are numbers, which are fixed, but a learning rate that is a tensor is read
    at each call. States are made when ``f`` is traced, if they are not there.

    Raises RuntimeError or NotImplementedError for what a graph cannot hold: calls that look at elements
    (``item()``, ``nonzero``), functions with a gradient of their own (``autograd.Function``), hooks.

    >>> def f(x, y):
    ...     return (x * y).sum()
    >>> p = facula.program.trace(f, facula.ones(3), facula.ones(3))
    >>> p(facula.tensor([1., 2., 3.]), facula.tensor([1., 1., 2.]))
    tensor(9.)
    """
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    tree: Any = None

    def run(inputs: tuple) -> list:
        nonlocal tree
        it = iter(inputs)
        a, k = tree_map(lambda x: next(it) if isinstance(x, Tensor) else x, (args, kwargs))
        results: list[Tensor] = []

        def numbered(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            results.append(x)
            return _Result(len(results) - 1)

        tree = tree_map(numbered, f(*a, **k))
        return results + [valid for valid, _, _ in left.checks]

    name = getattr(f, "__name__", type(f).__name__).strip("<>")
    left = _Trace()
    _traces.append(left)
    try:
        native = _C.trace(run, tensors, name if name.isidentifier() else "program", dynamic)
    finally:
        _traces.pop()
    return Program(native, _without_tensors((args, kwargs)), tree, left)
