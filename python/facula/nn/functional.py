"""Functions of neural networks. Those that are operators are the builtins themselves; the rest adds PyTorch's
argument conventions."""

from __future__ import annotations

import math
from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions

# Every operator bound to nn.functional is found here under its own name.
globals().update(
    {name: getattr(_C.nn_functional, name) for name in dir(_C.nn_functional) if not name.startswith("__")}
)


for _name in ("conv1d", "conv2d"):
    globals()[_name] = getattr(_f, _name)
tanh = _f.tanh
sigmoid = _f.sigmoid


def _in_place(function: Any, in_place_function: Any) -> Any:
    def f(input: Tensor, inplace: bool = False) -> Tensor:
        return in_place_function(input) if inplace else function(input)

    f.__name__ = f.__qualname__ = function.__name__
    f.__doc__ = function.__doc__
    return f


relu = _in_place(_f.relu, _f.relu_)
relu_ = _f.relu_


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    result = _C.nn_functional.silu(input)
    return input.copy_(result) if inplace else result


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6)."""
    return input.clamp_(0, 6) if inplace else input.clamp(0, 6)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input."""
    result = _C.nn_functional.leaky_relu(input, negative_slope)
    return input.copy_(result) if inplace else result


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    result = _C.nn_functional.elu(input, alpha)
    return input.copy_(result) if inplace else result


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]."""
    return input.clamp_(min_val, max_val) if inplace else _C.nn_functional.hardtanh(input, min_val, max_val)


def _last_dim(name: str, ndim: int) -> int:
    import warnings

    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as "
        f"an argument.",
        stacklevel=3,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) / sum(exp(input)) along ``dim``."""
    return _f.softmax(input, _last_dim("softmax", input.dim()) if dim is None else dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(input)) along ``dim``."""
    return _f.log_softmax(input, _last_dim("log_softmax", input.dim()) if dim is None else dim, dtype=dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes each element with probability ``p`` and scales the others by 1 / (1 - p)."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    result = _f.dropout(input, p, training)
    return input.copy_(result) if inplace else result


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of ``softmax(input)`` with class indices or probabilities ``target``. Input ``[C]`` or
    ``[N, C, ...]``.
    """
    return _f.cross_entropy(
        input, target, weight, _reduction(size_average, reduce, reduction), ignore_index, label_smoothing
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of log-probabilities ``input``."""
    return _f.nll_loss(input, target, weight, _reduction(size_average, reduce, reduction), ignore_index)


def mse_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """Mean squared error."""
    return _f.mse_loss(input, target, _reduction(size_average, reduce, reduction))


def l1_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """Mean absolute error."""
    return _f.l1_loss(input, target, _reduction(size_average, reduce, reduction))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of ``sigmoid(input)``."""
    return _f.binary_cross_entropy_with_logits(
        input, target, weight, _reduction(size_average, reduce, reduction), pos_weight
    )


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Largest value of each window of ``[N, C, H, W]`` or ``[C, H, W]``."""
    f = _f.max_pool2d_with_indices if return_indices else _f.max_pool2d
    return f(input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of ``[N, C, H, W]`` or ``[C, H, W]``."""
    return _C.nn_functional.avg_pool2d(
        input,
        kernel_size,
        [] if stride is None else stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` picked by the integers of ``input``."""
    if max_norm is not None:
        raise NotImplementedError("embedding: max_norm is not supported; renormalise the weight yourself")
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += weight.shape[0]
    return _f.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads the last dimensions; ``pad`` = (before, after) of the last one, then of the one before, ..."""
    if mode != "constant":
        raise NotImplementedError(f"pad: mode '{mode}' is not supported; 'constant' is")
    return _f.constant_pad_nd(input, list(pad), 0 if value is None else value)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ``[*, num_classes]``: 1 at the class, else 0."""
    return _C.nn_functional.one_hot(tensor, num_classes)


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input divided by its p-norm along ``dim``."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps).expand_as(input)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T * scale + mask) value, over the last two dimensions.  Vaswani et al., 2017."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError(
                "scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True"
            )
        keep = _f.ones([query.shape[-2], key.shape[-2]], dtype=_C.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    elif attn_mask is not None:
        scores = (
            scores.masked_fill(~attn_mask, float("-inf"))
            if attn_mask.dtype == _C.bool
            else scores + attn_mask
        )
    weights = softmax(scores, -1)
    return (dropout(weights, dropout_p) if dropout_p > 0 else weights) @ value
