"""``facula.compile`` and related functions."""

from __future__ import annotations

import copy
import functools
import os
import sys
import types
import weakref
from typing import Any

from . import _C
from .nn.modules.module import Module


class OptimizedModule(Module):
    """The result of :func:`compile` for a module, which is its ``_orig_mod``: names of its state have
    that prefix.

    Attributes are read from and written to the module.
    """

    _orig_mod: Module

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._modules["_orig_mod"] = mod

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__.get("_run", self._orig_mod)(*args, **kwargs)

    def _prepare(self) -> None:
        fullgraph, disabled, backend = self.__dict__["_options"]
        model = self._orig_mod
        run = CompiledFunction(_caller(model), type(model).__name__, fullgraph)
        run.backend = backend
        run.enabled = not disabled
        run.__name__ = type(model).__name__
        self.__dict__["_run"] = _checked(run)

    def __deepcopy__(self, memo: Any) -> Any:
        copied = type(self)(copy.deepcopy(self._orig_mod, memo))
        copied._restore(self.__dict__.get("_options"))
        return copied

    def _restore(self, options: Any) -> None:
        if options is not None:
            self.__dict__["_options"] = options
            self._prepare()

    @property
    def training(self) -> bool:
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, mode: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", ()):
            self._orig_mod.training = mode

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod":
            modules[name] = value
        elif "_orig_mod" not in modules or hasattr(type(self), name) or name in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            setattr(modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __reduce__(self) -> Any:
        options = self.__dict__.get("_options")
        return (type(self), (self._orig_mod,)) if options is None else (_captured, (self._orig_mod, *options))


_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_BACKENDS = ("facula", "inductor", "eager", "aot_eager")
_OPTIONS: frozenset[str] = frozenset()  # options of our own backend: none yet


def _backend_of(backend: Any) -> Any:
    """Returns a backend that is a function, or a names name. Raises RuntimeError for others."""
    if backend is None:
        backend = get_default_backend()
    if isinstance(backend, str) and backend in _registered:
        return _registered[backend]
    if callable(backend) or backend in _BACKENDS:
        return backend
    names = ", ".join(sorted({*_BACKENDS, *_registered}))
    raise RuntimeError(f"compile: there is no backend {backend!r}; there are {names}, and functions")


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """Returns a function that runs ``model`` as captured programs, or a module as an ``OptimizedModule``.
    Also a decorator, with or without options.

    The first call is interpreted: operators are recorded in a program, reads of objects from outside
    become guards, writes to them a journal. Later calls check the guards, run the program and repeat the
    writes. If a guard fails the call is captured again; ``FACULA_LOG=recompiles`` tells why. What cannot
    be recorded (``print``, a branch on elements, a call of opaque C code) divides the program:
    ``FACULA_LOG=breaks`` shows where, and ``fullgraph=True`` makes it an error.

    backend: "facula" (also "inductor"); "eager" and "aot_eager" run the function itself. A function
        receives each captured program as a graph of operators, ``backend(graph_module, inputs)``, and
        returns a function that runs in its place. The graph writes nothing: its last results are the new
        values of inputs that the program writes. Programs that call ``backward()`` run by our own backend.
    mode: "default", "reduce-overhead", "max-autotune", which are the same here.
    dynamic: None makes symbols of the sizes of argument tensors that have changed between calls, so that one
        program serves all sizes; True makes symbols of all of them, and False of none. Graphs for back ends
        that are functions have fixed sizes, and another size is captured again.

    >>> @facula.compile
    ... def f(x):
    ...     return (x * 2 + 1).relu()
    >>> f(facula.tensor([-1.0, 2.0]))
    tensor([0., 5.])
    >>> def backend(graph_module, inputs):
    ...     print([n.name for n in graph_module.graph.nodes])
    ...     return graph_module.forward
    >>> facula.compile(lambda x: x.sin() + 1, backend=backend)(facula.zeros(2))
    ['l_x_', 'sin', 'add', 'output']
    tensor([1., 1.])
    """
    backend = _backend_of(backend)
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"compile: there is no mode {mode!r}; there are {', '.join(_MODES)}")
    if mode is not None and options is not None:
        raise RuntimeError("compile: mode and options cannot be given together")
    if not callable(backend) and options:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise RuntimeError(f"compile: there is no option {unknown[0]!r}; the backend {backend} has none")
    if model is None:
        return lambda f: compile(f, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                 options=options, disable=disable)  # fmt: skip
    if not callable(model):
        raise TypeError(f"compile: expected a function or a module, not {type(model).__name__}")
    from ._dynamo import observer, policy, polyfills  # noqa: F401  (the first capture needs them)

    if callable(backend):
        from ._dynamo.backend import runner

        captured = _captured(model, fullgraph, disable, functools.partial(runner, backend, options))
    else:
        captured = _captured(model, fullgraph, disable or backend in ("eager", "aot_eager"))
    run = captured.__dict__.get("_run", captured) if isinstance(captured, Module) else captured
    if isinstance(run, _C.Compiled):
        run.dynamic = False if callable(backend) else dynamic
    return captured


