"""Programs: functions of tensors that are traced once and then run as one.

In eager every operator is a separate program. :func:`trace` runs a function once on tensors without data,
records its calls as a graph, and returns a :class:`Program`, whose calls are fused with each other.
:meth:`Program.save` writes a program to a file, from which :func:`load` and C++ run it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _C
from .utils import _pytree
from .utils._pytree import tree_leaves, tree_map

__all__ = ["Program", "load", "trace"]

Tensor = _C.Tensor


class Step(NamedTuple):
    """A kernel, a view, or a library call."""

    text: str  # "kernel mul+sum: %0, %1 -> %3"
    kind: str
    calls: str
    allocates: int  # bytes
    holds: int  # bytes held while it runs


class Memory(list):
    """The steps of a call with the memory that they allocate and hold; printed as a table.

    Attributes:
        arena: bytes of the block that holds all values whose live ranges do not conflict. The program
        retains
            it for its next call, one for each thread that calls it at the same time and for each of the
            last
            few sizes. It is freed with the program, or by ``facula.empty_cache()``; if all programs of a
            process retain more than 1 GiB, those that were not called lately free theirs.
        taken: maximum number of bytes that a call takes, of that block and others; at least ``peak``
    """

    def __init__(self, steps: Iterable[Step], arena: int, taken: int) -> None:
        super().__init__(steps)
        self.arena, self.taken = arena, taken

    @property
    def peak(self) -> int:
        """The maximum number of bytes held, besides arguments and captured tensors."""
        return max((step.holds for step in self), default=0)

    def __str__(self) -> str:
        lines = [f"{'allocates':>9}  {'holds':>9}  step"]
        lines += [f"{step.allocates:9}  {step.holds:9}  {step.text}" for step in self]
        lines += [f"peak {self.peak} bytes, beside arguments and captured tensors"]
        block = f", {self.arena} of them as one block, which waits for the next call" if self.arena else ""
        return "\n".join([*lines, f"a call takes {self.taken} bytes{block}"])


class Program:
    """A traced function: called with tensors like those it was traced with, it returns the function's
    results, with gradients, and writes what the function writes (inputs, captured tensors, buffers of
    modules).

    Created by :func:`trace`. ``print(program)`` shows its graph.
    """

    def __init__(self, native: Any, example: Any, results: Any, assumed: list[tuple]) -> None:
        self._native = native
        self._assumed = assumed
        self._checks: list[tuple] = []  # exception class and text of each check of elements
        self._example = example  # (args, kwargs), with _TENSOR for tensors
        self._results = results  # a tree whose leaves are numbers of results, or constants
        args, kwargs = example
        plain = not kwargs and all(x is _TENSOR for x in args)
        # the number of arguments if all of them are tensors, else -1
        self._plain = len(args) if plain else -1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for what, read, value in self._assumed:
            if not _equal(now := read(), value):
                raise ValueError(
                    f"the program was traced when {what} was {value!r}, and it is {now!r} now: numbers are "
                    "part of a program\n"
                    "  hint: give it as a tensor of one element, which is read at each call, or trace again"
                )
        plain = len(args) == self._plain and not kwargs and all(isinstance(x, Tensor) for x in args)
        outputs = self._native.run(args if plain else self._tensors(args, kwargs))
        results = self._results
        if isinstance(results, _Result):
            return outputs[results.number]
        if type(results) is tuple and all(isinstance(x, _Result) for x in results):
            return tuple([outputs[x.number] for x in results])
        return tree_map(lambda x: outputs[x.number] if isinstance(x, _Result) else x, results)

    def _tensors(self, args: tuple, kwargs: dict) -> list[Tensor]:
        leaves, traced = tree_leaves((args, kwargs)), tree_leaves(self._example)
        same = len(leaves) == len(traced) and all(
            isinstance(g, Tensor) if t is _TENSOR else not isinstance(g, Tensor) and _equal(g, t)
            for g, t in zip(leaves, traced)
        )
        if not same:
            raise ValueError(
                "what is no tensor is part of a program: it was traced with "
                f"{_shown(self._example)}, and is called with {_shown(_without_tensors((args, kwargs)))}"
            )
        return [g for g, t in zip(leaves, traced) if t is _TENSOR]

    @property
    def captured(self) -> tuple[Tensor, ...]:
        """Returns the tensors that the function read besides its arguments: parameters, buffers,
        constants.
        """
        return self._native.captured()

    def steps(self) -> list[str]:
        """Returns the steps of a call without gradients, one line each: kernels with the operators that
        are fused in them, library calls, and views.
        """
        return [step[0] for step in self._native.report()[0]]

    def memory(self) -> Memory:
        """Returns the memory of a call, step by step, for the sizes that the program was traced with.

        >>> print(facula.program.trace(lambda x: (x @ x).exp().sum(), facula.ones(8, 8)).memory())
        allocates      holds  step
              256        256  library mm: %0, %0 -> %1
                4        260  kernel exp+sum: %1 -> %3
        peak 260 bytes, beside arguments and captured tensors
        a call takes 260 bytes, 256 of them as one block, which waits for the next call
        """
        steps, arena, taken = self._native.report()
        return Memory((Step(*step) for step in steps), arena, taken)

    def html(self) -> str:
        """Returns a page that shows the program: memory over its steps, the steps, and the graph. It
        needs only a browser; notebooks display it.
        """
        from ._program_page import page

        return page(str(self), self.memory())

    _repr_html_ = html

    def save(self, path: str | os.PathLike) -> None:
        """Writes the program to a file for :func:`load`, or for C++ (``facula::Program::load``): its
        calls, and the present values of the tensors that it captured.

        Assumptions about Python objects (options of optimizers, modes of modules) are not saved: a loaded
        program does what it did when it was traced. Captured tensors become separate leaves, and require
        gradients if they were leaves that did. Raises NotImplementedError for arguments and results that
        a file cannot contain: containers other than tuples, lists, dicts and registered ones
        (``utils._pytree``), objects.

        >>> p = facula.program.trace(lambda x: (x * 2).sum(), facula.ones(3))
        >>> p.save(path := tempfile.mktemp())
        >>> facula.program.load(path)(facula.ones(3))
        tensor(6.)
        """
        extra = {"arguments": _written(self._example), "results": _written(self._results)}
        self._native.save(os.fspath(path), json.dumps(extra))

    def __repr__(self) -> str:
        return self._native.text()


class _Result:
    def __init__(self, number: int) -> None:
        self.number = number


class _Input:
    """Stands for a tensor among the arguments."""

    def __repr__(self) -> str:
        return "Tensor"


_TENSOR = _Input()


def _without_tensors(tree: Any) -> Any:
    return tree_map(lambda x: _TENSOR if isinstance(x, Tensor) else x, tree)


def _shown(example: Any) -> str:
    args, kwargs = tree_map(repr, example)
    return "(" + ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]) + ")"


class _Trace:
    """The properties of a traced function besides its calls."""

    def __init__(self) -> None:
        self.assumed: list[tuple] = []  # (description, function that reads it, its value)
        self.checks: list[tuple] = []  # (tensor of one bool, exception class, its text)
        self.counted: list[Tensor] = []  # step counters of optimizers


_traces: list[_Trace] = []  # active traces, the innermost last


def assume(what: str, read: Callable[[], Any]) -> None:
    """While a function is traced: makes its program raise if ``read()`` returns another value when it is
    called.
    """
    _traces[-1].assumed.append((what, read, read()))


def counted() -> list[Tensor]:
    """Returns the step counters of optimizers that the traced function has used; their values are
    outdated.
    """
    return _traces[-1].counted if _traces else []


def require(valid: Tensor, kind: type[Exception], text: str) -> None:
    """Raises unless ``valid``, a tensor of one bool; while a function is traced, its program checks it at
    the end of each call. In a batch of calls (vmap) all have to be true; elements on meta are not
    checked.
    """
    while (batch := _C.batch_of(valid)) is not None:
        valid = batch[1].all()
    if valid.is_meta:
        return
    if _C.is_tracing():
        if _C.in_traced_backward():
            raise NotImplementedError("a check of elements in the backward of a custom function")
        _traces[-1].checks.append((valid, kind, text))
    elif not bool(valid):
        raise kind(text)


def _equal(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def trace(f: Callable, *args: Any, dynamic: bool = False, **kwargs: Any) -> Program:
    """Runs ``f(*args, **kwargs)`` once on tensors without data and returns its calls as a
    :class:`Program`.

    Tensors among the arguments, also inside of tuples, lists and dicts, are the program's inputs.
    Everything else is fixed: numbers, flags, the branches that Python took, modules and their training
    mode. Other tensors that ``f`` reads (parameters, buffers) are read at each call, and receive
    gradients. Sizes of inputs are fixed; with ``dynamic=True`` those that were not 0 or 1 may change if
    ``f`` did not depend on them (``x.shape`` returns numbers, which fix them; operators do not).

    ``f`` may be an entire training step: ``zero_grad()``, ``backward()``, ``autograd.grad()`` and the
    steps of optimizers become part of the program, which sets ``.grad`` as ``f`` does, and its results
    have no history. Options of optimizers are numbers, which are fixed, but a learning rate that is a
    tensor is read at each call. States of optimizers are created when ``f`` is traced, if they do not
    exist.

    Selections by masks (``x[mask]``, ``nonzero``, ``unique``) have a size that is known when the program
    runs; Python cannot branch on it.

    Raises RuntimeError or NotImplementedError for operations that a graph cannot represent: calls that
    read elements (``item()``, ``if tensor:``), branches on such sizes, hooks.
    (``item()``, ``if tensor:``), branches on such sizes, hooks.

    >>> def f(x, y):
    ...     return (x * y).sum()
    >>> p = facula.program.trace(f, facula.ones(3), facula.ones(3))
    >>> p(facula.tensor([1., 2., 3.]), facula.tensor([1., 1., 2.]))
    tensor(9.)
    """

    def record(run: Callable, tensors: list, name: str) -> Any:
        return _C.trace(run, tensors, name, dynamic)

    return traced_by(record, f, args, kwargs)


def traced_by(
    record: Callable[[Callable, list, str], Any], f: Callable, args: tuple, kwargs: dict
) -> Program:
    """Returns the program of ``f(*args, **kwargs)``. ``record(function, tensors, name)`` traces a function
    of a tuple of tensors, which returns a list of tensors.
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
        native = record(run, tensors, name if name.isidentifier() else "program")
    finally:
        _traces.pop()
    checks = [(kind, text) for _, kind, text in left.checks]
    native.require(checks)
    program = Program(native, _without_tensors((args, kwargs)), tree, left.assumed)
    program._checks = checks
    return program


