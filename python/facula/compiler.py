"""``facula.compile`` and related functions."""

from __future__ import annotations

import warnings
from typing import Any

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
        return type(self), (self._orig_mod,)


def compile(model: Any = None, *, backend: Any = None, options: Any = None, **others: Any) -> Any:
    """Returns the function itself, or the module as an ``OptimizedModule``, with a warning: every
    operator is already compiled in eager mode, but operators of a program are not fused with each other
    yet. Also a decorator, with or without options.

    A ``backend`` that is a function receives the calls of the program as graphs, ``backend(graph_module,
    inputs)``, and returns functions that run in their place: see :mod:`facula._dynamo.capture`.

    >>> facula.compile(facula.nn.ReLU())(facula.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> def backend(graph_module, inputs):
    ...     print([n.name for n in graph_module.graph.nodes])
    ...     return graph_module.forward
    >>> facula.compile(lambda x: x.sin() + 1, backend=backend)(facula.zeros(2))
    ['l_x_', 'sin', 'add', 'output']
    tensor([1., 1.])
    """
    if model is not None and not callable(model):
        raise TypeError(f"compile: expected a function or a module, not {type(model).__name__}")
    if backend is None and callable(get_default_backend()):
        backend = get_default_backend()
    if callable(backend):
        if model is None:
            return lambda f: compile(f, backend=backend, options=options)
        return _with_backend(model, backend, options)
    warnings.warn(
        "compile: operators are compiled one by one, and not yet fused over a program: it runs as in eager",
        stacklevel=2,
    )
    if model is None:
        return lambda f: OptimizedModule(f) if isinstance(f, Module) else f
    return OptimizedModule(model) if isinstance(model, Module) else model


def _with_backend(model: Any, backend: Any, options: Any) -> Any:
    import functools

    from ._dynamo.capture import Compiled

    run = Compiled(model, backend, getattr(backend, "__name__", type(backend).__name__), options)
    if isinstance(model, Module):
        optimized = OptimizedModule(model)
        optimized.__dict__["_run"] = run
        return optimized

    @functools.wraps(model)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    compiled._torchdynamo_orig_callable = model  # type: ignore[attr-defined]
    return compiled


def is_compiling() -> bool:
    return False


def is_dynamo_compiling() -> bool:
    return False


def is_exporting() -> bool:
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Returns the function itself; a decorator with or without arguments."""
    return fn if callable(fn) else lambda f: f


def reset() -> None:
    """Has no effect: there is no compiled state."""


def allow_in_graph(fn: Any) -> Any:
    """Returns the function itself: a mark for programs that are compiled as a whole."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Returns the function itself."""
    return fn


_STANCES = ("default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile",
            "fail_on_recompile")  # fmt: skip


class set_stance:
    """Has no effect: sets how ``compile`` treats calls, permanently or within a ``with`` block."""

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}', expected one of {_STANCES}")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, fn: Any) -> Any:
        return fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Returns an empty list: there are no named backends."""
    return []


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    """Returns the decorated function itself: nothing is captured for which it would be substituted."""
    return lambda fn: fn


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
    """Returns the function itself: a mark for programs that are compiled as a whole."""
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
