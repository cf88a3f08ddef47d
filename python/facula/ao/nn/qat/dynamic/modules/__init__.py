"""Layers for training whose inputs are quantised with the range of each call."""

from __future__ import annotations

from ... import modules as nnqat

__all__ = ["Linear"]


class Linear(nnqat.Linear):
    """A linear layer that is trained with a rounded weight."""
