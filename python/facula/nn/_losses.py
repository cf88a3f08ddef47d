"""Losses of ``facula.nn.functional`` of a function of the user's, and of a linear map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions


def _by_chunks(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    options: Any,
) -> Tensor:
    n, classes = input.shape[0], linear_weight.shape[0]
    rows = options.rows(n, input.shape[1], classes)
    total: Any = _C.ops._linear_cross_entropy(
        input, linear_weight, target, bias, weight, ignore_index, label_smoothing, rows
    )[0]
    if reduction == "sum":
        return total
    if target.is_floating_point():
        return total / n
    valid = target != ignore_index
    if weight is None:
        return total / valid.sum()
    return total / (weight[target.where(valid, _f.zeros_like(target))] * valid).sum()


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

    ``linear_weight`` is ``[classes, *, features]``; dimensions between give a loss for each of their places.

    >>> F.linear_cross_entropy(facula.ones(2, 3), facula.zeros(4, 3), facula.tensor([0, 3]))
    tensor(1.3863)
    """
    from .functional import cross_entropy, linear

    shapes = f"input {list(input.shape)}, linear_weight {list(linear_weight.shape)}"
    if input.dim() not in (1, 2) or linear_weight.dim() < 2 or input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "linear_cross_entropy: expected input of 1 or 2 dimensions and linear_weight of at least 2, with "
            f"as many features in the last one, got {shapes}"
        )
    classes, *places, features = linear_weight.shape
    if linear_bias is not None and list(linear_bias.shape) != [classes, *places]:
        raise RuntimeError(
            f"linear_cross_entropy: expected linear_bias of shape {[classes, *places]}, got "
            f"{list(linear_bias.shape)}"
        )
    if places and input.dim() == 1:
        raise RuntimeError(
            f"linear_cross_entropy: a loss for several places needs batched input, got {shapes}"
        )
    logits_shape = [*input.shape[:-1], classes, *places]
    if ignore_index is not None and list(target.shape) == logits_shape:
        raise RuntimeError(
            "linear_cross_entropy: ignore_index cannot be specified when target contains probabilities"
        )
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    indices = not target.is_floating_point() and target.dtype != _C.bool
    chunked = options is not None and input.dim() == 2 and not places and reduction in ("mean", "sum")
    # The chunks have no gradient of the target.
    if chunked and not target.requires_grad:
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be between 0.0 and 1.0, got {label_smoothing}")
        expected = [input.shape[0]] if indices else logits_shape
        if list(target.shape) != expected:
            raise ValueError(
                f"linear_cross_entropy: expected target of shape {expected}, got {list(target.shape)}"
            )
        ignored = -100 if ignore_index is None else ignore_index
        return _by_chunks(
            input, linear_weight, target, bias, weight, reduction, ignored, float(label_smoothing), options
        )
    if options is not None and input.dtype in (_C.float16, _C.bfloat16):
        # As by chunks: logits are not rounded to 16 bits.
        wide = linear_cross_entropy(
            input.float(),
            linear_weight.float(),
            target.float() if target.is_floating_point() else target,
            linear_bias=None if linear_bias is None else linear_bias.float(),
            weight=None if weight is None else weight.float(),
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )
        return wide.to(input.dtype)
    logits = linear(input, linear_weight.reshape(-1, features), bias).reshape(logits_shape)
    return cross_entropy(
        logits,
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


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
    """triplet_margin_loss with a distance of the caller's."""
    distance = _C.ops.pairwise_distance if distance_function is None else distance_function
    _C.ops._check_triplet(anchor, positive, negative, margin)
    swapped = distance(positive, negative) if swap else None
    return _C.ops._triplet(distance(anchor, positive), distance(anchor, negative), swapped, margin, reduction)
