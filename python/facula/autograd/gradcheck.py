"""Compares gradients with finite differences.

Both are written as real matrices: each real number of an input (a complex one has two) by each real
number of an output. With a cotangent g, a gradient is d Re(conj(g) * output) / d Re(input) + i d
Re(conj(g) * output) / d Im(input).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from .. import _C
from . import forward_ad

Tensor = _C.Tensor


class GradcheckError(RuntimeError):
    """Raised if a gradient does not agree with finite differences."""


def _differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _tensors(x: Any) -> tuple:
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _reals(t: Tensor) -> list[float]:
    """Returns the real numbers of a tensor, in row-major order."""
    flat = t.detach().reshape(-1).tolist()
    return [part for z in flat for part in (z.real, z.imag)] if t.is_complex() else flat


def _positions(t: Tensor) -> Any:
    return itertools.product(*(range(n) for n in t.shape))


def _numerical(f: Callable[[], tuple], x: Tensor, eps: float) -> list[list[list[float]]]:
    """Returns rows[real number of x][output] = derivatives of the output's real numbers."""
    rows = []
    data = x.data
    for at in _positions(x):
        for direction in (1.0, 1.0j) if x.is_complex() else (1.0,):
            before = data[at].item()
            data[at] = before + eps * direction
            upper = [_reals(y) for y in f()]
            data[at] = before - eps * direction
            lower = [_reals(y) for y in f()]
            data[at] = before
            rows.append([[(a - b) / (2 * eps) for a, b in zip(up, down)] for up, down in zip(upper, lower)])
    return rows


def _analytical(y: Tensor, inputs: list[Tensor]) -> list[list[list[float]]]:
    """Returns columns[real number of y][input] = the gradient's real numbers."""
    columns = []
    for at in _positions(y):
        for direction in (1.0, 1.0j) if y.is_complex() else (1.0,):
            cotangent = _C.functions.zeros_like(y.detach())
            cotangent[at] = direction
            grads = _C.grad([y], inputs, [cotangent], True, False, True)
            for g, x in zip(grads, inputs):
                if g is not None and (g.shape != x.shape or g.dtype != x.dtype):
                    raise GradcheckError(
                        f"the gradient has shape {list(g.shape)} and {g.dtype}, its input {list(x.shape)} "
                        f"and {x.dtype}"
                    )
            columns.append(
                [
                    [0.0] * (x.numel() * (2 if x.is_complex() else 1)) if g is None else _reals(g)
                    for g, x in zip(grads, inputs)
                ]
            )
    return columns


def _batched(y: Tensor, inputs: list[Tensor]) -> list[list[list[float]]]:
    """The same as ``_analytical``, by one backward with all cotangents."""
    from . import grad

    cotangents = []
    for at in _positions(y):
        for direction in (1.0, 1.0j) if y.is_complex() else (1.0,):
            cotangents.append(_C.functions.zeros_like(y.detach()))
            cotangents[-1][at] = direction
    if not cotangents:
        return []
    try:
        grads = grad(y, inputs, _C.functions.stack(cotangents), retain_graph=True, allow_unused=True,
                     is_grads_batched=True)  # fmt: skip
    except RuntimeError as error:
        raise GradcheckError(f"While computing gradients of a batch, got:\n{error}") from error
    return [
        [
            [0.0] * (x.numel() * (2 if x.is_complex() else 1)) if g is None else _reals(g[k])
            for g, x in zip(grads, inputs)
        ]
        for k in range(len(cotangents))
    ]


def _tangents(func: Callable, inputs: tuple, x: Tensor) -> list[list[list[float]]]:
    """Returns rows[real number of x][output] like ``_numerical``, by forward mode."""
    rows = []
    for at in _positions(x):
        for direction in (1.0, 1.0j) if x.is_complex() else (1.0,):
            tangent = _C.functions.zeros_like(x.detach())
            tangent[at] = direction
            with forward_ad.dual_level():
                dual_inputs = [forward_ad.make_dual(t, tangent) if t is x else t for t in inputs]
                ys = [y for y in _tensors(func(*dual_inputs)) if _differentiable(y)]
                duals = [forward_ad.unpack_dual(y) for y in ys]
                rows.append(
                    [[0.0] * len(_reals(d.primal)) if d.tangent is None else _reals(d.tangent) for d in duals]
                )
    return rows


