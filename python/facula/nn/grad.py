"""The gradients of convolutions with respect to input and weight, as functions."""

from __future__ import annotations

from typing import Any

from .. import _C
from ..autograd import grad as _grad
from . import functional as F

Tensor = _C.Tensor


def _pulled(n: int, input: Tensor, weight: Tensor, grad_output: Tensor, by: Tensor, options: tuple) -> Tensor:
    stride, padding, dilation, groups = options
    conv = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    with _C.GradMode(True):
        output = conv(input, weight, None, stride, padding, dilation, groups)
    return _grad(output, by, grad_output, create_graph=grad_output.requires_grad)[0]


def _by_input(n: int, input_size: Any, weight: Tensor, grad_output: Tensor, *options: Any) -> Tensor:
    input = grad_output.new_zeros(tuple(input_size)).requires_grad_()
    return _pulled(n, input, weight, grad_output, input, options)


def _by_weight(n: int, input: Tensor, weight_size: Any, grad_output: Tensor, *options: Any) -> Tensor:
    weight = grad_output.new_zeros(tuple(weight_size)).requires_grad_()
    return _pulled(n, input, weight, grad_output, weight, options)


def conv1d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its input."""
    return _by_input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its weight."""
    return _by_weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its input."""
    return _by_input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its weight."""
    return _by_weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its input."""
    return _by_input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its weight."""
    return _by_weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
