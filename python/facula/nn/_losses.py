"""Losses of ``facula.nn.functional`` with a user-defined distance, and of a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C

Tensor = _C.Tensor


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """:func:`cross_entropy` of the logits ``linear(input, linear_weight, linear_bias)``.

    ``linear_weight`` is ``[classes, *, features]``; each position of the dimensions in between has its
    own loss.

    >>> F.linear_cross_entropy(facula.ones(2, 3), facula.zeros(4, 3), facula.tensor([0, 3]))
    tensor(1.3863)
    """
    chunk = None
    if options is not None:
        chunk = options.rows(input.shape[0], input.shape[-1], linear_weight.shape[0])
    return _C.nn_functional.linear_cross_entropy(
        input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
        ignore_index=ignore_index, label_smoothing=label_smoothing, rows=chunk,
    )  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with a distance that the caller passes."""
    distance = _C.ops.pairwise_distance if distance_function is None else distance_function
    _C.ops._check_triplet(anchor, positive, negative, margin)
    swapped = distance(positive, negative) if swap else None
    return _C.ops._triplet(distance(anchor, positive), distance(anchor, negative), swapped, margin, reduction)