def _same(first: list, second: list, tolerance: float, complaint: str, n: int) -> None:
    for columns, others in zip(first, second):
        for k, (column, other) in enumerate(zip(columns, others)):
            for a, b in zip(column, other):
                if not (abs(a - b) <= tolerance or (a != a and b != b)):
                    raise GradcheckError(
                        f"{complaint}: the gradient of output {n} for input {k} was {a:.8g}, then {b:.8g}"
                    )


def _place(t: Tensor, real: int) -> str:
    part = ""
    if t.is_complex():
        part, real = (" (imaginary part)" if real % 2 else " (real part)"), real // 2
    index = []
    for n in reversed(t.shape):
        index.append(real % n)
        real //= n
    return f"{index[::-1]}{part}"


def _table(m: list[list[float]]) -> str:
    shown = [" ".join(f"{v: .6g}" for v in row[:8]) + (" ..." if len(row) > 8 else "") for row in m[:8]]
    return "\n    ".join(shown + (["..."] if len(m) > 8 else []))


def _compare(
    numerical: list[list[float]],
    analytical: list[list[float]],
    x: Tensor,
    y: Tensor,
    k: int,
    n: int,
    atol: float,
    rtol: float,
    mode: str,
) -> None:
    worst, at = -1.0, (0, 0)
    for i, (row_n, row_a) in enumerate(zip(numerical, analytical)):
        for j, (a, b) in enumerate(zip(row_n, row_a)):
            excess = abs(a - b) - (atol + rtol * abs(a))
            if not excess <= 0 and not (a == b) and (excess != excess or excess > worst):
                worst, at = (float("inf") if excess != excess else excess), (i, j)
    if worst < 0:
        return
    i, j = at
    raise GradcheckError(
        f"Jacobian mismatch for output {n} with respect to input {k},\nd output{_place(y, j)} / d "
        f"input{_place(x, i)} is "
        f"{numerical[i][j]:.8g} by finite differences and {analytical[i][j]:.8g} by {mode}.\n"
        f"  input {k}: shape {list(x.shape)}, {x.dtype}; output {n}: shape {list(y.shape)}, {y.dtype}; "
        f"atol {atol}, rtol {rtol}\n"
        f"  numerical (a row for each number of the input):\n    {_table(numerical)}\n  analytical:\n    "
        f"{_table(analytical)}"
    )


def _check_undefined(ys: tuple) -> None:
    """Checks that the custom functions that produced ``ys`` treat None as a gradient of zeros, for all of
    their outputs and for one of several. Operators do, and no node is called without any gradient.
    """
    by_node: dict[Any, list[Tensor]] = {}
    for y in ys:
        if y.grad_fn is not None and hasattr(y.grad_fn, "saved_tensors"):
            by_node.setdefault(y.grad_fn, []).append(y)
    for node, outputs in by_node.items():
        cotangents = [None] * len(node._input_metadata)
        calls = [cotangents]
        for missing in outputs if len(outputs) > 1 else []:
            calls.append(list(cotangents))
            for y in outputs:
                calls[-1][y.output_nr] = None if y is missing else _C.functions.zeros_like(y)
        for call in calls:
            try:
                grads = node(*call)
            except RuntimeError as error:
                raise GradcheckError(
                    f"Expected backward function to handle undefined output grads, but it raised: {error}"
                ) from error
            gradients = grads if isinstance(grads, tuple) else (grads,)
            if any(g is not None and not (g == 0).all() for g in gradients):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or "
                    "zero."
                )


