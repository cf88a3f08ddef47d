"""Modules of quantised models."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized
from .....nn import MaxPool2d as MaxPool2d
from .....nn import Module
from .....nn import ReLU as ReLU
from .activation import ELU, Hardswish, LeakyReLU, PReLU, ReLU6, Sigmoid, Softmax
from .batchnorm import BatchNorm2d, BatchNorm3d
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .dropout import Dropout
from .embedding_ops import Embedding, EmbeddingBag
from .functional_modules import FloatFunctional, FXFloatFunctional, QFunctional
from .linear import Linear
from .normalization import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm
from .utils import output_parameters

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
]


class Quantize(Module):
    """Quantises a float32 tensor; what ``convert`` makes of a QuantStub.

    >>> q = facula.ao.nn.quantized.Quantize(0.5, 2, facula.quint8)(facula.tensor([1.0]))
    >>> q.int_repr()
    tensor([4], dtype=uint8)
    """

    def __init__(self, scale: Any, zero_point: Any, dtype: Any, factory_kwargs: Any = None) -> None:
        super().__init__()
        self.register_buffer("scale", _C.tensor([float(scale)]))
        self.register_buffer("zero_point", _C.tensor([int(zero_point)]))
        self.dtype = dtype

    def forward(self, X: Any) -> Any:
        return _quantized.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return Quantize(*output_parameters(mod), mod.activation_post_process.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Returns the numbers of a quantised tensor; what ``convert`` makes of a DeQuantStub."""

    def forward(self, Xq: Any) -> Any:
        return _quantized.dequantize(Xq)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        return DeQuantize()
