"""Causal masks with their alignment, for ``attn_mask`` of ``scaled_dot_product_attention``."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any

from ... import _C

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]

Tensor = _C.Tensor


class CausalVariant(IntEnum):
    """The corner at which the triangle of a mask that is not square begins."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask, stored as its variant and sizes and materialized on demand: query i sees keys up to
    i (upper left), or up to i + keys - queries (lower right).
    """

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        return _C.make_subclass(cls, _C.functions.empty(0), False)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant)}")
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            import warnings

            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                stacklevel=3,
            )

    def _materialize(self, device: Any = None) -> Tensor:
        lower = self.variant == CausalVariant.LOWER_RIGHT
        ones = _C.functions.ones(self.seq_len_q, self.seq_len_kv, dtype=_C.bool)
        return ones.tril(self.seq_len_kv - self.seq_len_q if lower else 0)

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        attention = _C.nn_functional.scaled_dot_product_attention
        if func is not attention:
            return super().__torch_function__(func, types, args, kwargs or {})
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        arguments = dict(zip(names, args)) | (kwargs or {})
        mask = arguments.get("attn_mask")
        if arguments.get("is_causal"):
            raise ValueError("CausalBias should not be used with causal=True")
        if isinstance(mask, CausalBias):
            square = mask.seq_len_q == mask.seq_len_kv
            by_flag = square or mask.variant == CausalVariant.UPPER_LEFT
            arguments |= (
                {"attn_mask": None, "is_causal": True} if by_flag else {"attn_mask": mask._materialize()}
            )
        with _C.DisableTorchFunctionSubclass():
            return attention(**arguments)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """Returns the mask with which query i sees keys 0 to i."""
    if len(size) != 2:
        raise RuntimeError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """Returns the mask with which the last query sees all keys."""
    if len(size) != 2:
        raise RuntimeError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
