"""Permutation of channels."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class ChannelShuffle(TensorModule):
    """Interleaves the channels of groups: one channel of each group in turn.  Zhang et al., 2018.

    >>> nn.ChannelShuffle(2)(facula.arange(4.0).view(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
