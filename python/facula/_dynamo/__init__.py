"""PyTorch's internal module for :mod:`facula.compiler`: marks for functions that are compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import compiler as eval_frame  # noqa: F401
from . import config as config
from . import utils as utils
from ..compiler import OptimizedModule as OptimizedModule
from ..compiler import compile as compile
from ..compiler import disable as disable
from ..compiler import is_compiling as is_compiling
from ..compiler import reset as reset


def allow_in_graph(fn: Any) -> Any:
    return fn


def assume_constant_result(fn: Any) -> Any:
    """The function itself: what it returns is computed at each call."""
    return fn


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


def optimize(backend: Any = "inductor", **options: Any) -> Any:
    """``compile`` as a decorator."""
    return lambda f: compile(f, backend=backend, **options)


from ..compiler import list_backends as list_backends  # noqa: E402
from ..compiler import register_backend as register_backend  # noqa: E402


class ExplainOutput(NamedTuple):
    """The graphs that a call passes to a backend."""

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    op_count: int

    def __str__(self) -> str:
        return (
            f"Graph Count: {self.graph_count}\nGraph Break Count: {self.graph_break_count}\n"
            f"Op Count: {self.op_count}"
        )


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Returns a function that calls ``f`` and reports the graphs that a backend of ``compile`` receives.

    >>> print(facula._dynamo.explain(lambda x: x + 1 if x.sum() > 0 else x)(facula.ones(2)))
    Graph Count: 2
    Graph Break Count: 1
    Op Count: 3
    """

    def explained(*args: Any, **kwargs: Any) -> ExplainOutput:
        graphs: list[Any] = []

        def backend(module: Any, inputs: Any) -> Any:
            graphs.append(module)
            return module.forward

        compile(f, backend=backend)(*args, **kwargs)
        calls = [n for g in graphs for n in g.graph.nodes if n.op.startswith("call_")]
        return ExplainOutput(graphs, len(graphs), max(len(graphs) - 1, 0), len(calls))

    return explained(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else explained
