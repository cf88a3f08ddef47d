"""Backends of ``compile`` that are functions: the graph of a captured program as a GraphModule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .. import _C
from .exc import BackendCompilerFailed


def graph_module_of(native: Any, names: list[str]) -> Any:
    """Returns the GraphModule of a captured program: its results, then the values that it writes to inputs,
    and the numbers of these inputs.
    """
    from ..fx import GraphModule
    from ..fx._bridge import Lowered

    lowered = Lowered(native, _identifiers(names))
    written = [node for _, node in lowered.mutated]
    lowered.graph.output((*lowered.outputs[: lowered.facts["results"]], *written))
    lowered.drop_unused_items()
    return GraphModule(dict(lowered.constants), lowered.graph), [k for k, _ in lowered.mutated]


def _identifiers(paths: list[str]) -> list[str]:
    """Returns names of placeholders for the paths of inputs: ``L_x_`` for ``x``."""
    names: list[str] = []
    for path in paths:
        name = "L_" + re.sub(r"\W+", "_", path).strip("_") + "_"
        while name in names:
            name += "_"
        names.append(name)
    return names


def runner(backend: Callable, options: Any, native: Any, names: list[str], inputs: tuple) -> Callable:
    """Passes a program to a backend. Returns a function of its inputs that writes the inputs that the
    program writes, and returns its results.
    """
    module, written = graph_module_of(native, names)
    title = getattr(backend, "__name__", type(backend).__name__)
    try:
        compiled = backend(module, list(inputs), **({} if options is None else {"options": options}))
    except Exception as e:
        text = f"compile: the backend {title} raised {type(e).__name__}: {e}"
        raise BackendCompilerFailed(text) from e
    if not callable(compiled):
        raise TypeError(f"compile: the backend {title} gave {compiled!r}, which is no function")
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    count = len(output.args[0])

    def run(*tensors: Any) -> tuple:
        results = compiled(*tensors)
        results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        if len(results) != count:
            raise RuntimeError(
                f"compile: the backend {title} gives {len(results)} results, the graph has {count}"
            )
        for r in results:
            if r is not None and not isinstance(r, _C.Tensor):
                raise RuntimeError(f"compile: the backend {title} gives a {type(r).__name__} for a Tensor")
        end = len(results) - len(written)
        for k, value in zip(written, results[end:]):
            is_leaf = tensors[k].is_leaf and tensors[k].requires_grad  # which only no_grad code writes
            with _C.GradMode(_C.is_grad_enabled() and not is_leaf):
                tensors[k].copy_(value)
        return results[:end]

    return run
