"""Programs: functions of tensors that are traced once and then run as a whole.

In eager every operator is a program of its own. :func:`trace` runs a function once on tensors without
data, notes its calls as a graph, and gives a :class:`Program`, whose calls are fused with each other.
A program is kept in a file by :meth:`Program.save`, and run from there (:func:`load`), also without Python.
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
    """A kernel, a view, or a call of a library."""

    text: str  # "kernel mul+sum: %0, %1 -> %3"
    kind: str
    calls: str
    allocates: int  # bytes
    holds: int  # bytes, while it runs


class Memory(list):
    """The steps of a call with what they allocate and hold; printed as a table.

    Attributes:
        arena: bytes of the one block in which values lie that are not there at the same time. The program
            keeps it for its next call, one for each thread that calls it meanwhile and for each of the last
            few sizes. It goes with the program, or by ``facula.empty_cache()``; where all programs of a
            process keep more than 1 GiB, those that were not called lately give theirs back.
        taken: bytes that a call takes at most, of that block and others; ``peak`` is a lower bound of it
    """

    def __init__(self, steps: Iterable[Step], arena: int, taken: int) -> None:
        super().__init__(steps)
        self.arena, self.taken = arena, taken

    @property
    def peak(self) -> int:
        """Bytes that are held at most, beside arguments and captured tensors."""
        return max((step.holds for step in self), default=0)

    def __str__(self) -> str:
        lines = [f"{'allocates':>9}  {'holds':>9}  step"]
        lines += [f"{step.allocates:9}  {step.holds:9}  {step.text}" for step in self]
        lines += [f"peak {self.peak} bytes, beside arguments and captured tensors"]
        block = f", {self.arena} of them as one block, which waits for the next call" if self.arena else ""
        return "\n".join([*lines, f"a call takes {self.taken} bytes{block}"])


class Program:
    """A traced function: called with tensors like those it was traced with, it gives what the function gives,
    with gradients, and writes what the function writes (inputs, captured tensors, buffers of modules).

    Made by :func:`trace`. ``print(program)`` shows its graph.
    """

    def __init__(self, native: Any, example: Any, results: Any, assumed: list[tuple]) -> None:
        self._native = native
        self._assumed = assumed
        self._example = example  # (args, kwargs), with _TENSOR for tensors
        self._results = results  # a tree; leaves: number of the result, or what the function gave
        args, kwargs = example
        plain = not kwargs and all(x is _TENSOR for x in args)
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
        results = self._results
        if isinstance(results, _Result):
            return found[results.number]
        if type(results) is tuple and all(isinstance(x, _Result) for x in results):
            return tuple([found[x.number] for x in results])
        return tree_map(lambda x: found[x.number] if isinstance(x, _Result) else x, results)

    def _tensors(self, args: tuple, kwargs: dict) -> list[Tensor]:
        given, traced = tree_leaves((args, kwargs)), tree_leaves(self._example)
        same = len(given) == len(traced) and all(
            isinstance(g, Tensor) if t is _TENSOR else not isinstance(g, Tensor) and _equal(g, t)
            for g, t in zip(given, traced)
        )
        if not same:
            raise ValueError(
                "what is no tensor is part of a program: it was traced with "
                f"{_shown(self._example)}, and is called with {_shown(_without_tensors((args, kwargs)))}"
            )
        return [g for g, t in zip(given, traced) if t is _TENSOR]

    @property
    def captured(self) -> tuple[Tensor, ...]:
        """Tensors that the function read besides its arguments: parameters, buffers, constants."""
        return self._native.captured()

    def steps(self) -> list[str]:
        """What runs when no gradient is asked for: a line for each kernel, with the operators that are fused
        in it, each call of a library, and each view."""
        return [step[0] for step in self._native.report()[0]]

    def memory(self) -> Memory:
        """The memory that a call holds, step by step, for the sizes that the program was traced with.

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
        """A page that shows the program: memory over its steps, what runs, and the graph. It needs nothing
        but a browser; notebooks show it.
        """
        from ._program_page import page

        return page(str(self), self.memory())

    _repr_html_ = html

    def save(self, path: str | os.PathLike) -> None:
        """Writes the program to a file for :func:`load`, or for C++ (``facula::Program::load``): its calls,
        and the tensors that it captured, as they are now.

        What it assumed of Python (options of optimizers, modes of modules) is not kept: a loaded program is
        what it was when it was traced. Captured tensors are leaves of their own there, and require gradients
        if they were leaves that did. NotImplementedError for arguments and results that a file cannot hold:
        containers other than tuples, lists, dicts and registered ones (``utils._pytree``), objects.

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
    """What a function that is being traced leaves to its program besides calls."""

    def __init__(self) -> None:
        self.assumed: list[tuple] = []  # (what, how it is read, its value)
        self.checks: list[tuple] = []  # (tensor of one bool, kind of exception, its text)
        self.counted: list[Tensor] = []  # of optimizers' steps: what counts them


_traces: list[_Trace] = []  # the innermost last


def assume(what: str, read: Callable[[], Any]) -> None:
    """While a function is traced: its program raises if ``read()`` gives something else when it is called."""
    _traces[-1].assumed.append((what, read, read()))


def counted() -> list[Tensor]:
    """What counts the steps of optimizers that the traced function has taken; its numbers are old ones."""
    return _traces[-1].counted if _traces else []


def require(valid: Tensor, kind: type[Exception], text: str) -> None:
    """Raises unless ``valid``, a tensor of one bool; while a function is traced, its program does so at the
    end of each call. Of a batch of calls (vmap) all have to be; elements on meta are not known.
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

    What masks pick (``x[mask]``, ``nonzero``, ``unique``) has a size that the program knows when it runs;
    Python cannot decide by it.

    Raises RuntimeError or NotImplementedError for what a graph cannot hold: calls that look at elements
    (``item()``, ``if tensor:``), branches on such sizes, hooks.

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
    native.require([(kind, text) for _, kind, text in left.checks])
    return Program(native, _without_tensors((args, kwargs)), tree, left.assumed)


def load(path: str | os.PathLike) -> Program:
    """The program that :meth:`Program.save` wrote. RuntimeError if the file is damaged or none of those; it
    is read, and nothing in it is executed but the operators of the graph.
    """
    native, extra = _C.load_program(os.fspath(path))
    if not extra:  # saved from C++: tensors in, tensors out
        arguments: Any = ((_TENSOR,) * native.inputs(), {})
        return Program(native, arguments, tuple(_Result(k) for k in range(native.outputs())), [])
    try:
        trees = json.loads(extra)
        arguments, results = _read(trees["arguments"]), _read(trees["results"])
        inputs = sum(x is _TENSOR for x in tree_leaves(arguments))
        numbers = [x.number for x in tree_leaves(results) if isinstance(x, _Result)]
        whole = inputs == native.inputs() and all(0 <= n < native.outputs() for n in numbers)
        args, kwargs = arguments
        if not (whole and type(args) is tuple and type(kwargs) is dict):
            raise ValueError("arguments or results of another number")
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise RuntimeError(f"load: {os.fspath(path)} is damaged: {e}") from None
    return Program(native, arguments, results, [])


# ---- trees as JSON: plain values as they are, all else as {what: ...}


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
        if not isinstance(found := getattr(_C, value), _C.dtype):
            raise ValueError(f"{value} is no dtype")
        return found
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
