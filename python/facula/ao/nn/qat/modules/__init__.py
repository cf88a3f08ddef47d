"""Layers whose weights pass through a fake quantiser."""

from __future__ import annotations

from typing import Any

from ..... import nn
from ....._qscheme import per_channel_affine_float_qparams
from .....nn import functional as F

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]


def _check(cls: Any, mod: Any) -> None:
    if type(mod) not in _kinds(cls):
        names = ", ".join(k.__name__ for k in _kinds(cls))
        raise AssertionError(f"qat.{cls.__name__}.from_float only works for {names}, got {type(mod)}")
    if not getattr(mod, "qconfig", None):
        raise AssertionError("Input float module must have a valid qconfig: set it before prepare_qat")


def _kinds(cls: Any) -> tuple:
    kinds = cls._FLOAT_MODULE
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _needs(qconfig: Any) -> Any:
    if not qconfig:
        raise AssertionError("qconfig must be provided for QAT module")
    return qconfig


class Linear(nn.Linear):
    """A linear layer that is trained with a rounded weight."""

    _FLOAT_MODULE: Any = (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.qconfig = _needs(qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Any) -> Any:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the layer for training; it shares the parameters of ``mod``."""
        _check(cls, mod)
        inner = mod[0] if "0" in mod._modules else mod
        new = cls(inner.in_features, inner.out_features, inner.bias is not None, qconfig=mod.qconfig)
        new.weight, new.bias = inner.weight, inner.bias
        new.train(mod.training)
        return new

    def to_float(self) -> Any:
        new = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        new.weight, new.bias = self.weight, self.bias
        new.train(self.training)
        return new


class _ConvNd:
    _FLOAT_MODULE: Any
    _PLAIN: Any

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.qconfig = _needs(qconfig)
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Any) -> Any:
        m: Any = self
        return m._conv_forward(input, m.weight_fake_quant(m.weight), m.bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the layer for training; it shares the parameters of ``mod``."""
        _check(cls, mod)
        inner = mod[0] if "0" in mod._modules else mod
        new: Any = cls(*_geometry(inner), padding_mode=inner.padding_mode, qconfig=mod.qconfig)
        new.weight, new.bias = inner.weight, inner.bias
        new.train(mod.training)
        return new

    def to_float(self) -> Any:
        m: Any = self
        new = self._PLAIN(*_geometry(m), padding_mode=m.padding_mode)
        new.weight, new.bias = m.weight, m.bias
        new.train(m.training)
        return new


def _geometry(conv: Any) -> tuple:
    return (
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,
        conv.stride,
        conv.padding,
        conv.dilation,
        conv.groups,
        conv.bias is not None,
    )


class Conv1d(_ConvNd, nn.Conv1d):
    """A convolution that is trained with a rounded weight."""

    _FLOAT_MODULE = _PLAIN = nn.Conv1d


class Conv2d(_ConvNd, nn.Conv2d):
    """A convolution that is trained with a rounded weight."""

    _FLOAT_MODULE = _PLAIN = nn.Conv2d


class Conv3d(_ConvNd, nn.Conv3d):
    """A convolution that is trained with a rounded weight."""

    _FLOAT_MODULE = _PLAIN = nn.Conv3d


def _embedding_quantiser(cls: Any, qconfig: Any) -> Any:
    fake = _needs(qconfig).weight()
    if fake.qscheme is not per_channel_affine_float_qparams:
        raise AssertionError(
            f"{cls.__name__} weights require a qscheme of "
            f"torch.per_channel_affine_float_qparams, got {fake.qscheme}"
        )
    return fake


class Embedding(nn.Embedding):
    """An embedding that is trained with a rounded table."""

    _FLOAT_MODULE = nn.Embedding

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.qconfig, self.weight_fake_quant = qconfig, _embedding_quantiser(type(self), qconfig)

    def forward(self, input: Any) -> Any:
        return F.embedding(
            input,
            self.weight_fake_quant(self.weight),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the embedding for training; it shares the table of ``mod``."""
        _check(cls, mod)
        new = cls(
            mod.num_embeddings,
            mod.embedding_dim,
            mod.padding_idx,
            mod.max_norm,
            mod.norm_type,
            mod.scale_grad_by_freq,
            mod.sparse,
            qconfig=mod.qconfig,
        )
        new.weight = mod.weight
        return new


class EmbeddingBag(nn.EmbeddingBag):
    """An embedding bag that is trained with a rounded table."""

    _FLOAT_MODULE = nn.EmbeddingBag

    def __init__(self, *args: Any, qconfig: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.qconfig, self.weight_fake_quant = qconfig, _embedding_quantiser(type(self), qconfig)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        return F.embedding_bag(
            input,
            self.weight_fake_quant(self.weight),
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the embedding bag for training; it shares the table of ``mod``."""
        _check(cls, mod)
        new = cls(
            mod.num_embeddings,
            mod.embedding_dim,
            mod.max_norm,
            mod.norm_type,
            mod.scale_grad_by_freq,
            mod.mode,
            mod.sparse,
            include_last_offset=mod.include_last_offset,
            padding_idx=mod.padding_idx,
            qconfig=mod.qconfig,
        )
        new.weight = mod.weight
        return new
