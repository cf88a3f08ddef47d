"""Helpers on parameters and gradients."""

from __future__ import annotations

from collections.abc import Iterable

from ... import _C

Tensor = _C.Tensor


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scales gradients in place so that their total norm is at most ``max_norm``; returns the norm before."""
    grads = [
        p.grad for p in ([parameters] if isinstance(parameters, Tensor) else parameters) if p.grad is not None
    ]
    if not grads:
        return _C.tensor(0.0)
    with _C.GradMode(False):
        total = _C.functions.stack([g.norm(norm_type) for g in grads]).norm(norm_type)
        if error_if_nonfinite and not bool(total.isfinite()):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so "
                f"it cannot be clipped."
            )
        scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for g in grads:
            g.mul_(scale)
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limits every gradient to [-clip_value, clip_value] in place."""
    with _C.GradMode(False):
        for p in [parameters] if isinstance(parameters, Tensor) else parameters:
            if p.grad is not None:
                p.grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector."""
    return _C.functions.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes a vector back into the parameters."""
    at = 0
    with _C.GradMode(False):
        for p in parameters:
            p.copy_(vec[at : at + p.numel()].view_as(p))
            at += p.numel()
