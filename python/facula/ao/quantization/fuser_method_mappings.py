"""How sequences of layers become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..nn import intrinsic as nni

__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "get_fuser_method",
    "get_fuser_method_new",
]

_OF_RANK = {
    nn.Conv1d: (nn.BatchNorm1d, nni.ConvBn1d, nni.ConvBnReLU1d, nni.ConvReLU1d),
    nn.Conv2d: (nn.BatchNorm2d, nni.ConvBn2d, nni.ConvBnReLU2d, nni.ConvReLU2d),
    nn.Conv3d: (nn.BatchNorm3d, nni.ConvBn3d, nni.ConvBnReLU3d, nni.ConvReLU3d),
}


def _check(is_qat: bool, first: Any, bn: Any, channels: int, affine: bool = True) -> None:
    if first.training != bn.training:
        raise AssertionError(
            f"{type(first).__name__} and BN both must be in the same mode (train or eval); call model.eval() "
            "before fuse_modules, or model.train() before fuse_modules_qat"
        )
    if is_qat and bn.num_features != channels:
        raise AssertionError(
            f"Output channel of {type(first).__name__}, {channels}, must match num_features of BatchNorm, "
            f"{bn.num_features}"
        )
    if is_qat and not (bn.affine and bn.track_running_stats):
        raise AssertionError("Only support fusing BatchNorm with affine and track_running_stats set to True")


def _fuse_in_eval(what: str, layer: Any) -> None:
    if layer.training:
        raise AssertionError(
            f"{what} both must be in eval mode to be fused; call model.eval() before fuse_modules"
        )


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """Returns a convolution with batch normalisation: merged, or as a module that is trained."""
    _check(is_qat, conv, bn, conv.out_channels)
    if is_qat:
        return _OF_RANK[type(conv)][1](conv, bn)
    _fuse_in_eval("Conv and BN", conv)
    return fuse_conv_bn_eval(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """Returns a convolution with batch normalisation and a rectifier."""
    _check(is_qat, conv, bn, conv.out_channels)
    _, _, trained, fused = _OF_RANK[type(conv)]
    if is_qat:
        return trained(conv, bn, relu)
    _fuse_in_eval("Conv, BN and ReLU", conv)
    return fused(fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """Returns a linear layer with batch normalisation."""
    _check(is_qat, linear, bn, linear.out_features)
    if is_qat:
        return nni.LinearBn1d(linear, bn)
    _fuse_in_eval("Linear and BN", linear)
    return fuse_linear_bn_eval(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """Returns a transposed convolution with batch normalisation merged."""
    _check(False, convt, bn, convt.out_channels)
    if is_qat:
        raise NotImplementedError("Fusing ConvTranspose and BatchNorm is not supported in QAT")
    _fuse_in_eval("ConvTranspose and BN", convt)
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _sequence(kind: Any) -> Callable:
    """Returns a method that puts the layers into a module of class ``kind``."""
    return lambda is_qat, *layers: kind(*layers)


def _methods() -> dict[tuple, Callable]:
    methods: dict[tuple, Callable] = {
        (nn.Linear, nn.ReLU): _sequence(nni.LinearReLU),
        (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
        (nn.BatchNorm2d, nn.ReLU): _sequence(nni.BNReLU2d),
        (nn.BatchNorm3d, nn.ReLU): _sequence(nni.BNReLU3d),
        (nn.ConvTranspose1d, nn.BatchNorm1d): fuse_convtranspose_bn,
        (nn.ConvTranspose2d, nn.BatchNorm2d): fuse_convtranspose_bn,
        (nn.ConvTranspose3d, nn.BatchNorm3d): fuse_convtranspose_bn,
    }
    for conv, (norm, _, _, fused) in _OF_RANK.items():
        methods[conv, norm] = fuse_conv_bn
        methods[conv, norm, nn.ReLU] = fuse_conv_bn_relu
        methods[conv, nn.ReLU] = _sequence(fused)
    return methods


_DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[tuple, Any] = _methods()


def get_fuser_method(op_list: tuple, additional_fuser_method_mapping: Any = None) -> Callable:
    """Returns the function that fuses layers of these classes. AssertionError: there is none."""
    methods = {**_DEFAULT_OP_LIST_TO_FUSER_METHOD, **(additional_fuser_method_mapping or {})}
    if op_list not in methods:
        names = ", ".join(getattr(kind, "__name__", str(kind)) for kind in op_list)
        raise AssertionError(f"did not find fuser method for: {names}")
    return methods[op_list]


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: dict) -> Callable:
    """Returns the function that fuses a pattern of a backend's configuration."""
    if op_pattern not in fuser_method_mapping:
        raise AssertionError(f"did not find fuser method for: {op_pattern}")
    return fuser_method_mapping[op_pattern]
