"""Argument conventions of ``nn.functional`` that exist in Python only. The functions that operators
declare (``_forms.py``, which the build generates) call them.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import _C
from ._reduction import by_flags

Tensor = _C.Tensor
_f = _C.functions


def reduction_of(size_average: Any, reduce: Any, reduction: str) -> str:
    """'none', 'mean' or 'sum', from PyTorch's present and former arguments."""
    if size_average is None and reduce is None:
        return reduction
    return by_flags(size_average, reduce, 4)


def last_dim(name: str, ndim: int) -> int:
    """Returns the dimension that PyTorch chooses if none is passed."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as "
        f"an argument.",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


def warn_of_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if target.shape != input.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the "
            f"same size. ({name})",
            stacklevel=3,
        )


def warn_of_mean(reduction: str) -> None:
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
            stacklevel=3,
        )


def warn_of_rank(name: str, rank: int, spatial: int) -> None:
    if rank not in (spatial + 1, spatial + 2):
        warnings.warn(
            f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error "
            "in a future release. To retain the behavior and silence this warning, please use dropout "
            f"instead. Note that {name} exists to provide channel-wise dropout on inputs with {spatial} "
            "spatial dimensions, a channel dimension, and an optional batch dimension (i.e. "
            f"{spatial + 1}D or {spatial + 2}D inputs).",
            stacklevel=3,
        )
    if rank == 3 and spatial == 2:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d, which is taken for (N, C, L) and may be taken for "
            "(C, H, W) in a future release: dropout1d drops the channels of (N, C, L).",
            stacklevel=3,
        )


def check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def drops(input: Tensor, p: float, training: bool) -> bool:
    """Returns whether a dropout writes its input, which is an error for a leaf that requires a gradient."""
    return training and p > 0 and input.numel() > 0


def variance_of(input: Tensor, var: Any) -> Tensor:
    """Returns a variance as a tensor."""
    if isinstance(var, Tensor):
        return var
    if not isinstance(var, float):
        raise TypeError(f"gaussian_nll_loss: var must be a Tensor or a float, not {type(var).__name__}")
    return _f.mul(_f.ones_like(input), var)  # infinite beyond the range of the dtype


# ---- pools


def check_order(name: str, norm_type: Any) -> None:
    if norm_type == 0:
        raise ZeroDivisionError(
            f"{name}: norm_type must not be 0: the root of a sum of powers is its inverse"
        )


def _each(x: Any, n: int) -> list:
    return [x] * n if isinstance(x, (int, float)) else list(x)


def given_sizes(input: Tensor, output_size: Any, n: int) -> Any:
    """Returns the target sizes of the last n dimensions; None keeps a size."""
    if isinstance(output_size, int):
        return output_size
    if input.dim() <= n and output_size is not None:
        raise ValueError(f"Input dimension should be at least {n + 1}, got {list(input.shape)}")
    if output_size is not None and len(output_size) != n:
        raise RuntimeError(f"output_size must be {n} numbers, got {list(output_size)}")
    input_sizes = list(input.shape[-n:])
    return (
        input_sizes
        if output_size is None
        else [m if o is None else o for m, o in zip(input_sizes, output_size)]
    )


def fractional_size(input: Tensor, n: int, size: Any, ratio: Any) -> Any:
    """Returns the size of a result, which is passed directly or as a ratio of the input's size."""
    if size is not None:
        return size
    if ratio is None:
        raise ValueError(
            f"fractional_max_pool{n}d requires specifying either an output_size or an output_ratio"
        )
    return [int(m * r) for m, r in zip(input.shape[-n:], _each(ratio, n))]


# ---- embeddings and normalisation


def row_of(padding_idx: int | None, weight: Tensor) -> int:
    """Returns the row of a table, counted from its beginning; -1 for None."""
    if padding_idx is None:
        return -1
    if not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % weight.shape[0]


def before_table(input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns integers and the table whose rows they select, which callers may pass in the opposite
    order.
    """
    if weight.dtype != _C.int64 or not input.is_floating_point():
        return input, weight
    warnings.warn(
        "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, "
        "...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.",
        stacklevel=3,
    )
    return weight, input


def limit_rows(weight: Tensor, used: Tensor, max_norm: float | None, norm_type: float) -> None:
    """Scales the rows that are used to a norm of at most ``max_norm``, in place."""
    if max_norm is not None and weight.dim() == 2:  # the operator refuses other weights
        _C.ops.embedding_renorm_(weight.detach(), used, max_norm, norm_type)


def check_groups(input: Tensor, num_groups: int) -> None:
    """Raises ValueError if a group has one element, whose deviation is 0."""
    if input.dim() < 2 or num_groups <= 0:
        return
    if math.prod([input.shape[0] * input.shape[1] // num_groups, *input.shape[2:]]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )


def warn_of_masks(padding: Tensor | None, mask: Tensor | None) -> None:
    if padding is not None and mask is not None and padding.dtype != mask.dtype:
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both "
            "instead.",
            stacklevel=3,
        )


# ---- images


def each_dimension(name: str, factors: Any, input: Tensor) -> Any:
    """Expands one number to one for each spatial dimension; None is unchanged."""
    spatial = list(input.shape[2:])
    if factors is None or not isinstance(factors, (tuple, list)):
        return factors if factors is None else [factors] * len(spatial)
    if len(factors) != len(spatial):
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {spatial} and {name} of {factors}."
        )
    return list(factors)


def whole_multiples(size: Any, scale_factor: Any, recompute: Any, input: Tensor) -> tuple[Any, Any, Any]:
    """In a traced function, converts integer scales that are symbolic to the sizes that they lead to."""
    integral = size is None and scale_factor and all(isinstance(n, int) for n in scale_factor)
    if not integral or not any(type(n) is _C.SymInt for n in scale_factor):
        return size, scale_factor, recompute
    return [d * n for d, n in zip(input.shape[2:], scale_factor, strict=True)], None, None


def aligned(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please specify align_corners=True if the old behavior is desired.",
            stacklevel=3,
        )
    return bool(align_corners)