def gradcheck(
    func: Callable,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Checks that the gradients of ``func(*inputs)`` agree with central differences.

    Inputs that require gradients should be float64 or complex128. Every element is checked, also with
    ``fast_mode``; repeated computations must give the same gradients (up to ``nondet_tol``) in the dtypes
    of the inputs. ``check_undefined_grad`` requires that custom functions treat None as a gradient of
    zeros, ``check_forward_ad`` compares derivatives in forward mode too, and ``check_batched_grad``
    compares gradients for many cotangents at once (``is_grads_batched``) with single ones.
    """
    if not (check_backward_ad or check_forward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad:
        raise NotImplementedError(
            "gradcheck: check_batched_forward_grad is not supported; check_forward_ad=True checks tangents "
            "one by one"
        )
    asked = {
        "backward": check_backward_ad,
        "undefined": check_backward_ad and check_undefined_grad,
        "batched": check_batched_grad,
        "forward": check_forward_ad,
    }
    modes = [mode for mode, wanted in asked.items() if wanted]
    try:
        return _gradcheck(func, inputs, eps, atol, rtol, nondet_tol, modes)
    except GradcheckError:
        if raise_exception:
            raise
        return False


def _gradcheck(
    func: Callable, inputs: Any, eps: float, atol: float, rtol: float, nondet_tol: float, modes: list[str]
) -> bool:
    inputs = _tensors(inputs)
    checked = [x for x in inputs if _differentiable(x) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor that requires gradient, but none of them have "
            "requires_grad=True."
        )
    for k, x in enumerate(checked):
        if x.dtype not in (_C.float64, _C.complex128):
            import warnings

            warnings.warn(
                f"Input #{k} requires gradient and is not a double precision floating point or complex. "
                f"This check will likely "
                "fail if all the inputs are not of double precision floating point or complex.",
                stacklevel=4,
            )
        if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape)):
            raise RuntimeError(
                f"gradcheck: input {k} has overlapping memory (a stride of 0); give a contiguous copy"
            )

    def outputs() -> tuple:
        return tuple(y for y in _tensors(func(*inputs)) if _differentiable(y))

    ys = outputs()
    if not ys:
        raise ValueError("gradcheck expects func to give at least one floating point or complex tensor")
    numerical = [_numerical(outputs, x, eps) for x in checked]
    forward = [_tangents(func, inputs, x) for x in checked] if "forward" in modes else None
    for n, y in enumerate(ys):
        columns = _analytical(y, checked) if y.requires_grad and "backward" in modes else None
        if columns is not None:
            _same(columns, _analytical(y, checked), nondet_tol, "Backward is not reentrant", n)
            if "batched" in modes:
                _same(columns, _batched(y, checked), atol, "Backward of a batch is another", n)
        for k, x in enumerate(checked):
            by_input = [row[n] for row in numerical[k]]
            if forward is not None:
                _compare(by_input, [row[n] for row in forward[k]], x, y, k, n, atol, rtol, "forward mode")
            if columns is None:
                backward = [[0.0] * len(row) for row in by_input]
            else:
                backward = [[c[k][i] for c in columns] for i in range(len(by_input))]
            if "backward" in modes:
                _compare(by_input, backward, x, y, k, n, atol, rtol, "backward")
    if "undefined" in modes:
        _check_undefined(outputs())
    return True


def gradgradcheck(
    func: Callable,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Checks that the gradients of the gradients agree with finite differences.

    Uses backward of the backward; with ``check_fwd_over_rev`` also forward mode of it. Other arguments
    are those of :func:`gradcheck`.
    """
    inputs = _tensors(inputs)
    ys = [y for y in _tensors(func(*inputs)) if _differentiable(y) and y.requires_grad]
    if grad_outputs is None:
        cotangents = []
        for y in ys:
            g = _C.functions.randn(list(y.shape), dtype=_C.float64)
            if y.is_complex():
                g = g + _C.functions.randn(list(y.shape), dtype=_C.float64) * 1j
            if gen_non_contig_grad_outputs and y.dim():
                g = _C.functions.stack([g, g], -1)[..., 0]
            cotangents.append(g.to(y.dtype).detach().requires_grad_())
    else:
        cotangents = list(_tensors(grad_outputs))
    count = len(cotangents)

    def first_gradients(*args: Any) -> tuple:
        arguments, weights = args[:-count], args[-count:]
        outputs = [y for y in _tensors(func(*arguments)) if _differentiable(y) and y.requires_grad]
        wanted = [x for x in arguments if _differentiable(x) and x.requires_grad]
        return tuple(g for g in _C.grad(outputs, wanted, list(weights), True, True, True) if g is not None)

    return gradcheck(
        first_gradients,
        (*inputs, *cotangents),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )
