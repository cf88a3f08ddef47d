"""How multiprocessing pickles tensors."""

from multiprocessing.reduction import ForkingPickler as ForkingPickler

from .._shared import reduced_for_process as reduce_tensor


def init_reductions() -> None:
    """What importing this package did."""


__all__ = ["ForkingPickler", "init_reductions", "reduce_tensor"]
