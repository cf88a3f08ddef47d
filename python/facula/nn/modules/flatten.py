"""Changes of shape."""

from __future__ import annotations

from typing import Any

from ... import _C
from .module import TensorModule

Tensor = _C.Tensor


class Flatten(TensorModule):
    """Merges dimensions ``start_dim`` to ``end_dim``.

    >>> nn.Flatten()(facula.randn(32, 1, 5, 5)).shape
    facula.Size([32, 25])
    """

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(TensorModule):
    """Splits dimension ``dim`` into ``unflattened_size``.

    >>> nn.Unflatten(1, (2, 5))(facula.randn(3, 10)).shape
    facula.Size([3, 2, 5])
    """

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError("invalid argument: `dim` must be an int")
        if not isinstance(unflattened_size, (tuple, list)) or not all(
            isinstance(n, int) for n in unflattened_size
        ):
            raise TypeError(
                f"unflattened_size must be a tuple of ints, but found {type(unflattened_size).__name__}"
            )
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
