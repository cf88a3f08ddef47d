"""Linear maps."""

from __future__ import annotations

import math
from typing import Any

from ... import _C
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .lazy import LazyModuleMixin
from .module import TensorModule

Tensor = _C.Tensor
_empty = _C.functions.empty


class Identity(TensorModule):
    """Returns its input; any other arguments are ignored.

    >>> nn.Identity(54, unused=0.1)(facula.tensor([1.0]))
    tensor([1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(TensorModule):
    """``input @ weight.T + bias``.

    Shape: ``[*, in_features]`` to ``[*, out_features]``; weight ``[out_features, in_features]``.

    >>> nn.Linear(20, 30)(facula.randn(128, 20)).shape
    facula.Size([128, 30])
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: Tensor

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(_empty([out_features, in_features], dtype=dtype, device=device))
        if bias:
            self.bias = Parameter(_empty([out_features], dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Bilinear(TensorModule):
    """``input1 @ weight @ input2 + bias``.

    Shape: ``[*, in1_features]`` and ``[*, in2_features]`` to ``[*, out_features]``; weight
    ``[out_features, in1_features, in2_features]``.

    >>> nn.Bilinear(20, 30, 40)(facula.randn(128, 20), facula.randn(128, 30)).shape
    facula.Size([128, 40])
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(
            _empty([out_features, in1_features, in2_features], dtype=dtype, device=device)
        )
        if bias:
            self.bias = Parameter(_empty([out_features], dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """Linear, under the name that MultiheadAttention prints in PyTorch."""


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose ``in_features`` is inferred from the first input.

    >>> m = nn.LazyLinear(3)
    >>> m(facula.randn(2, 5)).shape, m
    (facula.Size([2, 3]), Linear(in_features=5, out_features=3, bias=True))
    """

    cls_to_become = Linear
    _size = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, out_features, bias, device, dtype)
        self._forget_shapes()

    def _size_in(self, input: Tensor) -> int:
        return input.shape[-1]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}
