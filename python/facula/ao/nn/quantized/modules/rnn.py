"""Recurrent layers and attention after their parts have been quantised."""

from __future__ import annotations

import copy
from typing import Any

from ...quantizable import LSTM as _LSTM
from ...quantizable import MultiheadAttention as _MultiheadAttention

__all__ = ["LSTM", "MultiheadAttention"]


def _converted(cls: Any, other: Any) -> Any:
    """Returns an observed module with its parts converted, as an instance of ``cls``."""
    from ....quantization.quantize import convert

    converted = convert(copy.copy(other), inplace=False, remove_qconfig=True)
    converted.__class__ = cls
    return converted


class LSTM(_LSTM):
    """A quantised LSTM, of quantised linear layers."""

    @classmethod
    def from_float(cls, *args: Any, **options: Any) -> Any:
        raise RuntimeError(
            "LSTM.from_float: a quantizable LSTM is observed first; prepare makes it of nn.LSTM"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        return _converted(cls, other)

    def _get_name(self) -> str:
        return "QuantizedLSTM"


class MultiheadAttention(_MultiheadAttention):
    """Quantised attention, of quantised linear layers."""

    @classmethod
    def from_float(cls, *args: Any, **options: Any) -> Any:
        raise RuntimeError(
            "MultiheadAttention.from_float: it is observed first; prepare makes it of the float one"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        return _converted(cls, other)

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"