class CompiledFunction(_C.Compiled):
    """A function that :func:`compile` returned."""

    def __new__(cls, function: Any, name: str, fullgraph: bool = False) -> Any:
        self = super().__new__(cls, function, name, fullgraph)
        _compiled.add(self)
        return self

    def __reduce__(self) -> Any:
        original = self.__dict__["_torchdynamo_orig_callable"]
        target: Any = sys.modules.get(getattr(original, "__module__", ""))
        for part in getattr(original, "__qualname__", "").split("."):
            target = getattr(target, part, None)
        if target is self:  # a decorated function is target by its name
            return original.__qualname__
        return _captured, (original, self.__dict__["_fullgraph"], not self.enabled, self.backend)

    def __deepcopy__(self, memo: Any) -> Any:
        return self


_compiled: weakref.WeakSet = weakref.WeakSet()


def _captured(model: Any, fullgraph: bool, disabled: bool, backend: Any = None) -> Any:
    if isinstance(model, Module):
        optimized = OptimizedModule(model)
        optimized.__dict__["_options"] = (fullgraph, disabled, backend)
        optimized._prepare()
        return optimized
    if isinstance(model, type):
        raise TypeError("compile: a class; compile its instances or methods")
    original, function = model, model
    if isinstance(model, _C.Compiled):
        function = model.function
    elif not isinstance(model, types.FunctionType):
        function = _caller(model)
    run = CompiledFunction(function, getattr(original, "__qualname__", type(original).__name__), fullgraph)
    functools.update_wrapper(run, original, updated=())
    run._torchdynamo_orig_callable = original
    run._fullgraph = fullgraph
    run.backend = backend
    if disabled:
        run.enabled = False
    return _checked(run)


def _checked(run: Any) -> Any:
    every = int(os.environ.get("FACULA_COMPILE_CHECK") or 0)
    if every <= 0 or not run.enabled:
        return run
    from ._dynamo.check import checked

    return checked(run, every)


