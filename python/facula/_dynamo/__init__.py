"""PyTorch's internal module for :mod:`facula.compiler`: marks for functions that are compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import compiler as eval_frame  # noqa: F401
from . import config as config
from . import exc as exc
from . import utils as utils
from ..compiler import OptimizedModule as OptimizedModule
from ..compiler import allow_in_graph as allow_in_graph
from ..compiler import assume_constant_result as assume_constant_result
from ..compiler import compile as compile
from ..compiler import disable as disable
from ..compiler import disallow_in_graph as disallow_in_graph
from ..compiler import error_on_graph_break as error_on_graph_break
from ..compiler import is_compiling as is_compiling
from ..compiler import reset as reset


def graph_break(msg: str = "") -> None:
    """Divides the program of a function that is being captured; has no effect otherwise."""


def _mark(t: Any, name: str, index: Any) -> None:
    dims = [index] if isinstance(index, int) else list(index)
    for d in dims:
        if not -t.dim() <= d < t.dim():
            raise IndexError(f"there is no dimension {d} of a tensor of {t.dim()} dimensions")
    vars(t).setdefault(name, set()).update(d % t.dim() for d in dims)


def mark_dynamic(t: Any, index: Any, *, hint_override: Any = None, min: Any = None, max: Any = None) -> None:
    """Makes symbols of these sizes at the first capture that reads the tensor. Other sizes, also those that
    violate the mark, are captured again.
    """
    _mark(t, "_dynamo_dynamic_indices", index)


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Keeps these sizes of the tensor, or all of them, from becoming symbols."""
    _mark(t, "_dynamo_static_indices", range(t.dim()) if index is None else index)


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Has no effect: kernels do not depend on addresses."""


def optimize(backend: Any = "inductor", *, nopython: bool = False, **options: Any) -> Any:
    """Returns ``compile`` as a decorator; ``nopython`` is its ``fullgraph``."""
    return lambda f: compile(f, backend=backend, fullgraph=nopython, **options)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Any:
    return optimize(backend, nopython=True, **options)


from ..compiler import list_backends as list_backends  # noqa: E402
from ..compiler import register_backend as register_backend  # noqa: E402


class ExportResult(NamedTuple):
    graph_module: Any
    guards: Any


def export(f: Any, *extra_args: Any, aten_graph: bool = False, **extra_kwargs: Any) -> Any:
    """Returns a function that exports ``f`` for arguments: see :func:`facula.export.export`. Its result has
    the exported module and no guards: the module checks its arguments, except tensors that it does not read.

    >>> facula._dynamo.export(lambda x: x + 1)(facula.ones(2)).graph_module(facula.zeros(2))
    tensor([1., 1.])
    """
    from .. import export as exports
    from ..nn import Module

    class Function(Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs)

    def exported(*args: Any, **kwargs: Any) -> ExportResult:
        module = f if isinstance(f, Module) else Function()
        program = exports.export(module, args, kwargs)
        inputs = [n for n in program.graph.nodes if n.op == "placeholder" and not n.users]
        program._checks.unread = frozenset(n.name for n in inputs)
        return ExportResult(program.module(), set())

    return exported(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else exported


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Returns a function that calls ``f`` and gives an account of what is captured: see
    :func:`facula.compiler.explain`.

    >>> facula._dynamo.explain(lambda x: x + 1 if x.sum() > 0 else x)(facula.ones(2)).graph_count
    2
    """
    from ..compiler import explain

    def explained(*args: Any, **kwargs: Any) -> Any:
        return explain(f, *args, **kwargs)

    return explained(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else explained
