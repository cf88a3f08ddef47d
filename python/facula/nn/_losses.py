"""Losses of ``facula.nn.functional``: PyTorch's arguments around the operators, and losses made of
several.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C
from ..program import require

Tensor = _C.Tensor
_f = _C.functions


def reduction_of(size_average: Any, reduce: Any, reduction: str) -> str:
    """'none', 'mean' or 'sum', from PyTorch's present and former arguments."""
    if size_average is None and reduce is None:
        return reduction
    name = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.",
        stacklevel=3,
    )
    return name


def _called() -> str:
    """The function of this module that the user called, for its errors."""
    frame = sys._getframe(1)
    while frame.f_code.co_name.startswith("_") and frame.f_back:
        frame = frame.f_back
    return frame.f_code.co_name


def _check_reduction(reduction: str) -> str:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(
            f"{_called()}: {reduction} is not a valid value for reduction: 'none', 'mean' or 'sum'"
        )
    return reduction


def _check_broadcast(*tensors: Tensor) -> None:
    from .._functions import broadcast_shapes

    try:
        broadcast_shapes(*(t.shape for t in tensors))
    except RuntimeError as e:
        shapes = ", ".join(str(list(t.shape)) for t in tensors)
        raise RuntimeError(f"{_called()}: shapes {shapes} do not broadcast") from e


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    _check_reduction(reduction)
    return loss


def _warn_of_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if target.shape != input.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the "
            f"same size. ({name})",
            stacklevel=3,
        )


