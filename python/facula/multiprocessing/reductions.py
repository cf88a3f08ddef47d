"""Pickling of tensors for multiprocessing."""

from multiprocessing.reduction import ForkingPickler as ForkingPickler

from .._shared import reduced_for_process as reduce_tensor


def init_reductions() -> None:
    """Has no effect: importing this package has done it."""


__all__ = ["ForkingPickler", "init_reductions", "reduce_tensor"]
