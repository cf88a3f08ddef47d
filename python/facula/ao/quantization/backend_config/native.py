"""The patterns that Facula computes with integers."""

from __future__ import annotations

import operator
from typing import Any

from .... import _C, nn
from ...._types import qint8, quint4x2, quint8
from ....nn import functional as F
from ...nn import intrinsic as nni
from ...nn import qat as nnqat
from ...nn.intrinsic import qat as nniqat
from ..fuser_method_mappings import _DEFAULT_OP_LIST_TO_FUSER_METHOD
from ..quantization_mappings import DEFAULT_QAT_MODULE_MAPPINGS
from .backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, ObservationType

__all__ = ["get_native_backend_config", "get_native_backend_config_dict"]

_f = _C.functions
_OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_WEIGHTED = [
    DTypeConfig(quint8, quint8, qint8, _C.float32),
    DTypeConfig(quint8, _C.float32, qint8, _C.float32, is_dynamic=True),
    DTypeConfig(_C.float16, _C.float32, _C.float16, _C.float32, is_dynamic=True),
]
_PLAIN = [DTypeConfig(quint8, quint8), DTypeConfig(qint8, qint8)]
_ROWS = [
    DTypeConfig(_C.float32, _C.float32, quint8),
    DTypeConfig(_C.float32, _C.float32, quint4x2),
]


def _modules(names: str, home: Any = nn) -> list:
    return [getattr(home, name) for name in names.split()]


def _convolutions() -> list:
    return [
        *_modules("Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Linear"),
        *_modules("ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU ConvBn1d ConvBn2d ConvBn3d LinearBn1d", nni),
        *_modules("ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d", nni),
        *_modules("Conv1d Conv2d Conv3d Linear", nnqat),
        *(getattr(nniqat, name) for name in nniqat.__all__ if isinstance(getattr(nniqat, name), type)),
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.linear,
    ]


# Functions whose result is observed separately from their input.
_OBSERVED = [
    *_modules(
        """BatchNorm2d BatchNorm3d ELU LeakyReLU Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d
        LayerNorm GroupNorm PReLU Dropout Hardsigmoid Sigmoid Softmax Tanh"""
    ),
    *_modules("BNReLU2d BNReLU3d", nni),
    F.elu,
    F.leaky_relu,
    F.hardswish,
    F.instance_norm,
    F.layer_norm,
    F.group_norm,
    F.dropout,
    F.hardsigmoid,
    _f.sigmoid,
    _f.tanh,
    operator.add,
    operator.mul,
    _f.add,
    _f.mul,
    _f.matmul,
    operator.matmul,
    "sigmoid",
    "sigmoid_",
    "tanh",
    "tanh_",
    "hardsigmoid",
    "hardsigmoid_",
    "add",
    "mul",
    "matmul",
]
# Functions whose result has the range of their input.
_SAME_RANGE = [
    *_modules(
        """AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AvgPool1d AvgPool2d AvgPool3d Hardtanh
        Identity MaxPool1d MaxPool2d MaxPool3d ReLU ReLU6 PixelShuffle PixelUnshuffle Upsample Flatten"""
    ),
    F.adaptive_avg_pool1d,
    F.adaptive_avg_pool2d,
    F.adaptive_avg_pool3d,
    F.avg_pool1d,
    F.avg_pool2d,
    F.avg_pool3d,
    F.hardtanh,
    F.hardtanh_,
    F.interpolate,
    F.max_pool1d,
    F.max_pool2d,
    F.max_pool3d,
    F.relu,
    F.relu6,
    F.pixel_shuffle,
    F.pixel_unshuffle,
    F.upsample,
    _f.relu,
    _f.clamp,
    _f.flatten,
    _f.mean,
    _f.permute,
    _f.repeat_interleave,
    _f.squeeze,
    _f.stack,
    _f.transpose,
    _f.unsqueeze,
    _f.cat,
    _f.narrow,
    _f.chunk,
    _f.split,
    _f.reshape,
    _f.topk,
    _f.max_pool1d,
    _f.max_pool2d,
    "clamp",
    "contiguous",
    "flatten",
    "mean",
    "permute",
    "repeat",
    "repeat_interleave",
    "reshape",
    "resize_",
    "relu",
    "relu_",
    "squeeze",
    "squeeze_",
    "transpose",
    "unsqueeze",
    "unsqueeze_",
    "view",
    "chunk",
    "split",
]


def get_native_backend_config() -> BackendConfig:
    """Returns the patterns that are computed with integers, and those that are fused."""
    config = BackendConfig("native")

    def add(pattern: Any, dtypes: list, observed: ObservationType = _OWN) -> BackendPatternConfig:
        one = BackendPatternConfig(pattern).set_observation_type(observed).set_dtype_configs(dtypes)
        config.set_backend_pattern_config(one)
        return one

    for kind in _convolutions():
        add(kind, _WEIGHTED)
    for kind in _modules("LSTM GRU LSTMCell GRUCell RNNCell"):
        add(kind, _WEIGHTED[1:])
    for kind in _modules("Embedding EmbeddingBag"):
        add(kind, _ROWS, ObservationType.INPUT_OUTPUT_NOT_OBSERVED)
    for kind in _OBSERVED:
        add(kind, _PLAIN)
    for kind in _SAME_RANGE:
        add(kind, _PLAIN, _SHARED)
    for kind, trained in DEFAULT_QAT_MODULE_MAPPINGS.items():
        (config.find(kind) or add(kind, _WEIGHTED)).set_qat_module(trained)
    for pattern, method in _DEFAULT_OP_LIST_TO_FUSER_METHOD.items():
        add(pattern, _WEIGHTED).set_fuser_method(method)
    return config


def get_native_backend_config_dict() -> dict[str, Any]:
    """Returns the same as a dictionary."""
    return get_native_backend_config().to_dict()
