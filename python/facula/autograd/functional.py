"""Derivatives of functions of tensors: the Jacobian and the Hessian, and products with them.

``func`` takes the tensors of ``inputs`` and returns a tensor or a tuple of tensors. With ``create_graph``
the results can be differentiated again; with ``strict`` an output that does not depend on an input is an
error instead of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._modes import enable_grad
from . import grad as _autograd_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensor = _C.Tensor
_f = _C.functions


# ---- conversion between tensors and tuples


def _tuple(x: Any, what: str, function: str) -> tuple[bool, tuple]:
    if isinstance(x, Tensor):
        return False, (x,)
    is_tuple = isinstance(x, (tuple, list))
    for k, t in enumerate(x if is_tuple else (x,)):
        if not isinstance(t, Tensor):
            at = (
                f"; the value at index {k} is a {type(t).__name__}"
                if is_tuple
                else f", not {type(t).__name__}"
            )
            raise TypeError(f"{function}: {what} must be a Tensor or a tuple of Tensors{at}")
    return is_tuple, tuple(x)


def _shaped(x: tuple, *nested: bool) -> Any:
    """Removes the tuple levels of ``x`` where the caller passed a single tensor."""
    if len(nested) == 2:
        x = tuple(_shaped(row, nested[1]) for row in x)
    return x if nested[0] else x[0]


def _variables(inputs: tuple, create_graph: bool) -> tuple:
    """Returns the variables of differentiation: on the caller's tape if results have to be
    differentiable.
    """
    return tuple(
        t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs
    )


def _detached(x: Any) -> Any:
    return tuple(_detached(t) for t in x) if isinstance(x, tuple) else x.detach()


def _checked_v(v: Any, other: tuple, is_tuple: bool, function: str, what: str) -> tuple:
    """Checks that ``v`` has the shapes of ``other``; if it is omitted and there is one element, it is
    one.
    """
    if v is None:
        if len(other) != 1 or other[0].numel() != 1:
            raise RuntimeError(
                f"{function}: the vector v can be left out only if the {what} of the function is a single "
                "Tensor "
                "with a single element"
            )
        return tuple(_f.ones_like(t) for t in other)
    _, v = _tuple(v, "v", function)
    if len(v) != len(other):
        raise RuntimeError(f"{function}: v has {len(v)} elements, but the function has {len(other)} {what}s")
    for k, (a, b) in enumerate(zip(v, other)):
        if a.shape != b.shape:
            at = f"entry {k} of " if is_tuple or len(other) > 1 else ""
            raise RuntimeError(
                f"{function}: {at}v has size {tuple(a.shape)}, but the {what} has size {tuple(b.shape)}"
            )
    return v


def _graph_needed(tensors: tuple, what: str, function: str) -> None:
    for k, t in enumerate(tensors):
        if not t.requires_grad:
            raise RuntimeError(
                f"{function}: {what} {k} of the function is independent of the inputs, which strict=True "
                "does not allow"
            )


def _grads(outputs: tuple, inputs: tuple, v: Any, create_graph: bool, keep: bool = False) -> tuple:
    """Returns the gradients, with None where nothing depends on an input."""
    pairs = [(y, w) for y, w in zip(outputs, v) if y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return _autograd_grad(
        [y for y, _ in pairs],
        inputs,
        [w for _, w in pairs],
        allow_unused=True,
        create_graph=create_graph,
        retain_graph=keep or create_graph,
    )


def _filled(grads: tuple, like: tuple, strict: bool, create_graph: bool, function: str) -> tuple:
    """Replaces None by zeros; with strict, None and results that are off the tape are errors."""
    filled = []
    for k, (g, x) in enumerate(zip(grads, like)):
        if strict and g is None:
            raise RuntimeError(
                f"{function}: the output of the function is independent of input {k}, which strict=True does "
                "not allow"
            )
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError(
                f"{function}: the derivative for input {k} is independent of the inputs, which strict=True "
                "does not "
                "allow with create_graph=True"
            )
        filled.append(_f.zeros_like(x) if g is None else g)
    return tuple(filled)


def _loose(create_graph: bool, *values: Any) -> Any:
    values = values if create_graph else tuple(_detached(v) for v in values)
    return values if len(values) > 1 else values[0]


def _check_real(outputs: tuple, function: str) -> None:
    """Checks that outputs are real: without cotangents, the gradient of a complex output is undefined."""
    for y in outputs:
        if y.is_complex() and y.requires_grad:
            raise RuntimeError(
                f"{function}: grad can be implicitly created only for real scalar outputs but got {y.dtype}"
            )


def _one_number(outputs: tuple, is_tuple: bool, function: str) -> Tensor:
    if is_tuple or len(outputs) != 1:
        raise RuntimeError(f"{function}: the function must give a single Tensor, not a tuple")
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"{function}: the function must give a Tensor with a single element, not "
            f"{tuple(outputs[0].shape)}"
        )
    return outputs[0]


# ---- products


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """Returns ``(func(*inputs), v^T J)``, with ``v`` in the shape of the output.

    >>> from facula.autograd.functional import vjp
    >>> vjp(lambda x: x.exp().sum(), facula.zeros(2))
    (tensor(2.), tensor([1., 1.]))
    """
    with enable_grad():
        several, inputs = _tuple(inputs, "inputs", "vjp")
        inputs = _variables(inputs, create_graph)
        many, outputs = _tuple(func(*inputs), "the output of the function", "vjp")
        if strict:
            _graph_needed(outputs, "output", "vjp")
        if v is None:
            _check_real(outputs, "vjp")
        v = _checked_v(v, outputs, many, "vjp", "output")
        grads = _filled(_grads(outputs, inputs, v, create_graph), inputs, strict, create_graph, "vjp")
    outputs, grads = _loose(create_graph, outputs, grads)
    return _shaped(outputs, many), _shaped(grads, several)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """Returns ``(func(*inputs), J v)``, with ``v`` in the shape of the inputs: by differentiating the
    gradient, which is linear in the cotangent.
    """
    with enable_grad():
        several, inputs = _tuple(inputs, "inputs", "jvp")
        inputs = _variables(inputs, create_graph)
        v = _checked_v(v, inputs, several, "jvp", "input")
        many, outputs = _tuple(func(*inputs), "the output of the function", "jvp")
        if strict:
            _graph_needed(outputs, "output", "jvp")
        arriving = tuple(_f.zeros_like(y, requires_grad=True) for y in outputs)
        grads = _filled(_grads(outputs, inputs, arriving, True), inputs, strict, False, "jvp")
        products = _filled(_grads(grads, arriving, v, create_graph), outputs, strict, create_graph, "jvp")
    outputs, products = _loose(create_graph, outputs, products)
    return _shaped(outputs, many), _shaped(products, many)


def _gradient(func: Callable, inputs: tuple, strict: bool, function: str) -> tuple[Tensor, tuple]:
    is_tuple, outputs = _tuple(func(*inputs), "the output of the function", function)
    y = _one_number(outputs, is_tuple, function)
    _check_real(outputs, function)
    if strict:
        _graph_needed(outputs, "output", function)
    return y, _filled(_grads((y,), inputs, (_f.ones_like(y),), True), inputs, strict, strict, function)


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """Returns ``(func(*inputs), v^T H)`` for a function with a scalar result."""
    with enable_grad():
        several, inputs = _tuple(inputs, "inputs", "vhp")
        inputs = _variables(inputs, create_graph)
        v = _checked_v(v, inputs, several, "vhp", "input")
        y, gradient = _gradient(func, inputs, strict, "vhp")
        products = _filled(_grads(gradient, inputs, v, create_graph), inputs, strict, create_graph, "vhp")
    y, products = _loose(create_graph, y, products)
    return y, _shaped(products, several)


def hvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """Returns ``(func(*inputs), H v)`` for a function with a scalar result; ``vhp`` is cheaper, and equal
    if the Hessian is symmetric.
    """
    with enable_grad():
        several, inputs = _tuple(inputs, "inputs", "hvp")
        inputs = _variables(inputs, create_graph)
        v = _checked_v(v, inputs, several, "hvp", "input")
        y, gradient = _gradient(func, inputs, strict, "hvp")
        arriving = tuple(_f.zeros_like(g, requires_grad=True) for g in gradient)
        twice = _filled(_grads(gradient, inputs, arriving, True), inputs, strict, False, "hvp")
        products = _filled(_grads(twice, arriving, v, create_graph), inputs, strict, create_graph, "hvp")
    y, products = _loose(create_graph, y, products)
    return y, _shaped(products, several)


# ---- Jacobian and Hessian matrices


def _forward_jacobian(func: Callable, inputs: Any) -> Any:
    """Computes all columns at once, by vmap over the tangents."""
    from .._vmap import _call
    from ..func import _basis
    from . import forward_ad

    several, inputs = _tuple(inputs, "inputs", "jacobian")
    many = False

    def columns_of(*tangents: Tensor) -> tuple:
        nonlocal many
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(x.detach(), t) for x, t in zip(inputs, tangents)]
            many, outputs = _tuple(func(*duals), "the output of the function", "jacobian")
            unpacked = [forward_ad.unpack_dual(y) for y in outputs]
            return tuple(_f.zeros_like(p) if t is None else t for p, t in unpacked)

    columns = _call(columns_of, 0, 0, "error", None, tuple(_basis(list(inputs))), {}, True)
    rows = []
    for c in columns:
        start, row = 0, []
        for x in inputs:
            part = c[start : start + x.numel()].movedim(0, -1)
            row.append(part.reshape((*part.shape[:-1], *x.shape)))
            start += x.numel()
        rows.append(tuple(row))
    return _shaped(_loose(False, tuple(rows)), many, several)


def _reverse_jacobian(outputs: tuple, inputs: tuple, create_graph: bool) -> tuple:
    """Computes all rows at once, as gradients for a batch of unit vectors."""
    from ..func import _basis

    pairs = [(y, b) for y, b in zip(outputs, _basis(list(outputs))) if y.requires_grad]
    gradients: Any = [None] * len(inputs)
    if pairs:
        gradients = _autograd_grad(
            [y for y, _ in pairs],
            inputs,
            [b for _, b in pairs],
            create_graph=create_graph,
            allow_unused=True,
            is_grads_batched=True,
        )
    total, start, rows = sum(y.numel() for y in outputs), 0, []
    complete = [
        _f.zeros(total, *x.shape, dtype=x.dtype, device=x.device) if g is None else g
        for g, x in zip(gradients, inputs)
    ]
    for y in outputs:
        stop = start + y.numel()
        rows.append(tuple(g[start:stop].reshape((*y.shape, *g.shape[1:])) for g in complete))
        start = stop
    return tuple(rows)


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Returns the Jacobian: a tensor of shape ``O + I`` for output and input tensors of shapes ``O`` and
    ``I``; a tuple for several inputs, and a tuple over outputs for several outputs.

    >>> from facula.autograd.functional import jacobian
    >>> jacobian(lambda x: x * x, facula.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'jacobian: strategy must be either "forward-mode" or "reverse-mode", not "{strategy}"'
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError("jacobian: create_graph=True needs strategy='reverse-mode'")
        if not vectorize:
            raise NotImplementedError(
                "jacobian: strategy='forward-mode' needs vectorize=True; without it use "
                "strategy='reverse-mode'"
            )
        return _forward_jacobian(func, inputs)
    if strict and vectorize:
        raise RuntimeError("jacobian: strict=True and vectorize=True do not go together")
    with enable_grad():
        several, inputs = _tuple(inputs, "inputs", "jacobian")
        inputs = _variables(inputs, create_graph)
        many, outputs = _tuple(func(*inputs), "the output of the function", "jacobian")
        if strict:
            _graph_needed(outputs, "output", "jacobian")
        if vectorize and all(y.numel() for y in outputs):
            rows = _reverse_jacobian(outputs, inputs, create_graph)
            return _shaped(_loose(create_graph, rows), many, several)
        _check_real(outputs, "jacobian")
        rows = []
        for y in outputs:
            rows_of: list[list[Tensor]] = [[] for _ in inputs]
            for e in range(y.numel()):
                v = _f.zeros(y.numel(), dtype=y.dtype, device=y.device)
                v[e] = 1
                grads = _grads((y,), inputs, (v.view(y.shape),), create_graph, keep=True)
                for k, g in enumerate(_filled(grads, inputs, strict, create_graph, "jacobian")):
                    rows_of[k].append(g)
            rows.append(
                tuple(
                    (_f.stack(g) if g else _f.zeros(0, *x.shape, dtype=x.dtype, device=x.device)).reshape(
                        (*y.shape, *x.shape)
                    )
                    for g, x in zip(rows_of, inputs)
                )
            )
    return _shaped(_loose(create_graph, tuple(rows)), many, several)


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Returns the Hessian of a function with a scalar result: for inputs ``i`` and ``j`` a tensor of
    shape ``I_i + I_j``; a tuple of tuples for several inputs.
    """
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'hessian: outer_jacobian_strategy must be either "forward-mode" or "reverse-mode", not '
            f'"{outer_jacobian_strategy}"'
        )
    several, inputs = _tuple(inputs, "inputs", "hessian")
    forward = outer_jacobian_strategy == "forward-mode"

    def gradient(*args: Tensor) -> Any:
        def number(*xs: Tensor) -> Tensor:
            is_tuple, outputs = _tuple(func(*xs), "the output of the function", "hessian")
            y = _one_number(outputs, is_tuple, "hessian")
            if strict:
                _graph_needed(outputs, "output", "hessian")
            return y.reshape(())

        if forward:
            variables = tuple(x.view_as(x).requires_grad_() for x in args)
            y = number(*variables)
            return _filled(
                _grads((y,), variables, (_f.ones_like(y),), True), variables, strict, False, "hessian"
            )
        return _tuple(jacobian(number, args, create_graph=True, strict=strict), "", "")[1]

    rows = jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)
    return _shaped(rows, several, several)