# ---- classification


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of ``softmax(input)`` with class indices or probabilities ``target``.

    Shape: input ``[C]`` or ``[N, C, ...]``; indices ``[]`` or ``[N, ...]``, probabilities as input; a number.

    >>> F.cross_entropy(facula.tensor([[2.0, 0.0], [0.0, 2.0]]), facula.tensor([0, 1]))
    tensor(0.1269)
    """
    if size_average is not None or reduce is not None:
        reduction = reduction_of(size_average, reduce, reduction)
    return _f.cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of log-probabilities ``input`` ``[C]`` or ``[N, C, ...]``.

    >>> F.nll_loss(facula.tensor([[-0.5, -1.0], [-2.0, -0.1]]), facula.tensor([0, 1]))
    tensor(0.3000)
    """
    return _f.nll_loss(input, target, weight, reduction_of(size_average, reduce, reduction), ignore_index)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of probabilities ``input``; all of one shape.

    >>> F.binary_cross_entropy(facula.tensor([0.5, 0.5]), facula.tensor([0.0, 1.0]))
    tensor(0.6931)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    loss = _f.binary_cross_entropy(input, target, weight, reduction)
    valid, target_valid = _C.ops._are_probabilities(input.detach(), target.detach())
    require(
        valid,
        RuntimeError,
        "binary_cross_entropy: all elements of input should be between 0 and 1\n"
        "  hint: binary_cross_entropy_with_logits takes any numbers, without a sigmoid before it",
    )
    require(
        target_valid,
        RuntimeError,
        "binary_cross_entropy: all elements of target should be between 0 and 1",
    )
    return loss


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of ``sigmoid(input)``; input and target of one shape.

    >>> F.binary_cross_entropy_with_logits(facula.tensor([0.0, 2.0]), facula.tensor([0.0, 1.0]))
    tensor(0.4100)
    """
    return _f.binary_cross_entropy_with_logits(
        input, target, weight, reduction_of(size_average, reduce, reduction), pos_weight
    )


def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """log(1 + exp(-target * input)) for targets of -1 and 1."""
    reduction = reduction_of(size_average, reduce, reduction)
    _check_broadcast(input, target)
    return _C.ops._soft_margin_loss(input, target, reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of ``sigmoid(input)``, averaged over the classes, the last dimension."""
    reduction = reduction_of(size_average, reduce, reduction)
    from .._functions import result_type

    dtype = result_type(input, target)
    loss = _f.binary_cross_entropy_with_logits(input.to(dtype), target.to(dtype), weight, "none")
    return _reduced(loss.sum(-1) / input.shape[-1], reduction)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - input[target] + input[k]) ** p, averaged over the classes k; input ``[C]`` or ``[N,
    C]``.
    """
    reduction = _check_reduction(reduction_of(size_average, reduce, reduction))
    if p not in (1, 2):
        raise ValueError(f"{_called()}: only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.dim() != 1:
        raise ValueError(f"{_called()}: weight must be one-dimensional, got {list(weight.shape)}")
    rows = input if input.dim() == 2 else input.reshape(1, -1) if input.dim() == 0 else input.unsqueeze(0)
    index = target.reshape(-1, 1)
    if rows.dim() != 2 or index.shape[0] != rows.shape[0]:
        raise RuntimeError(
            f"multi_margin_loss: expected input [C] or [N, C] and a class for each row, got "
            f"{list(input.shape)} and {list(target.shape)}"
        )
    if target.dtype != _C.int64:
        raise RuntimeError(
            f"multi_margin_loss: expected target of dtype int64, got {target.dtype} {list(target.shape)} for "
            f"input {list(input.shape)}"
        )
    miss = (margin - rows.gather(1, index) + rows).clamp(min=0)
    if p == 2:
        miss = miss * miss
    if weight is not None:
        miss = miss * weight[index]
    others = _f.ones_like(miss).scatter(1, index, 0.0)
    loss = (miss * others).sum(1) / rows.shape[1]
    return _reduced(loss if input.dim() == 2 else loss[0], reduction)


def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """max(0, 1 - input[target] + input[other]) over all targets and others; a row's targets end at the
    first -1.
    """
    reduction = _check_reduction(reduction_of(size_average, reduce, reduction))
    if input.shape != target.shape or input.dim() > 2 or 0 in input.shape[-1:]:
        raise RuntimeError(
            f"multilabel_margin_loss: expected input and target of one shape [], [C] or [N, C], got "
            f"{list(input.shape)} and {list(target.shape)}"
        )
    rows, labels = (t if t.dim() == 2 else t.reshape(1, -1) for t in (input, target))
    counted = (labels < 0).long().cumsum(1) == 0
    index = _f.where(counted, labels, _f.zeros_like(labels))
    hits = _f.zeros_like(rows).scatter_add(1, index, counted.to(rows.dtype))
    gaps = (1 - rows.gather(1, index).unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    gaps = gaps * counted.unsqueeze(2) * (hits == 0).unsqueeze(1)
    loss = gaps.sum((1, 2)) / rows.shape[1]
    return _reduced(loss if input.dim() == 2 else loss[0], reduction)


# ---- regression


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean squared error; with ``weight``, of weighted squares.

    >>> F.mse_loss(facula.tensor([1.0, 2.0]), facula.tensor([1.0, 4.0]))
    tensor(2.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _warn_of_broadcast("mse_loss", input, target)
    if weight is None:
        return _f.mse_loss(input, target, reduction)
    return _weighted(_f.mse_loss(input, target, "none"), weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Mean absolute error.

    >>> F.l1_loss(facula.tensor([1.0, 2.0]), facula.tensor([1.0, 4.0]))
    tensor(1.)
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _warn_of_broadcast("l1_loss", input, target)
    if weight is None:
        return _f.l1_loss(input, target, reduction)
    return _weighted(_f.l1_loss(input, target, "none"), weight, reduction)


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    if weight.shape != loss.shape:
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    return loss.sum() / weight.sum() if reduction == "mean" else _reduced(loss, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared error / (2 beta) where the error is below ``beta``, else absolute error - beta / 2.

    >>> F.smooth_l1_loss(facula.tensor([0.0, 0.0]), facula.tensor([0.5, 2.0]), reduction="none")
    tensor([0.1250, 1.5000])
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _warn_of_broadcast("smooth_l1_loss", input, target)
    return _f.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared error / 2 where the error is at most ``delta``, else delta * (absolute error - delta / 2)."""
    _warn_of_broadcast("huber_loss", input, target)
    if weight is None:
        return _f.huber_loss(input, target, reduction, delta)
    return _weighted(_f.huber_loss(input, target, "none", delta), weight, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Kullback-Leibler divergence of log-probabilities ``input`` from probabilities ``target``.

    ``reduction="batchmean"`` is the sum by the size of the first dimension: the divergence itself.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    loss = _f.kl_div(input, target, "sum" if reduction == "batchmean" else reduction, log_target=log_target)
    return loss / input.shape[0] if reduction == "batchmean" and input.dim() else loss


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of counts under a Poisson distribution of rate exp(input), or of rate input.

    ``full`` adds Stirling's approximation of log(target!) for targets above 1.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    _check_broadcast(input, target)
    return _C.ops._poisson_nll_loss(input, target, log_input, full, float(eps), reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood under normal distributions of mean ``input`` and variance ``var`` (at least
    eps).
    """
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError(f"gaussian_nll_loss: var has negative entry/entries: {var}")
        var = _f.full_like(input, var)
    else:
        valid = (var.detach() < 0).any().logical_not()
        require(valid, ValueError, "gaussian_nll_loss: var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or [v for n, v in zip(input.shape, var.shape) if n != v] != [1]:
            raise ValueError(
                f"gaussian_nll_loss: var is of incorrect size: {list(var.shape)} for {list(input.shape)}"
            )
    _check_broadcast(input, target)
    return _C.ops._gaussian_nll_loss(input, target, var, full, float(eps), reduction)


# ---- distances and rankings


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Product of the vectors along ``dim``, each divided by its length (at least ``eps``).

    >>> F.cosine_similarity(facula.tensor([[1.0, 0.0]]), facula.tensor([[1.0, 1.0]]))
    tensor([0.7071])
    """
    from .._functions import broadcast_tensors, result_type

    common = result_type(x1, x2)
    if not common.is_floating_point:
        raise RuntimeError(
            f"cosine_similarity: expected common dtype to be floating point, yet common dtype is {common}"
        )
    x1, x2 = broadcast_tensors(x1.to(common), x2.to(common))
    return _C.ops._cosine_similarity(x1, x2, dim, float(eps))


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """p-norm of ``x1 - x2 + eps`` along the last dimension.

    >>> F.pairwise_distance(facula.tensor([[3.0, 4.0]]), facula.tensor([[0.0, 0.0]]))
    tensor([5.0000])
    """
    return (x1 - x2 + float(eps)).norm(p, -1, keepdim=keepdim)


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
    chunk = None
    if options is not None:
        chunk = options.rows(input.shape[0], input.shape[-1], linear_weight.shape[0])
    return _C.nn_functional.linear_cross_entropy(
        input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction,
        ignore_index=ignore_index, label_smoothing=label_smoothing, rows=chunk,
    )  # fmt: skip


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin): target 1 wants input1 higher, -1 input2."""
    reduction = reduction_of(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return _reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """A distance itself where the target is 1, max(0, margin - distance) where it is -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    zero = _f.zeros_like(input)
    far = _f.where(target != 1, (margin - input).clamp(min=0), zero)
    return _reduced(far + _f.where(target != -1, input, zero), reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1; vectors in the last
    dimension.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if target.dim() not in (0, 1) or input1.dim() != target.dim() + 1 or input1.dim() != input2.dim():
        raise RuntimeError(
            f"cosine_embedding_loss: expected inputs [N, D] with target [N], or [D] with [], got "
            f"{list(input1.shape)}, {list(input2.shape)} and {list(target.shape)}"
        )
    tiny = 1e-12
    length = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / length.sqrt()
    zero = _f.zeros_like(cosine)
    loss = _f.where(target == 1, 1 - cosine, zero) + _f.where(
        target == -1, (cosine - margin).clamp(min=0), zero
    )
    return _reduced(loss, reduction)


def _triplet(
    distance: Callable,
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    if margin <= 0:
        raise ValueError(f"{_called()}: margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            f"{_called()}: The anchor, positive, and negative tensors are expected to have the same number "
            f"of dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and negative "
            f"{negative.dim()}D inputs"
        )
    _check_broadcast(anchor, positive, negative)
    away = distance(anchor, negative)
    if swap:
        away = _f.minimum(away, distance(positive, negative))
    return _reduced((margin + distance(anchor, positive) - away).clamp(min=0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance to the positive - distance to the negative + margin).

    ``swap`` takes the negative's distance to the positive where that is smaller.  Balntas et al., 2016.
    """
    reduction = reduction_of(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)


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
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(distance, anchor, positive, negative, margin, swap, reduction)
