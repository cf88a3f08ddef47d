"""Programs: functions of tensors that are traced once and then run as one.

In eager every operator is a separate program. :func:`trace` runs a function once on tensors without data,
records its calls as a graph, and returns a :class:`Program`, whose calls are fused with each other.
:meth:`Program.save` writes a program to a file, from which :func:`load` and C++ run it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import _C
from .utils import _pytree
from .utils._pytree import tree_leaves, tree_map

__all__ = ["Break", "Program", "load", "trace"]

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


class Break(NamedTuple):
    """Why a call could not be recorded: the attribute ``trace_break`` of the exception."""

    reason: str  # "reads_elements", "hooks", ...: the kinds of graph/break.h
    operator: str  # as the user wrote it
    message: str
    line: str  # "file.py:12 blocks.0", or "" if it is unknown
    fix: str


class Program(_C.ProgramBase):
    """A traced function: called with tensors like those it was traced with, it returns the function's
    results, with gradients, and writes what the function writes (inputs, captured tensors, buffers of
    modules).

    Created by :func:`trace`. ``print(program)`` shows its graph.
    """

    def __init__(self, native: Any, example: Any, results: Any, trace: _Trace | None = None) -> None:
        self._native = native
        self._checks: list[tuple] = []  # exception class and text of each check of elements
        self._example = example  # (args, kwargs), with an _Input for each tensor
        self._results = results  # a tree whose leaves are results, or constants
        self._readers = tuple(trace.readers) if trace else ()
        self._operand_names = tuple(trace.operand_names) if trace else ()
        self._lines = trace.lines if trace else {}
        args, kwargs = example
        plain = not kwargs and all(x is _TENSOR for x in args)
        template: Any = None  # what C can build: one result, or a tuple of them
        if _is_plain_result(results):
            template = results.number
        elif type(results) is tuple and all(map(_is_plain_result, results)):
            template = tuple(x.number for x in results)
        self._prepare(
            native,
            len(args) if plain else -1,
            template,
            trace.assumptions if trace else [],
            self._readers,
            tuple(trace.effects) if trace else (),
            self._call,
        )

    def line_of(self, module: Any) -> str:
        """Returns the line of the user's code that called a module first in the trace, such as "net.py:12";
        "" if none did.
        """
        called, line = self._lines.get(id(module), (None, ""))
        return line if called is module else ""

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self._run(self._tensors(args, kwargs))

        def result_of(x: Any) -> Any:
            if not isinstance(x, _Result):
                return x
            result = outputs[x.number]
            return result if x.kind is None else result.as_subclass(x.kind)

        return tree_map(result_of, self._results)

    def _tensors(self, args: tuple, kwargs: dict) -> list[Tensor]:
        leaves, traced = tree_leaves((args, kwargs)), tree_leaves(self._example)
        same = len(leaves) == len(traced) and all(
            _kind_of(g) is t.kind if isinstance(t, _Input) else not isinstance(g, Tensor) and _equal(g, t)
            for g, t in zip(leaves, traced)
        )
        if not same:
            raise ValueError(
                "what is no tensor is part of a program: it was traced with "
                f"{_shown(self._example)}, and is called with {_shown(_without_tensors((args, kwargs)))}"
            )
        return [g for g, t in zip(leaves, traced) if isinstance(t, _Input)]

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
        program does what it did when it was traced, with the learning rates of now. Captured tensors
        become separate leaves, and require gradients if they were leaves that did. Raises
        NotImplementedError for arguments and results that
        a file cannot contain: containers other than tuples, lists, dicts and registered ones
        (``utils._pytree``), objects.

        >>> p = facula.program.trace(lambda x: (x * 2).sum(), facula.ones(3))
        >>> p.save(path := tempfile.mktemp())
        >>> facula.program.load(path)(facula.ones(3))
        tensor(6.)
        """
        native = self._with_numbers()
        extra = {"arguments": _written(self._example), "results": _written(self._results)}
        native.save(os.fspath(path), json.dumps(extra))

    def _with_numbers(self) -> Any:
        """Returns the native program with the present values of numbers that it reads at each call."""
        if not self._readers:
            return self._native
        return self._native.with_numbers([float(read()) for read in self._readers])

    def text(self, lines: bool = False) -> str:
        """Returns the graph; with ``lines``, each call with the line of the user's program."""
        return self._native.text(lines)

    def __repr__(self) -> str:
        return self.text()


