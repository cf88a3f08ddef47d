"""PyTorch's place of the collate functions."""

from ..collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
