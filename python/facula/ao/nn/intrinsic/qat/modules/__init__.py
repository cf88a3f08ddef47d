"""Layers with batch normalisation and rectifiers whose weights are rounded, for training.

The weight is rounded as it will be after the normalisation is merged into it: multiplied by gamma and
divided by the running deviation. The rounded weight is divided by the same factor, as the result would be.
"""

from __future__ import annotations

from typing import Any

from ...... import _C, nn
from ......nn import functional as F
from ....qat import modules as nnqat
from ....qat.modules import _check, _geometry, _needs
from ... import modules as nni

__all__ = [
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
    "freeze_bn_stats",
    "update_bn_stats",
]

_f = _C.functions


class _WithNorm:
    """The base of layers with batch normalisation."""

    _NORM: Any
    _PLAIN: Any
    _FUSED: Any
    _relu = False

    def _set_up(self, channels: int, eps: float, momentum: float, freeze_bn: bool, qconfig: Any) -> None:
        m: Any = self
        m.qconfig = _needs(qconfig)
        m.freeze_bn = freeze_bn if m.training else True
        m.bn = self._NORM(channels, eps, momentum, True, True)
        m.weight_fake_quant = qconfig.weight()
        if m.training and freeze_bn:
            m.bn.training = False

    def _rounded(self) -> tuple:
        """Returns the rounded weight and the factor of each channel that it contains."""
        m: Any = self
        factor = m.bn.weight / (m.bn.running_var + m.bn.eps).sqrt()
        shape = [-1] + [1] * (m.weight.dim() - 1)
        return m.weight_fake_quant(m.weight * factor.reshape(shape)), factor

    def update_bn_stats(self) -> Any:
        m: Any = self
        m.freeze_bn, m.bn.training = False, True
        return self

    def freeze_bn_stats(self) -> Any:
        m: Any = self
        m.freeze_bn, m.bn.training = True, False
        return self

    def reset_running_stats(self) -> None:
        self.bn.reset_running_stats()  # type: ignore[attr-defined]

    def train(self, mode: bool = True) -> Any:
        m: Any = self
        m.training = mode
        for module in m.children():
            if not (m.freeze_bn and module is m.bn):
                module.train(mode)
        return self


class _ConvBnNd(_WithNorm):
    _FLOAT_MODULE: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: Any = None,
        padding_mode: str = "zeros",
        eps: float = 1e-5,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        m: Any = self
        self._PLAIN.__init__(
            m,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bool(bias),
            padding_mode,
        )
        self._set_up(out_channels, eps, momentum, freeze_bn, qconfig)

    def forward(self, input: Any) -> Any:
        m: Any = self
        weight, factor = self._rounded()
        # The channels of the result are those of the weight, which is smaller than the result.
        unscaled = weight / factor.reshape([-1] + [1] * (m.weight.dim() - 1))
        y = m.bn(m._conv_forward(input, unscaled, m.bias))
        return F.relu(y) if self._relu else y

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the layer for training; it shares the parameters of ``mod``."""
        _check(cls, mod)
        conv, bn = mod[0], mod[1]
        new: Any = cls(*_geometry(conv), conv.padding_mode, bn.eps, bn.momentum, False, mod.qconfig)
        new.weight, new.bias = conv.weight, conv.bias
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(new.bn, name, getattr(bn, name))
        new.train(mod.training)
        return new

    def to_float(self) -> Any:
        """Returns the layer with its normalisation merged, in floating point."""
        m: Any = self
        conv = self._PLAIN(*_geometry(m), padding_mode=m.padding_mode)
        conv.weight = nn.Parameter(m.weight.detach())
        conv.bias = None if m.bias is None else nn.Parameter(m.bias.detach())
        bn = m.bn
        weight, bias = nn.utils.fuse_conv_bn_weights(
            conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )
        conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        new = self._FUSED(conv, nn.ReLU()) if self._relu else conv
        new.train(m.training)
        return new


class ConvBn1d(_ConvBnNd, nn.Conv1d):
    """A convolution and batch normalisation."""

    _PLAIN, _NORM, _FLOAT_MODULE = nn.Conv1d, nn.BatchNorm1d, nni.ConvBn1d


class ConvBn2d(_ConvBnNd, nn.Conv2d):
    """A convolution and batch normalisation."""

    _PLAIN, _NORM, _FLOAT_MODULE = nn.Conv2d, nn.BatchNorm2d, nni.ConvBn2d


class ConvBn3d(_ConvBnNd, nn.Conv3d):
    """A convolution and batch normalisation."""

    _PLAIN, _NORM, _FLOAT_MODULE = nn.Conv3d, nn.BatchNorm3d, nni.ConvBn3d


class ConvBnReLU1d(ConvBn1d):
    """A convolution, batch normalisation and a rectifier."""

    _relu, _FUSED, _FLOAT_MODULE = True, nni.ConvReLU1d, nni.ConvBnReLU1d


class ConvBnReLU2d(ConvBn2d):
    """A convolution, batch normalisation and a rectifier."""

    _relu, _FUSED, _FLOAT_MODULE = True, nni.ConvReLU2d, nni.ConvBnReLU2d


class ConvBnReLU3d(ConvBn3d):
    """A convolution, batch normalisation and a rectifier."""

    _relu, _FUSED, _FLOAT_MODULE = True, nni.ConvReLU3d, nni.ConvBnReLU3d


class _ConvReLU:
    def forward(self, input: Any) -> Any:
        return F.relu(super().forward(input))  # type: ignore[misc]


class ConvReLU1d(_ConvReLU, nnqat.Conv1d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = nni.ConvReLU1d


class ConvReLU2d(_ConvReLU, nnqat.Conv2d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = nni.ConvReLU2d


class ConvReLU3d(_ConvReLU, nnqat.Conv3d):
    """A convolution and a rectifier."""

    _FLOAT_MODULE = nni.ConvReLU3d


class LinearReLU(nnqat.Linear):
    """A linear layer and a rectifier."""

    _FLOAT_MODULE = nni.LinearReLU

    def forward(self, input: Any) -> Any:
        return F.relu(super().forward(input))


class LinearBn1d(_WithNorm, nn.Linear):
    """A linear layer and batch normalisation."""

    _PLAIN, _NORM, _FLOAT_MODULE = nn.Linear, nn.BatchNorm1d, nni.LinearBn1d

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-5,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        nn.Linear.__init__(self, in_features, out_features, bias)
        self._set_up(out_features, eps, momentum, freeze_bn, qconfig)

    def forward(self, input: Any) -> Any:
        m: Any = self
        weight, factor = self._rounded()
        y = F.linear(input, weight) / factor
        return m.bn(y if m.bias is None else y + m.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the layer for training; it shares the parameters of ``mod``."""
        _check(cls, mod)
        linear, bn = mod[0], mod[1]
        new: Any = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            bn.eps,
            bn.momentum,
            False,
            mod.qconfig,
        )
        new.weight, new.bias, new.bn = linear.weight, linear.bias, bn
        new.train(mod.training)
        return new


def update_bn_stats(mod: Any) -> None:
    """Lets normalisations update their statistics; for ``model.apply``."""
    if isinstance(mod, _WithNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """Stops the updates of statistics; for ``model.apply``."""
    if isinstance(mod, _WithNorm):
        mod.freeze_bn_stats()
