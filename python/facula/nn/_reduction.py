"""The reductions of losses as numbers, and from the two deprecated flags."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]


def get_enum(reduction: str) -> int:
    """0, 1, 2 for 'none', 'mean', 'sum'."""
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2
        )
        return 1
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return ("none", "mean", "sum").index(reduction)


def by_flags(size_average: Any, reduce: Any, stacklevel: int) -> str:
    """Returns the reduction that the two flags select, where None means True. Warns, unless the level is
    0.
    """
    reduces, mean = reduce is None or reduce, size_average is None or size_average
    reduction = ("mean" if mean else "sum") if reduces else "none"
    if stacklevel:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
            stacklevel=stacklevel,
        )
    return reduction


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    return by_flags(size_average, reduce, 3 if emit_warning else 0)


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
