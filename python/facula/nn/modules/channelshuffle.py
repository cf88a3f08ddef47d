"""Channels in another order."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class ChannelShuffle(TensorModule):
    """Channels in groups, dealt out one of each group in turn.  Zhang et al., 2018."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
