"""Quantised activations with a scale of their own."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized_ops, nn
from .utils import output_parameters

__all__ = ["ELU", "Hardswish", "LeakyReLU", "PReLU", "ReLU6", "Sigmoid", "Softmax"]


class ReLU6(nn.ReLU):
    """min(max(x, 0), 6) of a quantised tensor."""

    def forward(self, input: Any) -> Any:
        return _quantized_ops.relu6(input, self.inplace)

    def _get_name(self) -> str:
        return "QuantizedReLU6"

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return ReLU6(mod.inplace)


class _Scaled:
    """The base of activations that take the scale of their result."""

    scale: Any
    zero_point: Any
    _arguments: tuple = ()

    def _set(self, scale: Any, zero_point: Any) -> None:
        self.register_buffer("scale", _C.tensor(float(scale)))  # type: ignore[attr-defined]
        self.register_buffer("zero_point", _C.tensor(int(zero_point)))  # type: ignore[attr-defined]

    def _get_name(self) -> str:
        return "Quantized" + type(self).__name__

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        scale, zero_point = output_parameters(mod)
        return cls(scale, zero_point, *(getattr(mod, name) for name in cls._arguments))  # type: ignore[call-arg]

    @classmethod
    def from_reference(cls, mod: Any, scale: float, zero_point: int) -> Any:
        return cls(float(scale), int(zero_point), *(getattr(mod, name) for name in cls._arguments))  # type: ignore[call-arg]


class Hardswish(_Scaled, nn.Hardswish):
    """x * relu6(x + 3) / 6 of a quantised tensor."""

    def __init__(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self._set(scale, zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("hardswish")(input, float(self.scale), int(self.zero_point))


class ELU(_Scaled, nn.ELU):
    """The exponential linear unit of a quantised tensor."""

    _arguments = ("alpha",)

    def __init__(self, scale: float, zero_point: int, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.scale, self.zero_point = float(scale), int(zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("elu")(input, self.scale, self.zero_point, self.alpha)


class LeakyReLU(_Scaled, nn.LeakyReLU):
    """The leaky rectifier of a quantised tensor."""

    _arguments = ("negative_slope", "inplace")

    def __init__(
        self,
        scale: float,
        zero_point: int,
        negative_slope: float = 1e-2,
        inplace: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(negative_slope, inplace)
        self._set(scale, zero_point)

    def forward(self, input: Any) -> Any:
        leaky = _quantized_ops.find("leaky_relu")
        return leaky(input, self.negative_slope, self.inplace, float(self.scale), int(self.zero_point))


class Sigmoid(_Scaled, nn.Sigmoid):
    """The logistic function of a quantised tensor."""

    def __init__(self, output_scale: float, output_zero_point: int) -> None:
        super().__init__()
        self.output_scale, self.output_zero_point = float(output_scale), int(output_zero_point)

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("sigmoid")(input, self.output_scale, self.output_zero_point)


class Softmax(_Scaled, nn.Softmax):
    """The softmax of a quantised tensor."""

    _arguments = ("dim",)

    def __init__(self, scale: float = 1.0, zero_point: int = 0, dim: int | None = None) -> None:
        super().__init__(dim)
        self.scale, self.zero_point = float(scale), int(zero_point)

    def forward(self, input: Any) -> Any:
        dim = self.dim if self.dim is not None else (0 if input.dim() in (0, 1, 3) else 1)
        return _quantized_ops.find("softmax")(input, dim, self.scale, self.zero_point)


class PReLU(_Scaled, nn.Module):
    """The rectifier with learned slopes of a quantised tensor."""

    def __init__(self, output_scale: float, output_zero_point: int, num_parameters: int = 1) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.scale, self.zero_point = float(output_scale), int(output_zero_point)
        self.set_weight(_C.functions.rand([num_parameters]))

    def set_weight(self, w: Any) -> None:
        self.weight = w

    def forward(self, input: Any) -> Any:
        return _quantized_ops.find("prelu")(input, self.weight, self.scale, self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        new = cls(*output_parameters(mod), mod.num_parameters)
        new.set_weight(mod.weight.detach().float())
        return new
