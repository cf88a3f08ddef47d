"""Products of matrices in 8-bit floats with scales."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TypeVar

from .. import _C

Tensor = _C.Tensor
Kind = TypeVar("Kind")


class ScalingType(enum.IntEnum):
    """The parts of a matrix that have separate scales."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """The arrangement of scales in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _listed(x: Kind | list[Kind] | None) -> list[Kind]:
    return [] if x is None else x if isinstance(x, list) else [x]


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: _C.dtype | None = _C.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """Returns the product of two float8 matrices, each multiplied by its float32 scale: ``TensorWise`` is
    one number, ``RowWise`` one for each row of ``mat_a``, ``[n, 1]``, and each column of ``mat_b``, ``[1,
    m]``. Sums are float32. Other recipes, and swizzled scales, raise ValueError.

    Shape: ``[n, k] x [k, m] -> [n, m]``.

    >>> a, scale = facula.ones(2, 3).to(facula.float8_e4m3fn), facula.tensor([0.5])
    >>> one = F.ScalingType.TensorWise
    >>> F.scaled_mm(a, a.T, scale, one, scale, one)
    tensor([[0.7500, 0.7500],
            [0.7500, 0.7500]], dtype=facula.bfloat16)
    """
    return _scaled_mm_v2(
        mat_a,
        mat_b,
        _listed(scale_a),
        _listed(scale_recipe_a),
        _listed(swizzle_a),
        _listed(scale_b),
        _listed(scale_recipe_b),
        _listed(swizzle_b),
        bias,
        output_dtype,
        contraction_dim,
        use_fast_accum,
    )


def _scaled_mm_v2(
    self: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: _C.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """:func:`scaled_mm` with a list for every argument."""
    if any([*swizzle_a, *swizzle_b]):
        raise ValueError("_scaled_mm_v2: arranged scales are not supported on a CPU")
    if len(contraction_dim) not in (0, 2):
        raise ValueError(f"_scaled_mm_v2: contraction_dim must have 2 elements, got {contraction_dim}")
    recipes, scales = (list(recipe_a), list(recipe_b)), [*scale_a, *scale_b]
    fits = {ScalingType.TensorWise: lambda s: s.numel() == 1, ScalingType.RowWise: lambda s: s.dim() == 2}
    supported = recipes[0] == recipes[1] and len(recipes[0]) == 1 and recipes[0][0] in fits
    if not supported or len(scales) != 2 or not all(map(fits[ScalingType(recipes[0][0])], scales)):
        raise ValueError(
            "_scaled_mm_v2: invalid scaling configuration: recipes "
            f"{recipes[0]} and {recipes[1]} with scales of shapes {[tuple(s.shape) for s in scales]}; both "
            "matrices may have one scale (TensorWise), or one for each row and column (RowWise)"
        )
    more = {} if out is None else {"out": out}
    return _C.functions._scaled_mm(
        self, mat2, *scales, bias=bias, out_dtype=out_dtype, use_fast_accum=use_fast_accum, **more
    )
