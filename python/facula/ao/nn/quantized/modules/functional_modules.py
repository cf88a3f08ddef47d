"""Operations as modules, so that quantisation could observe their results: here they only compute."""

from __future__ import annotations

from typing import Any

from ..... import _C
from .....nn import Identity, Module

__all__ = ["FloatFunctional"]

Tensor = _C.Tensor
_f = _C.functions


class FloatFunctional(Module):
    """``add``, ``mul``, ``cat`` and others, whose results pass through ``activation_post_process``.

    >>> facula.nn.quantized.FloatFunctional().add_relu(facula.tensor([1.0]), facula.tensor([-3.0]))
    tensor([0.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "FloatFunctional is not intended to use the 'forward'. Please use the underlying operation"
        )

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return _f.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return _f.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return self.activation_post_process(_f.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.relu(_f.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.matmul(x, y))