def _caller(model: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return call


def is_compiling() -> bool:
    """True while a compiled function is captured; the code that it runs is that of later calls, too."""
    return bool(_C.is_capturing())


def is_dynamo_compiling() -> bool:
    return is_compiling()


def is_exporting() -> bool:
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Returns the function with a mark: a capture calls it plainly, between two programs. With
    ``recursive=False`` the function alone runs plainly. Also a decorator with arguments.
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    if isinstance(fn, _C.Compiled):
        fn = fn.function
    if isinstance(fn, Module) or not callable(fn):
        return fn
    text = "a call of a function that is disabled"

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    disabled._dynamo_disable = text if reason is None else f"{text}: {reason}"  # type: ignore[attr-defined]
    return disabled


def reset() -> None:
    """Forgets what every compiled function captured."""
    for f in list(_compiled):
        f.reset()


def _set_rule(fn: Any, policy: str, detail: Any = None) -> Any:
    from ._dynamo import policy as rules

    if not callable(fn):
        raise TypeError(f"expected a function, not {type(fn).__name__}")
    _C.set_capture_rule(fn, getattr(rules, policy), detail)
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Returns the function itself. A capture calls it instead of interpreting it: its calls of operators are
    recorded, and its other effects happen at captures alone. Also takes a list of functions.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    return _set_rule(fn, "RECORDED")


def disallow_in_graph(fn: Any) -> Any:
    """Returns the function itself. Its calls divide a program."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]
    name = getattr(fn, "__name__", type(fn).__name__)
    return _set_rule(fn, "BREAKS", f"a call of {name}, which is not allowed in graphs")


def assume_constant_result(fn: Any) -> Any:
    """Returns the function itself. A capture calls it once, and later calls use the same result while the
    arguments are equal, whatever else the function reads.
    """
    return _set_rule(fn, "FOLDED")


_STANCES = {
    "default": 0,
    "force_eager": 1,
    "eager_then_compile": 2,
    "aot_eager_then_compile": 2,
    "eager_on_recompile": 3,
    "fail_on_recompile": 4,
}


class set_stance:
    """Sets how compiled functions treat calls: from now on, within a ``with`` block, or within a decorated
    function.

    stance: "default"; "force_eager" runs the functions themselves; "eager_then_compile" does so at the
        first call of each function; "eager_on_recompile" runs a call plainly that no captured program
        fits; "fail_on_recompile" raises a RuntimeError then.

    >>> f = facula.compile(lambda x: x + 1)
    >>> with facula.compiler.set_stance("force_eager"):
    ...     f(facula.ones(1))
    tensor([2.])
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in _STANCES:
            expected = ", ".join(_STANCES)
            raise RuntimeError(f"invalid torch.compile stance {stance!r}; there are {expected}")
        if skip_guard_eval_unsafe:
            raise RuntimeError("set_stance: skip_guard_eval_unsafe=True: guards are always checked")
        if force_backend is not None and force_backend not in ("eager", "aot_eager"):
            raise RuntimeError("set_stance: force_backend may be 'eager'; compile() takes other backends")
        self.stance = "force_eager" if force_backend is not None else stance
        self._before = _C.set_compile_stance(_STANCES[self.stance])

    def __enter__(self) -> None:
        _C.set_compile_stance(_STANCES[self.stance])

    def __exit__(self, *exc: object) -> None:
        _C.set_compile_stance(self._before)

    def __call__(self, fn: Any) -> Any:
        _C.set_compile_stance(self._before)

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _C.set_compile_stance(_STANCES[self.stance])
            try:
                return fn(*args, **kwargs)
            finally:
                _C.set_compile_stance(before)

        return wrapped


class error_on_graph_break:
    """A region of a compiled function in which a break is an error, or is none, whatever ``fullgraph`` says.
    Used in ``with`` or as a decorator.

    >>> @facula.compile
    ... def f(x):
    ...     with facula.compiler.error_on_graph_break(True):
    ...         return x + 1
    >>> f(facula.ones(1))
    tensor([2.])
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        self.number = 1 if error_on_graph_break else 0

    def __enter__(self) -> None:
        self.before = _C.set_break_errors(self.number)

    def __exit__(self, *exc: object) -> None:
        _C.set_break_errors(self.before)

    def __call__(self, fn: Any) -> Any:
        number = self.number

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _C.set_break_errors(number)
            try:
                return fn(*args, **kwargs)
            finally:
                _C.set_break_errors(before)

        return wrapped


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Returns the names that ``compile(backend=...)`` knows."""
    hidden = {"eager", "aot_eager"} if "debug" in exclude_tags else set()
    return sorted({*_BACKENDS, *_registered} - hidden)


_registered: dict[str, Any] = {}


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """Makes a function available as ``compile(backend=name)``. Also a decorator."""
    if compiler_fn is None:
        return lambda f: register_backend(f, name, tags)
    _registered[name or compiler_fn.__name__] = compiler_fn
    return compiler_fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    """Returns a decorator for a function of Python that computes the same as ``original_fn``: a capture
    interprets it in place of the original, which is opaque because it is written in C.
    """
    unknown = sorted(
        options.keys() - {"can_constant_fold_through", "skip_signature_check", "is_embedded_type"}
    )
    if unknown:
        raise TypeError(f"substitute_in_graph: there is no option {unknown[0]!r}")

    def decorator(fn: Any) -> Any:
        _set_rule(original_fn, "REPLACED", fn)
        return fn

    return decorator


def explain(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Captures a call and returns an account of it: ``str()`` gives a text, ``html()`` a page. See
    :class:`facula._dynamo.explanation.Explanation`.

    >>> e = facula.compiler.explain(lambda x: (x * 2).relu(), facula.ones(3))
    >>> e.graph_count, e.op_count, e.graph_break_count
    (1, 2, 0)
    """
    from ._dynamo.explanation import explain

    return explain(fn, *args, **kwargs)


def minify(fn: Any, *args: Any, fails: Any = None, path: str | None = None) -> str:
    """Reduces a function that fails or differs when it is compiled to a short script, which names the
    part of the compiler that is responsible. See :func:`facula._dynamo.minifier.minify`.
    """
    from ._dynamo.minifier import minify

    return minify(fn, *args, fails=fails, path=path)


def wrap_numpy(fn: Any) -> Any:
    """Wraps ``fn``, a function of NumPy arrays, for tensors.

    >>> facula.compiler.wrap_numpy(lambda a: a + 1)(facula.tensor([1]))
    tensor([2])
    """
    import functools

    from .utils._pytree import tree_map

    def array(x: Any) -> Any:
        return x.detach().numpy() if hasattr(x, "numpy") else x

    def tensor(x: Any) -> Any:
        import numpy

        from . import _C

        return _C.tensor(x) if isinstance(x, (numpy.ndarray, numpy.generic)) else x

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arrays = tree_map(array, (list(args), kwargs))
        return tree_map(tensor, fn(*arrays[0], **arrays[1]))

    return wrapped


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Returns the function itself. A capture interprets its calls like those of other functions; equal
    regions share their kernels, which are looked up by what they compute.
    """
    return fn if callable(fn) else lambda f: f


def cudagraph_mark_step_begin() -> None:
    """Has no effect without CUDA."""


_default_backend: list[Any] = ["inductor"]


def get_default_backend() -> Any:
    """Returns the value from set_default_backend, which has no effect."""
    return _default_backend[0]


def set_default_backend(backend: Any) -> None:
    """Stores the value for get_default_backend."""
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError("set_default_backend() expects a string, callable, or None")
    _default_backend[0] = "inductor" if backend is None else backend


def save_cache_artifacts() -> tuple[bytes, Any] | None:
    """Returns None: kernels are cached in separate files, under keys of what they compute."""
    return None


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """Returns None: artifacts of PyTorch's compiler cannot be used here."""
    return None


def load_compiled_function(file: Any, **options: Any) -> Any:
    raise NotImplementedError("load_compiled_function: files of PyTorch's compiler are not read")


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Returns the previous value: no guards are exchanged between processes."""
    before, _collectives[0] = _collectives[0], bool(enabled)
    return before


_collectives = [False]


def skip_all_guards_unsafe(guard_entries: Any) -> list[bool]:
    """Filters of guards, for ``compile(options={"guard_filter_fn": ...})``."""
    return [False for _ in guard_entries]


def _selected(guard_entries: Any, *kinds: str) -> list[bool]:
    return [getattr(g, "guard_type", None) not in kinds for g in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    return [
        not getattr(g.orig_guard.source, "is_unspecialized_builtin_nn_module", bool)() for g in guard_entries
    ]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    return [not getattr(g.orig_guard.source, "is_unspecialized_nn_module", bool)() for g in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    return [
        g.guard_type == "TENSOR_MATCH" and (keep_parameters or not _is_parameter(g.value))
        for g in guard_entries
    ]


def _is_parameter(x: Any) -> bool:
    from .nn import Parameter

    return isinstance(x, Parameter)


def keep_portable_guards_unsafe(guard_entries: Any) -> list[bool]:
    return _selected(
        guard_entries, "FUNCTION_MATCH", "CLOSURE_MATCH", "BUILTIN_MATCH", "ID_MATCH", "OBJECT_MATCH"
    )


def skip_guard_on_globals_unsafe(guard_entries: Any) -> list[bool]:
    return [not g.is_global for g in guard_entries]