class _Result:
    def __init__(self, number: int, kind: type | None = None) -> None:
        self.number = number
        self.kind = kind  # the subclass of Tensor, or None


class _Input:
    """Stands for a tensor among the arguments."""

    def __init__(self, kind: type | None = None) -> None:
        self.kind = kind  # the subclass of Tensor, or None

    def __repr__(self) -> str:
        return "Tensor" if self.kind is None else self.kind.__name__


_TENSOR = _Input()


def _kind_of(x: Any) -> type | None:
    """Returns the subclass of a tensor, None for a plain tensor or a parameter; False for other objects."""
    if not isinstance(x, Tensor):
        return False  # type: ignore[return-value]
    from .nn import Parameter

    return None if type(x) in (Tensor, Parameter) else type(x)


def _is_plain_result(x: Any) -> bool:
    return isinstance(x, _Result) and x.kind is None


def _without_tensors(tree: Any) -> Any:
    def stand_in(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        kind = _kind_of(x)
        return _TENSOR if kind is None else _Input(kind)

    return tree_map(stand_in, tree)


def _shown(example: Any) -> str:
    args, kwargs = tree_map(repr, example)
    return "(" + ", ".join([str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]) + ")"


class _Trace:
    """The properties of a traced function besides its calls."""

    def __init__(self) -> None:
        # (kind, description, object, key, value) each: see python/bind/program_call.cpp
        self.assumptions: list[tuple] = []
        self.checks: list[tuple] = []  # (tensor of one bool, exception class, its text)
        self.counted: list[Tensor] = []  # step counters of optimizers
        self.readers: list[Callable[[], float]] = []  # of numbers that are operands
        self.operand_names: list[str] = []
        self.numbers: dict[Any, Tensor] = {}  # these operands, by who has them
        self.effects: list[
            Callable[[], Any]
        ] = []  # what each call does to Python objects, behind the program
        self.changed: set[Any] = set()  # whose numbers an effect changes
        # The fakes of objects of C++ classes, by identity, and the objects (_library/fake_class_registry.py).
        self.fakes: dict[int, tuple[Any, Any]] = {}
        # Weights of sparse embeddings, and flags of the rows taken.
        self.tables: dict[int, tuple[Any, list]] = {}
        self.modules: dict[int, Any] = {}  # that were called, by identity
        self.attributes: dict[int, dict] = {}  # their attributes when they were first called
        self.lines: dict[int, tuple[Any, str]] = {}  # these modules, and the lines that called them first
        self.dense_for_now: list[Any] = []  # embeddings that are being called

    # Whether the program repeats the calls of the function, and not what Python does: True for trace().
    repeats_calls_alone = True

    def assume(self, what: str, read: Callable[[], Any]) -> None:
        self.assumptions.append(("called", what, read, None, read()))

    def assume_item(self, what: str, of: Any, key: Any) -> None:
        self.assumptions.append(("item", what, of, key, of[key]))

    def assume_length(self, what: str, of: Any) -> None:
        self.assumptions.append(("length", what, of, None, len(of)))

    def assume_all(self, what: str, of: Any) -> None:
        self.assume_length(f"the number of {what}", of)
        for key in of.keys() if isinstance(of, dict) else range(len(of)):
            self.assume_item(what, of, key)

    def operand(self, what: str, key: Any, read: Callable[[], float]) -> Any:
        """Returns a number that is read at each call; ``key`` tells whose it is."""
        self.check_unchanged(what, key[0])
        if key not in self.numbers:
            self.numbers[key] = _C.trace_operand(float(read()))
            self.readers.append(read)
            self.operand_names.append(str(key[-1]))
        return self.numbers[key]

    def changes(self, options: dict[str, Any], key: str) -> bool:
        return False

    def check_unchanged(self, what: str, whose: Any) -> None:
        if whose in self.changed:
            raise _broken(
                "python",
                what,
                "is read after a schedule has changed it, in one traced function",
                "let the function end with the scheduler's step()",
            )

    def defer(self, whose: Any, effect: Callable[[], Any]) -> bool:
        """Makes each call of the program end with ``effect()``, which changes numbers of ``whose``."""
        self.changed.add(whose)
        self.effects.append(effect)
        return True

    # ---- tables whose gradients are sparse outside of traces

    def without_sparse(self, module: Any, *_: Any) -> None:
        """Lets an embedding have a dense gradient: a graph has no sparse tensors."""
        from .nn import Embedding

        if isinstance(module, Embedding) and module.sparse and self.repeats_calls_alone:
            self.tables.setdefault(id(module.weight), (module.weight, []))
            module.sparse = False
            self.dense_for_now.append(module)

    def note_rows(self, module: Any, args: tuple, result: Any) -> None:
        """Notes the rows of a table whose gradient is computed, by a hook that the backward pass calls."""
        if module not in self.dense_for_now:
            return
        self.dense_for_now.remove(module)
        module.sparse = True
        if module.scale_grad_by_freq:
            raise RuntimeError(
                "embedding: scale_grad_by_freq not supported with sparse gradients\n"
                "  hint: leave sparse False"
            )
        flags = self.tables[id(module.weight)][1]

        def note(_: Any) -> None:
            rows = _C.functions.zeros([module.weight.shape[0]], dtype=_C.bool)
            rows = rows.index_fill(0, args[0].reshape(-1), True)
            if module.padding_idx is not None:
                rows[module.padding_idx] = False
            flags.append(rows)

        if result.requires_grad:
            result.register_hook(note)

    def refuse_dense_tables(self) -> None:
        """Refuses a program that would leave a dense gradient where the function leaves a sparse one."""
        for table, flags in self.tables.values():
            if flags and table.grad is not None:
                raise _broken(
                    "python",
                    "embedding",
                    "has sparse=True, and its gradient is left when the traced function ends",
                    "end the function with zero_grad(), or leave sparse False",
                )

    # ---- modules

    def watch(self, module: Any, *_: Any) -> None:
        """Notes that a module was called."""
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            self.attributes[id(module)] = dict(module.__dict__)
            self.lines[id(module)] = module, _user_line()

    def watch_tree(self, x: Any) -> None:
        from .nn import Module

        if isinstance(x, Module):
            for module in x.modules():
                self.watch(module)

    def assume_modules(self) -> None:
        """Assumes what the modules contain that were called: parameters, buffers, modules, hooks, numbers."""
        for module in self.modules.values():
            name = type(module).__name__
            content = module.__dict__
            before = self.attributes[id(module)]
            for kind in ("_parameters", "_buffers", "_modules"):
                for key in content.get(kind, ()):
                    self.assume_item(f"{key} of {name}", content[kind], key)
            for kind in _HOOKS:
                if (hooks := content.get(kind)) is not None:
                    self.assume_length(f"the number of {kind[1:]} of {name}", hooks)
                    for key in hooks:
                        self.assume_item(f"one of the {kind[1:]} of {name}", hooks, key)
            for key, value in content.items():
                if type(value) in _NUMBERS and before.get(key, content) == value:
                    self.assume_item(f"{key} of {name}", content, key)

    def assume_function(self, f: Callable) -> None:
        """Assumes the numbers and modules that the code of ``f`` reads from outside of it."""
        if getattr(f, "__self__", None) is not None:
            self.watch_tree(f.__self__)
        self.watch_tree(f)
        f = getattr(f, "__func__", f)
        code = getattr(f, "__code__", None)
        if code is None:
            return
        for name, cell in zip(code.co_freevars, f.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self.watch_tree(value)
            if type(value) in _NUMBERS or isinstance(value, Tensor):
                self.assumptions.append(("cell", name, cell, None, value))
        for name in code.co_names:
            if name in f.__globals__:
                value = f.__globals__[name]
                self.watch_tree(value)
                if type(value) in _NUMBERS or isinstance(value, Tensor):
                    self.assume_item(name, f.__globals__, name)

    def drop_changed(self) -> None:
        """Drops assumptions about what the function itself has changed: each call would change it."""

        def holds(kind: str, of: Any, key: Any, value: Any) -> bool:
            if kind == "cell":
                return of.cell_contents is value
            if kind == "length":
                return len(of) == value
            present = key in of if isinstance(of, dict) else key < len(of)
            return kind != "item" or (present and of[key] is value)

        self.assumptions = [a for a in self.assumptions if a[0] == "called" or holds(a[0], *a[2:])]


_NUMBERS = (bool, int, float, complex, str, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

_traces: list[_Trace] = []  # active traces, the innermost last


def _broken(reason: str, operator: str, message: str, fix: str) -> Exception:
    e = NotImplementedError(f"{operator}: {message}\n  hint: {fix}")
    e.trace_break = Break(reason, operator, message, _C.current_line(), fix)  # type: ignore[attr-defined]
    return e


def assume(what: str, read: Callable[[], Any]) -> None:
    """While a function is traced: makes its program raise if ``read()`` returns another value when it is
    called.
    """
    if _traces:
        _traces[-1].assume(what, read)


def assume_items(what: str, of: Any, keys: Iterable | None = None) -> None:
    """The same for items of a dict or list; by default for all of them, and for their number."""
    if not _traces:
        return
    if keys is None:
        _traces[-1].assume_all(what, of)
    for key in keys or ():
        _traces[-1].assume_item(what, of, key)


def operand(what: str, key: Any, read: Callable[[], float]) -> Any:
    """While a function is traced: returns a number that its program reads at each call, as a tensor."""
    return _traces[-1].operand(what, key, read) if _traces else read()


def changes(options: dict[str, Any], key: str) -> bool:
    """Returns whether a function is captured again because this number, or one of this tuple, has changed."""
    return bool(_traces) and _traces[-1].changes(options, key)


def check_unchanged(what: str, whose: Any) -> None:
    """While a function is traced: refuses to read a number of ``whose`` behind an effect that changes it."""
    if _traces:
        _traces[-1].check_unchanged(what, whose)


def defer(whose: Any, effect: Callable[[], Any]) -> bool:
    """While a function is traced, returns True and makes its program call ``effect()`` at the end of each
    call; else returns False.
    """
    return bool(_traces) and _C.is_tracing() and _traces[-1].defer(whose, effect)


def refuse(reason: str, operator: str, message: str, fix: str) -> None:
    """While a function is traced whose program will not repeat what Python does: raises a break."""
    if _traces and _traces[-1].repeats_calls_alone:
        raise _broken(reason, operator, message, fix)


def fakes_of_trace(method: str) -> dict[int, tuple[Any, Any]]:
    """While a function is traced: returns the fakes of objects of C++ classes. Raises a break where the
    function is not traced by this module.
    """
    if not _traces:
        raise _broken(
            "python",
            method,
            "is a method of a C++ class, which this trace does not record",
            "call it outside of the traced function",
        )
    return _traces[-1].fakes


def counted() -> list[Tensor]:
    """Returns the step counters of optimizers that the traced function has used; their values are
    outdated.
    """
    return _traces[-1].counted if _traces else []


def notes_rows() -> bool:
    """Returns whether a function is traced whose embeddings note the rows that they take."""
    return bool(_traces) and _traces[-1].repeats_calls_alone


def rows_taken(table: Tensor) -> Tensor | None:
    """While a function is traced: returns flags of the rows that a sparse gradient of this table would have;
    None if its gradient is dense outside of traces too.
    """
    flags = _traces[-1].tables.get(id(table), (table, []))[1] if notes_rows() else []
    if not flags:
        return None
    rows = flags[0]
    for more in flags[1:]:
        rows = rows | more
    return rows


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


def taken_checks() -> list[tuple]:
    """While a function is traced: takes the checks that its program would make, and returns them."""
    checks, _traces[-1].checks = _traces[-1].checks, []
    return checks


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
    have no history. Options of optimizers are numbers, which are fixed, but learning rates are read at
    each call, and ``step()`` of a schedule is called at the end of each call. States of optimizers are
    created when ``f`` is traced, if they do not exist.

    Selections by masks (``x[mask]``, ``nonzero``, ``unique``) have a size that is known when the program
    runs; Python cannot branch on it.

    Raises RuntimeError or NotImplementedError for operations that a graph cannot represent: calls that
    read elements (``item()``, ``if tensor:``), branches on such sizes. The attribute ``trace_break`` of these
    exceptions is a :class:`Break`.

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
    left = _Trace()

    def run(inputs: tuple) -> list:
        nonlocal tree
        it = iter(inputs)
        a, k = tree_map(lambda x: _stand_in(next(it), x) if isinstance(x, Tensor) else x, (args, kwargs))
        results: list[Tensor] = []

        def numbered(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            results.append(x)
            return _Result(len(results) - 1, _kind_of(x))

        tree = tree_map(numbered, f(*a, **k))
        left.refuse_dense_tables()
        return results + [valid for valid, _, _ in left.checks]

    name = getattr(f, "__name__", type(f).__name__).strip("<>")
    left.assume_function(f)
    _traces.append(left)
    try:
        with _watched_modules(left):
            native = record(run, tensors, name if name.isidentifier() else "program")
    finally:
        _traces.pop()
    left.drop_changed()
    left.assume_modules()
    checks = [(kind, text) for _, kind, text in left.checks]
    native.require(checks)
    program = Program(native, _without_tensors((args, kwargs)), tree, left)
    program._checks = checks
    return program


def _user_line() -> str:
    """Returns the innermost line outside of the package that is running, as "net.py:12"."""
    package, frame = os.path.dirname(__file__) + os.sep, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((package, "<")):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _stand_in(handle: Tensor, example: Tensor) -> Tensor:
    """Returns the handle that stands for an argument, as an object of its class."""
    kind = _kind_of(example)
    if kind is None:
        return handle
    if any("__torch_dispatch__" in c.__dict__ for c in kind.__mro__ if c not in Tensor.__mro__):
        raise _broken(
            "mode",
            kind.__name__,
            "is a class with __torch_dispatch__, whose objects a trace does not see",
            "trace with the tensors that it is made of",
        )
    same = handle.as_subclass(kind)
    same.__dict__.update(example.__dict__)
    return same


@contextlib.contextmanager
def _watched_modules(trace: _Trace) -> Iterator[None]:
    """Lets the trace see each module that is called."""
    from .nn.modules import module

    before = (trace.watch, trace.without_sparse)
    handles = [module.register_module_forward_pre_hook(f) for f in before]
    handles.append(module.register_module_forward_hook(trace.note_rows))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for embedding in trace.dense_for_now:
            embedding.sparse = True


def load(path: str | os.PathLike) -> Program:
    """Returns the program that :meth:`Program.save` wrote. Raises RuntimeError if the file is damaged or
    of another kind. Loading executes nothing, and a call only the operators of the graph.
    """
    native, extra = _C.load_program(os.fspath(path))
    if not extra:  # saved from C++, with tensors as arguments and results
        arguments: Any = ((_TENSOR,) * native.inputs(), {})
        return Program(native, arguments, tuple(_Result(k) for k in range(native.outputs())))
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
    return Program(native, arguments, results)


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
    if isinstance(x, (_Input, _Result)) and x.kind is not None:
        raise NotImplementedError(f"save: a {_name_of(x.kind)} among the arguments or results")
    if isinstance(x, _Input):
        return {"tensor": None}
    if isinstance(x, _Result):
        return {"tensor": x.number}
    if isinstance(x, _C.ScriptObject):
        return {"object": f"{x._namespace}.{x._class_name}"}
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
    if what == "object":
        raise NotImplementedError(
            f"load: an object of the class {value} is an argument or result of the program\n"
            "  hint: load the file as an exported program (export.load)"
        )
    if what != "node":
        raise ValueError(f"unknown kind of value {what!r}")
    name, items, context = value
    for kind, node in _pytree.SUPPORTED_NODES.items():
        if _name_of(kind) == name:
            return node.unflatten_fn(_read(items), _read(context))
    raise ValueError(f"the class {name} is not registered as a container: import its module first")
