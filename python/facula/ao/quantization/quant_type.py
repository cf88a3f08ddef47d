"""The kinds of quantisation."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["QuantType"]


class QuantType(IntEnum):
    """When scales of values are determined: at each call, by calibration, by training, or never."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3
