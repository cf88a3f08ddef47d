"""Distances between vectors."""

from __future__ import annotations

from ... import _C
from .. import functional as F
from .module import TensorModule

Tensor = _C.Tensor


class PairwiseDistance(TensorModule):
    """p-norm of ``x1 - x2`` along the last dimension.

    >>> nn.PairwiseDistance()(facula.tensor([[3.0, 4.0]]), facula.tensor([[0.0, 0.0]]))
    tensor([5.0000])
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(TensorModule):
    """Cosine of the angle between vectors along ``dim``.

    >>> nn.CosineSimilarity()(facula.tensor([[1.0, 0.0]]), facula.tensor([[1.0, 1.0]]))
    tensor([0.7071])
    """

    __constants__ = ["dim", "eps"]

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
