"""Helpers for parameters and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import _C, _namespace
from ...program import require
from . import rnn as rnn
from .spectral_norm import remove_spectral_norm as remove_spectral_norm
from .spectral_norm import spectral_norm as spectral_norm
from .weight_norm import remove_weight_norm as remove_weight_norm
from .weight_norm import weight_norm as weight_norm

Tensor = _C.Tensor

TYPE_CHECKING = False
_SUBMODULES = "convert_parameters fusion parametrizations parametrize prune stateless".split()
if TYPE_CHECKING:
    from ._lazy import *
else:
    __getattr__, __dir__ = _namespace.later(globals(), _SUBMODULES)


def _tensors(x: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [x] if isinstance(x, Tensor) else list(x)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Returns the norm of all tensors as if they were one vector."""
    norms = [t.norm(float(norm_type)) for t in _tensors(tensors)]
    if not norms:
        return _C.tensor(0.0)
    total = _C.functions.stack(norms).norm(float(norm_type))
    if error_if_nonfinite:
        require(
            total.isfinite(),
            RuntimeError,
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`",
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales gradients in place by max_norm / total_norm if that is below 1."""
    with _C.GradMode(False):
        scale = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        for p in _tensors(parameters):
            if p.grad is not None:
                p.grad.mul_(scale)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales gradients in place so that their total norm is at most ``max_norm``; returns the previous
    norm.

    >>> w = facula.zeros(2, requires_grad=True)
    >>> w.grad = facula.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    parameters = _tensors(parameters)
    with _C.GradMode(False):
        grads = [p.grad for p in parameters if p.grad is not None]
        total = get_total_norm(grads, norm_type, error_if_nonfinite)
        clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Clamps every gradient to [-clip_value, clip_value] in place."""
    clip_value = float(clip_value)
    with _C.GradMode(False):
        for p in _tensors(parameters):
            if p.grad is not None:
                p.grad.clamp_(-clip_value, clip_value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns all parameters as one vector."""
    return _C.functions.cat([p.view(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies a vector back to the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    at = 0
    with _C.GradMode(False):
        for p in parameters:
            p.copy_(vec[at : at + p.numel()].view_as(p))
            at += p.numel()


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Creates a module whose parameters have no particular values."""
    return module_cls(*args, **kwargs)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of one convolution that is equivalent to a convolution and a batch norm in
    evaluation.
    """
    from ..parameter import Parameter

    scale = (bn_rv + bn_eps).rsqrt() * (1 if bn_w is None else bn_w)
    shape = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape(shape + [1] * (conv_w.dim() - 2))
    bias = ((0 if conv_b is None else conv_b) - bn_rm) * scale + (0 if bn_b is None else bn_b)
    weight, bias = weight.to(conv_w.dtype), bias.to((conv_w if conv_b is None else conv_b).dtype)
    return Parameter(weight.detach(), conv_w.requires_grad), Parameter(bias.detach(), conv_w.requires_grad)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Returns one convolution that is equivalent to ``conv`` followed by ``bn`` in evaluation."""
    from copy import deepcopy

    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = deepcopy(conv)
    weight, bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    fused.weight, fused.bias = weight, bias
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of one linear layer that is equivalent to a linear layer and a batch norm
    in evaluation.
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Returns one linear layer that is equivalent to ``linear`` followed by ``bn`` in evaluation."""
    from copy import deepcopy

    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def _convert_weights(module: Any, memory_format: Any, kinds: tuple) -> Any:
    if isinstance(module, kinds):
        weight = module.weight.detach().clone(memory_format=memory_format)
        module.weight.data = weight
    for child in module.children():
        _convert_weights(child, memory_format, kinds)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Converts the weights of all 2-d convolutions of a module to ``memory_format``."""
    from ..modules import Conv2d, ConvTranspose2d

    return _convert_weights(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Converts the weights of all 3-d convolutions of a module to ``memory_format``."""
    from ..modules import Conv3d, ConvTranspose3d

    return _convert_weights(module, memory_format, (Conv3d, ConvTranspose3d))


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """:func:`clip_grad_norm_` under its older name."""
    import warnings

    warnings.warn(
        f"`{_C.package_name()}.nn.utils.clip_grad_norm` is now deprecated in favor of "
        f"`{_C.package_name()}.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
