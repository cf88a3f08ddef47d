"""PyTorch's place of the collate functions."""

from .. import collate as collate
