"""Dropout in quantised models, which are not trained: it returns its input."""

from __future__ import annotations

from typing import Any

from ..... import nn

__all__ = ["Dropout"]


class Dropout(nn.Dropout):
    """Returns its input."""

    def forward(self, input: Any) -> Any:
        return input

    def _get_name(self) -> str:
        return "QuantizedDropout"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return cls(mod.p, mod.inplace)

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(mod.p, mod.inplace)