def load(path: str | os.PathLike) -> Program:
    """Returns the program that :meth:`Program.save` wrote. Raises RuntimeError if the file is damaged or
    of another kind. Loading executes nothing, and a call only the operators of the graph.
    """
    native, extra = _C.load_program(os.fspath(path))
    if not extra:  # saved from C++, with tensors as arguments and results
        arguments: Any = ((_TENSOR,) * native.inputs(), {})
        return Program(native, arguments, tuple(_Result(k) for k in range(native.outputs())), [])
    try:
        trees = json.loads(extra)
        arguments, results = _read(trees["arguments"]), _read(trees["results"])
        inputs = sum(x is _TENSOR for x in tree_leaves(arguments))
        numbers = [x.number for x in tree_leaves(results) if isinstance(x, _Result)]
        complete = inputs == native.inputs() and all(0 <= n < native.outputs() for n in numbers)
        args, kwargs = arguments
        if not (complete and type(args) is tuple and type(kwargs) is dict):
            raise ValueError("arguments or results of another number")
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise RuntimeError(f"load: {os.fspath(path)} is damaged: {e}") from None
    return Program(native, arguments, results, [])


# ---- trees as JSON: plain values directly, all others as {kind: ...}


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _written(x: Any) -> Any:
    if x is None or type(x) in (bool, int, str):
        return x
    if type(x) in (float, complex):
        return {type(x).__name__: repr(x)}
    if type(x) in (list, tuple, _C.Size):
        return {type(x).__name__: [_written(i) for i in x]}
    if type(x) is dict:
        return {"dict": [[_written(k), _written(v)] for k, v in x.items()]}
    if isinstance(x, (_C.dtype, _C.device)):
        return {type(x).__name__: str(x).rpartition(".")[2]}
    if x is _TENSOR:
        return {"tensor": None}
    if isinstance(x, _Result):
        return {"tensor": x.number}
    node = _pytree.SUPPORTED_NODES.get(type(x))
    if node is None:
        raise NotImplementedError(
            f"save: a {_name_of(type(x))} among the arguments or results, and a file holds numbers, strings, "
            "dtypes, devices, tuples, lists and dicts\n"
            "  hint: register_pytree_node() makes a class a container"
        )
    items, context = node.flatten_fn(x)
    return {"node": [_name_of(type(x)), _written(list(items)), _written(context)]}


def _read(x: Any) -> Any:
    if not isinstance(x, dict):
        return x
    ((what, value),) = x.items()
    if what in ("float", "complex"):
        return {"float": float, "complex": complex}[what](value)
    if what in ("list", "tuple", "Size"):
        return {"list": list, "tuple": tuple, "Size": _C.Size}[what]([_read(i) for i in value])
    if what == "dict":
        return {_read(k): _read(v) for k, v in value}
    if what == "dtype":
        if not isinstance(dtype := getattr(_C, value), _C.dtype):
            raise ValueError(f"{value} is no dtype")
        return dtype
    if what == "device":
        return _C.device(value)
    if what == "tensor":
        return _TENSOR if value is None else _Result(value)
    if what != "node":
        raise ValueError(f"unknown kind of value {what!r}")
    name, items, context = value
    for kind, node in _pytree.SUPPORTED_NODES.items():
        if _name_of(kind) == name:
            return node.unflatten_fn(_read(items), _read(context))
    raise ValueError(f"the class {name} is not registered as a container: import its module first")
