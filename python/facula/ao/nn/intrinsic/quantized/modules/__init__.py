"""Quantised layers that are followed by a function before their result is quantised."""

from __future__ import annotations

from typing import Any

from ...... import _quantized_ops
from ....quantized import modules as nnq
from ....quantized.modules.utils import check_kind, observed_weight, output_parameters
from ... import modules as nni

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]


class ConvReLU1d(nnq.Conv1d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = (nni.ConvReLU1d,)
    _op = "conv1d_relu"


class ConvReLU2d(nnq.Conv2d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = (nni.ConvReLU2d,)
    _op = "conv2d_relu"


class ConvReLU3d(nnq.Conv3d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = (nni.ConvReLU3d,)
    _op = "conv3d_relu"


class ConvAdd2d(nnq.Conv2d):
    """A convolution whose result is added to another tensor."""

    _FLOAT_MODULE = (nni.ConvAdd2d,)
    _op = "conv2d_add"

    def forward(self, input: Any, extra_input: Any) -> Any:  # type: ignore[override]
        op = _quantized_ops.TABLE[self._op]
        return op(self._padded(input), extra_input, self._packed_params, self.scale, self.zero_point)


class ConvAddReLU2d(ConvAdd2d):
    """A convolution whose result is added to another tensor, and a rectifier."""

    _FLOAT_MODULE = (nni.ConvAddReLU2d,)
    _op = "conv2d_add_relu"


class LinearReLU(nnq.Linear):
    """A linear layer and a rectifier."""

    _FLOAT_MODULE = (nni.LinearReLU,)

    def forward(self, x: Any) -> Any:
        op = _quantized_ops.TABLE["linear_relu"]
        return op(x, self._packed_params._packed_params, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


class _LinearThen(nnq.Linear):
    _op = ""

    def _more(self) -> tuple:
        return ()

    def forward(self, x: Any) -> Any:
        packed = self._packed_params._packed_params
        return _quantized_ops.TABLE[self._op](x, packed, self.scale, self.zero_point, *self._more())

    def _get_name(self) -> str:
        return "Quantized" + type(self).__name__

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        check_kind(cls, mod, cls._FLOAT_MODULE)
        weight, _ = observed_weight(mod[0], mod.qconfig)
        new = cls._like(mod)
        new.set_weight_bias(weight, mod[0].bias)
        new.scale, new.zero_point = output_parameters(mod)
        return new

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(mod[0].in_features, mod[0].out_features)


class LinearLeakyReLU(_LinearThen):
    """A linear layer and a leaky rectifier."""

    _FLOAT_MODULE = (nni.LinearLeakyReLU,)
    _op = "linear_leaky_relu"

    def __init__(
        self, in_features: int, out_features: int, negative_slope: float, *args: Any, **options: Any
    ) -> None:
        super().__init__(in_features, out_features, *args, **options)
        self.negative_slope = negative_slope

    def _more(self) -> tuple:
        return (self.negative_slope,)

    @classmethod
    def _like(cls, mod: Any) -> Any:
        return cls(mod[0].in_features, mod[0].out_features, mod[1].negative_slope)


class LinearTanh(_LinearThen):
    """A linear layer and tanh."""

    _FLOAT_MODULE = (nni.LinearTanh,)
    _op = "linear_tanh"


class BNReLU2d(nnq.BatchNorm2d):
    """Batch normalisation and a rectifier."""

    _op = "batch_norm2d_relu"


class BNReLU3d(nnq.BatchNorm3d):
    """Batch normalisation and a rectifier."""

    _op = "batch_norm3d_relu"
