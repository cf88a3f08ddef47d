"""Images at other sizes and places, of ``facula.nn.functional``, and bags of embeddings: PyTorch's
arguments.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from .. import _C
from ._conventions import limit_rows

Tensor = _C.Tensor
_f = _C.functions

_FEW_TAPS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_KERNELS = {
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
    "lanczos": "lanczos",
}
_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


def _each(name: str, given: Any, input: Tensor) -> list[Any]:
    spatial = list(input.shape[2:])
    if not isinstance(given, (tuple, list)):
        return [given] * len(spatial)
    if len(given) != len(spatial):
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {spatial} and {name} of {given}."
        )
    return list(given)


def _check_mode(input: Tensor, mode: str, aligned: bool | None, antialias: bool) -> None:
    rank = input.dim()
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and rank == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D "
            "tensor "
            "as input"
        )
    if mode == "lanczos" and rank == 4 and aligned:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if mode == "lanczos" and rank == 4 and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if (
        rank not in (3, 4, 5)
        or mode not in _MODES.split(" | ")
        or (mode in ("bicubic", "lanczos") and rank != 4)
    ):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank}D) for the modes: {_MODES} "
            f"(got {mode})"
        )
    if mode in _FEW_TAPS and rank != _FEW_TAPS[mode] + 2:
        raise NotImplementedError(f"Got {rank}D input, but {mode} mode needs {_FEW_TAPS[mode] + 2}D input")


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """``[N, C, ...]`` interpolated to ``size``, or to ``scale_factor`` times its size.

    ``mode``: 'nearest', 'nearest-exact', 'linear' (3-D input), 'bilinear', 'bicubic' (4-D), 'trilinear'
    (5-D), 'area' (means) or 'lanczos' (with ``antialias``, which averages what becomes smaller).
    ``align_corners`` keeps the centres of corners.

    >>> F.interpolate(facula.tensor([[[1.0, 2.0]]]), size=4, mode="linear")
    tensor([[[1.0000, 1.2500, 1.7500, 2.0000]]])
    """
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | "
            "bicubic | "
            "trilinear"
        )
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    scales: list[float] = []
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        sizes = _each("output size", size, input)
    else:
        scales = _each("scale_factor", scale_factor, input)
        sizes = [math.floor(n * f) for n, f in zip(input.shape[2:], scales)]
    if mode == "area" or recompute_scale_factor:
        scales = []
    _check_mode(input, mode, align_corners, antialias)
    if mode == "area":
        from . import functional as F

        pools = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d, 5: F.adaptive_avg_pool3d}
        return pools[input.dim()](input, sizes)
    kernel = ("smooth-" if antialias else "") + _KERNELS[mode] if mode in _KERNELS else mode
    scales = [*scales, 0.0, 0.0, 0.0][:3] if scales else [0.0, 0.0, 0.0]
    return _C.ops._interpolate(input, sizes, *map(float, scales), kernel, bool(align_corners))


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """interpolate, by its former name."""
    warnings.warn(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate in mode 'nearest'."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate in mode 'bilinear' with ``align_corners``."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _aligned(align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please "
            "specify align_corners=True if the old behavior is desired.",
            stacklevel=3,
        )
    return bool(align_corners)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Elements of ``[N, C, H, W]`` at the places ``[N, H', W', 2]``, x and y from -1 to 1; three for volumes.

    ``mode``: 'bilinear', 'nearest', 'bicubic'; ``padding_mode``: 'zeros', 'border', 'reflection'.

    Source: Jaderberg et al., "Spatial Transformer Networks", 2015.
    """
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if mode not in modes:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but "
            f"got: '{mode}'"
        )
    if padding_mode not in paddings:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            "'reflection', but "
            f"got: '{padding_mode}'"
        )
    aligned = _aligned(align_corners)
    return _f.grid_sampler(input, grid, modes.index(mode), paddings.index(padding_mode), aligned)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for grid_sample that moves by matrices theta ``[N, 2, 3]``; ``[N, 3, 4]`` for volumes.

    ``size`` is what grid_sample shall give: ``[N, C, H, W]`` or ``[N, C, D, H, W]``.
    """
    aligned = _aligned(align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            "Got size "
            f"{size}."
        )
    dims = len(size) - 2
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got "
            f"{theta.shape}."
        )
    if aligned and min(size[2:]) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. "
            "This is not an intended use case of affine_grid.",
            stacklevel=2,
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return _f.affine_grid_generator(theta, size, aligned)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of the rows of ``weight`` that bags of integers pick.

    ``input``: ``[bags, size]``, or ``[n]`` with the beginnings of bags in ``offsets``; ``per_sample_weights``
    scales rows of sums; ``padding_idx`` is not counted.

    >>> F.embedding_bag(facula.tensor([[0, 1], [1, 1]]), facula.tensor([[1.0], [3.0]]))
    tensor([[2.],
            [3.]])
    """
    modes = ("sum", "mean", "max")
    if weight.dtype == _C.int64 and input.is_floating_point():
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, "
            "...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.",
            stacklevel=3,
        )
        input, weight = weight, input
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it "
            f"must have "
            f"the same shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                "fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        offsets = _f.arange(input.shape[0], device=input.device) * input.shape[1]
        include_last_offset = False
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    elif offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    elif offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if mode not in modes:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    limit_rows(weight, input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for "
            "mode='sum' "
            f"(got mode='{mode}')."
        )
    return _f.embedding_bag(
        weight,
        input,
        offsets,
        scale_grad_by_freq,
        modes.index(mode),
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )[0]
