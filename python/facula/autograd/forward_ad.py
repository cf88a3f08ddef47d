"""Forward-mode differentiation: tensors that carry tangents within a level.

Every operator has a tangent, which is derived from its gradient, a linear function of the incoming
gradient.

Example::

    with dual_level():
        x = make_dual(primal, tangent)
        y = f(x)
        value, product = unpack_dual(y)  # product: the Jacobian of f times tangent
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _C
from .function import leave

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

Tensor = _C.Tensor


class UnpackedDualTensor(NamedTuple):
    """The result of :func:`unpack_dual`."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enters the level: tensors of this thread may carry tangents until it is left."""
    leave()
    _C.enter_forward_level()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leaves the level and discards all tangents."""
    if level not in (None, 0):
        raise RuntimeError(
            f"Trying to exit a forward AD level that was not the last one that was created: {level}"
        )
    _C.exit_forward_level()


class dual_level:
    """A context manager for the level."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()


def _check(what: str, level: int | None) -> None:
    if level not in (None, 0) or not _C.forward_level():
        raise RuntimeError(
            f"{what}: not inside of a dual level; use `with forward_ad.dual_level():` around it"
        )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of ``tensor`` that carries ``tangent``, of the same shape and dtype."""
    _check("make_dual", level)
    for name, x in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(x, Tensor):
            raise ValueError(f"make_dual: expected {name} to be a tensor, not {type(x).__name__}")
    if _C.vmap_level():
        return _C.make_dual(tensor, tangent)
    dual = _C.pause_forward(tensor.view_as, tensor)
    _C.set_tangent(dual, tangent)
    return dual


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Returns the tensor without its tangent, and the tangent, or None if it has none."""
    if not _C.forward_level():
        return UnpackedDualTensor(tensor, None)
    tangent = _C.tangent_of(tensor)
    return UnpackedDualTensor(
        tensor if tangent is None else _C.pause_forward(tensor.view_as, tensor), tangent
    )
