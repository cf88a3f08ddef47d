"""Gradients: backward, grad, functions with custom gradients, checks, anomaly detection."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .. import _C, _namespace
from .._modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from .. import _modes as grad_mode
from . import forward_ad, graph, variable
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function, FunctionCtx, leave
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .variable import Variable

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]

Tensor = _C.Tensor


class set_multithreading_enabled:
    """Has no effect: sets whether gradients of other devices have separate threads, and there is only the
    CPU.
    """

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def _is_checkpoint_valid() -> bool:
    """True: checkpoints may be used in every backward pass, that of ``grad`` too."""
    return True


def _list(x: Any) -> list:
    return [x] if isinstance(x, (Tensor, graph.GradientEdge)) else list(x)


def _tensors(x: list) -> list:
    """Replaces each edge of the graph by a tensor that represents it."""
    return [_C.tensor_at_edge(*t) if isinstance(t, graph.GradientEdge) else t for t in x]


def _or_none(x: Any, n: int) -> list | None:
    if x is None:
        return None
    x = _list(x)
    return None if not x or (len(x) == n and all(g is None for g in x)) else x


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of ``tensors``, weighted by ``grad_tensors``, to ``.grad`` of the leaves, or
    only of ``inputs``.
    """
    leave()
    tensors = _tensors(_list(tensors))
    if grad_variables is not None:
        import warnings

        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) are both given; use the former"
            )
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _tensors(_list(inputs))
        if not inputs:
            raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    _C.backward(tensors, _or_none(grad_tensors, len(tensors)), retain_graph, create_graph, inputs)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Returns the gradients of ``outputs``, weighted by ``grad_outputs``, for ``inputs``; accumulates
    nothing.
    """
    several = [x if isinstance(x, (list, tuple)) else (x,) for x in (outputs, inputs)]
    if _C.has_torch_function((*several[0], *several[1])):
        return _C.handle_torch_function(
            grad, (*several[0], *several[1]), *map(tuple, several), grad_outputs=grad_outputs,
            retain_graph=retain_graph, create_graph=create_graph, only_inputs=only_inputs,
            allow_unused=allow_unused, is_grads_batched=is_grads_batched,
            materialize_grads=materialize_grads,
        )  # fmt: skip
    leave()
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate "
            f"gradient for other parts of the graph, please use {_C.package_name()}.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    outputs, inputs = _tensors(_list(outputs)), _tensors(_list(inputs))
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    unused = materialize_grads if allow_unused is None else allow_unused
    cotangents = _or_none(grad_outputs, len(outputs))
    if is_grads_batched:
        result = _batched_grad(outputs, inputs, cotangents, retain_graph, create_graph, unused)
    else:
        result = _C.grad(outputs, inputs, cotangents, retain_graph, create_graph, unused)
    if materialize_grads and any(g is None for g in result):
        result = tuple(
            _C.functions.zeros_like(x, requires_grad=create_graph) if g is None else g
            for g, x in zip(result, inputs)
        )
    return result


def _batched_grad(
    outputs: list,
    inputs: list,
    cotangents: list | None,
    retain_graph: bool | None,
    create_graph: bool,
    unused: bool,
) -> tuple:
    """Returns the stacked gradients for each slice of ``cotangents`` along its first dimension."""
    if cotangents is None:
        raise RuntimeError("grad: is_grads_batched=True needs grad_outputs, one slice for each of the batch")
    sizes = {g.shape[0] for g in cotangents if g is not None}
    if len(sizes) != 1:
        raise RuntimeError(f"grad: grad_outputs must have the same first dimension, got {sorted(sizes)}")
    n = sizes.pop()
    level = _C.enter_vmap(n, "same", True)
    try:
        rows = _C.grad(
            outputs,
            inputs,
            [None if g is None else level.enter(g, 0) for g in cotangents],
            retain_graph,
            create_graph,
            unused,
        )
        return tuple(None if g is None else level.leave(g, 0) for g in rows)
    finally:
        level.end()


TYPE_CHECKING = False
_SUBMODULES = "functional profiler profiler_util".split()
if TYPE_CHECKING:
    from ._lazy import *
else:
    __getattr__, __dir__ = _namespace.later(globals(), _SUBMODULES)
