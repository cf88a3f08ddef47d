"""Functions of neural networks. Those that are operators are the builtins themselves; the rest adds PyTorch's
argument conventions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _C, _namespace

Tensor = _C.Tensor
_f = _C.functions

# Every operator bound to nn.functional is found here under its own name.
globals().update(
    {name: getattr(_C.nn_functional, name) for name in dir(_C.nn_functional) if not name.startswith("__")}
)
if TYPE_CHECKING:
    from ._attention import multi_head_attention_forward as multi_head_attention_forward
    from ._grouped import grouped_mm as grouped_mm
    from ._losses import *
    from ._resample import *
    from ._scaled import ScalingType as ScalingType
    from ._scaled import SwizzleType as SwizzleType
    from ._scaled import scaled_mm as scaled_mm
    from ._unpool import *
else:
    from ._attention import multi_head_attention_forward
    from ._grouped import grouped_mm
    from ._losses import (
        binary_cross_entropy,
        binary_cross_entropy_with_logits,
        cosine_embedding_loss,
        cosine_similarity,
        cross_entropy,
        gaussian_nll_loss,
        hinge_embedding_loss,
        huber_loss,
        kl_div,
        l1_loss,
        linear_cross_entropy,
        margin_ranking_loss,
        mse_loss,
        multi_margin_loss,
        multilabel_margin_loss,
        multilabel_soft_margin_loss,
        nll_loss,
        pairwise_distance,
        poisson_nll_loss,
        smooth_l1_loss,
        soft_margin_loss,
        triplet_margin_loss,
        triplet_margin_with_distance_loss,
    )
    from ._resample import (
        affine_grid,
        embedding_bag,
        grid_sample,
        interpolate,
        upsample,
        upsample_bilinear,
        upsample_nearest,
    )
    from ._scaled import ScalingType, SwizzleType, scaled_mm
    from ._unpool import (
        fractional_max_pool2d,
        fractional_max_pool2d_with_indices,
        fractional_max_pool3d,
        fractional_max_pool3d_with_indices,
        max_unpool1d,
        max_unpool2d,
        max_unpool3d,
    )

tanh, sigmoid = _f.tanh, _f.sigmoid
has_torch_function, handle_torch_function = _C.has_torch_function, _C.handle_torch_function


def has_torch_function_unary(tensor: object) -> bool:
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: object) -> bool:
    return has_torch_function(args)


class _BroadcastingList:
    """Annotations of PyTorch's compiler for a number that stands for a list: ``BroadcastingList2[int]``."""

    def __getitem__(self, types: object) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()


def assert_int_or_pair(arg: list[int], arg_name: str, message: str) -> None:
    if not isinstance(arg, int) and len(arg) != 2:
        raise AssertionError(message.format(arg_name))


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str,
    func_name: str,
) -> Callable:
    """One of two functions, by what an argument of them is."""

    def f(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    f.__name__ = f.__qualname__ = func_name
    f.__doc__ = if_true.__doc__ if if_true.__doc__ is not None else if_false.__doc__
    return f


GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
logsigmoid = _C.nn_functional.log_sigmoid
_op = _C.nn_functional


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of [N, C, H, W], which may lack N, as columns [N, C * kernel_size, number of windows]."""
    return _C.ops.im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Sums of the columns that ``unfold`` makes of [N, C, *output_size] where their windows lie."""
    return _C.ops.col2im(input, output_size, kernel_size, dilation, padding, stride)


# ---- activations


def _in_place(name: str) -> Callable[..., Tensor]:
    """An operator of one tensor with PyTorch's argument ``inplace``."""
    function, in_place_function = getattr(_op, name), getattr(_op, name + "_")

    def f(input: Tensor, inplace: bool = False) -> Tensor:
        return in_place_function(input) if inplace else function(input)

    f.__name__ = f.__qualname__ = name
    f.__doc__ = function.__doc__
    return f


relu, selu, silu, mish = _in_place("relu"), _in_place("selu"), _in_place("silu"), _in_place("mish")
hardswish, hardsigmoid = _in_place("hardswish"), _in_place("hardsigmoid")
relu_, selu_ = _op.relu_, _op.selu_


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6).

    >>> F.relu6(facula.tensor([-1.0, 3.0, 9.0]))
    tensor([0., 3., 6.])
    """
    return hardtanh(input, 0.0, 6.0, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input.

    >>> F.leaky_relu(facula.tensor([-1.0, 3.0]), 0.1)
    tensor([-0.1000,  3.0000])
    """
    return (_op.leaky_relu_ if inplace else _op.leaky_relu)(input, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    return (_op.elu_ if inplace else _op.elu)(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input / alpha) - 1)."""
    return (_op.celu_ if inplace else _op.celu)(input, alpha)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError(f"hardtanh: min_val cannot be greater than max_val, got {min_val} and {max_val}")
    return (_op.hardtanh_ if inplace else _op.hardtanh)(input, min_val, max_val)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where greater than ``threshold``, else ``value``."""
    return (_op.threshold_ if inplace else _op.threshold)(input, threshold, value)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] in training, their mean otherwise.  Xu et al.,
    2015.
    """
    if lower > upper:
        raise RuntimeError(
            f"rrelu: lower bound {lower} should be less than or equal to the upper bound {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = _f.empty_like(input).uniform_(lower, upper)
    result = _f.where(input >= 0, input, input * slope)
    return input.copy_(result) if inplace else result


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """rrelu in place."""
    return rrelu(input, lower, upper, training, inplace=True)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


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


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-input) along ``dim``."""
    return _f.softmax(-input, _last_dim("softmin", input.dim()) if dim is None else dim, dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A random pick in proportion to softmax(logits), relaxed by temperature ``tau``.  Jang et al., 2016.

    ``hard`` gives one-hot vectors whose gradient is that of the relaxed pick.
    """
    noise = _f.empty_like(logits).uniform_(_C.finfo_of(logits.dtype)["tiny"], 1)
    soft = ((logits - (-noise.log()).log()) / tau).softmax(dim)
    if not hard:
        return soft
    picked = soft.detach().argmax(dim, keepdim=True)
    return _f.zeros_like(logits).scatter(dim, picked, 1.0) - soft.detach() + soft


# ---- dropout


def _check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zeroes each element with probability ``p`` and scales the others by 1 / (1 - p)."""
    _check_probability(p)
    if not training or p == 0:
        return input
    result = _f.dropout(input, p, training)
    return input.copy_(result) if inplace else result


def _check_features(rank: int) -> None:
    if rank < 2:
        raise RuntimeError(
            f"Feature dropout requires at least 2 dimensions in the input, got a tensor of {rank}"
        )


def _channel_dropout(input: Tensor, p: float, training: bool, inplace: bool, has_batch: bool) -> Tensor:
    """Dropout of whole channels, which are dimension 1, or 0 where there is no batch."""
    _check_probability(p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    _check_features(input.dim() + (not has_batch))
    sizes = [n if k <= has_batch else 1 for k, n in enumerate(input.shape)]
    keep = _f.dropout(_f.ones(sizes, dtype=input.dtype, device=input.device), p, True)
    return input.mul_(keep) if inplace else input * keep


def _warn_of_rank(name: str, rank: int, spatial: int) -> None:
    if rank in (spatial + 1, spatial + 2):
        return
    import warnings

    warnings.warn(
        f"{name}: Received a {rank}-D input to {name}, which is deprecated and will result in an error in a "
        "future release. To retain the behavior and silence this warning, please use dropout instead. Note "
        f"that {name} exists to provide channel-wise dropout on inputs with {spatial} spatial dimensions, a "
        f"channel dimension, and an optional batch dimension (i.e. {spatial + 1}D or {spatial + 2}D inputs).",
        stacklevel=3,
    )


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of ``[N, C, L]`` or ``[C, L]``.  Tompson et al., 2015."""
    _check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d "
            "exists to provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, "
            "and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _channel_dropout(input, p, training, inplace, input.dim() == 3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of ``[N, C, H, W]``; of ``[N, C, L]`` too, where one would expect ``[C, H, W]``,
    as PyTorch does.  Tompson et al., 2015.
    """
    _check_probability(p)
    _warn_of_rank("dropout2d", input.dim(), 2)
    if input.dim() == 3:
        import warnings

        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d, which is taken for (N, C, L) and may be taken for "
            "(C, H, W) in a future release: dropout1d drops the channels of (N, C, L).",
            stacklevel=2,
        )
    return _channel_dropout(input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of ``[N, C, D, H, W]`` or ``[C, D, H, W]``.  Tompson et al., 2015."""
    _check_probability(p)
    _warn_of_rank("dropout3d", input.dim(), 3)
    return _channel_dropout(input, p, training, inplace, input.dim() == 5)


def _alpha_dropout(input: Tensor, p: float, training: bool, inplace: bool, features: bool) -> Tensor:
    _check_probability(p)
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    if features:
        _check_features(input.dim())
    low = -1.7580993408473766  # selu at minus infinity
    scale = (1 - p) ** -0.5 * (1 + p * low * low) ** -0.5
    sizes = [1 if features and k > 1 else n for k, n in enumerate(input.shape)]
    keep = _f.bernoulli(_f.full(sizes, 1 - p, dtype=input.dtype, device=input.device))
    result = input * (keep * scale) + ((1 - keep) * (low * scale) - scale * p * low)
    return input.copy_(result) if inplace else result


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of the output of selu.  Klambauer et al., 2017."""
    return _alpha_dropout(input, p, training, inplace, False)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels."""
    return _alpha_dropout(input, p, training, inplace, True)


# ---- linear maps and normalisation


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 ``[*, in1]``, weight ``[out, in1, in2]``, input2 ``[*, in2]``: ``[*, out]``, plus bias."""
    if weight.dim() != 3 or input1.shape[-1] != weight.shape[1] or input2.shape[-1] != weight.shape[2]:
        raise RuntimeError(
            f"bilinear: weight must be [out, in1, in2] for inputs [*, in1] and [*, in2], got inputs "
            f"{list(input1.shape)} and {list(input2.shape)} and weight {list(weight.shape)}"
        )
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear: inputs must agree in all but the last dimension, got {list(input1.shape)} and "
            f"{list(input2.shape)}"
        )
    if input1.dtype in (_C.float16, _C.bfloat16):  # the product of the first two is not rounded to 16 bits
        wide = bilinear(
            input1.float(), input2.float(), weight.float(), None if bias is None else bias.float()
        )
        return wide.to(input1.dtype)
    out, n1, n2 = weight.shape
    rows = input1.reshape(-1, n1) @ weight.permute(1, 0, 2).reshape(n1, out * n2)
    rows, columns = rows.view(-1, out, n2), input2.reshape(-1, n2, 1)
    y = _f.bmm(rows, columns) if bias is None else _f.baddbmm(bias.view(out, 1), rows, columns)
    return y.view([*input1.shape[:-1], out])


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each of ``num_groups`` groups of channels of ``[N, C, ...]``.  Wu and He, 2018."""
    if input.dim() < 2:
        raise RuntimeError(
            f"group_norm: Expected at least 2 dimensions for input tensor but received {list(input.shape)}"
        )
    if num_groups > 0 and _one_value(input.shape[0] * input.shape[1] // num_groups, *input.shape[2:]):
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    return _f.group_norm(input, num_groups, weight, bias, eps)


def _one_value(*sizes: int) -> bool:
    return math.prod(sizes) == 1


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises each channel of each sample of ``[N, C, ...]``, or all by the running statistics.

    Source: Ulyanov et al., "Instance Normalization", 2016.
    """
    if not use_input_stats:
        return _op.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.dim() < 2 or _one_value(*input.shape[2:]):
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    n, c = input.shape[:2]
    each = [None if t is None else t.repeat(n) for t in (running_mean, running_var, weight, bias)]
    stats = each[:2]
    y = _op.batch_norm(input.reshape([1, n * c, *input.shape[2:]]), *each, True, momentum, eps)
    with _C.GradMode(False):
        for running, all_samples in zip((running_mean, running_var), stats):
            if running is not None:
                running.copy_(all_samples.view(n, c).mean(0))
    return y.view(input.shape)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * mean of squares over ``size`` neighbouring channels) ** beta.  Krizhevsky et
    al., 2012.
    """
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.numel() == 0:
        return input
    squares = _op.pad(input * input, [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2])
    windows = squares.unfold(1, size, 1)
    means = windows.mean(-1) if input.is_floating_point() else windows.sum(-1) // size
    return input / (means * alpha + k) ** beta


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """input divided by its p-norm (at least ``eps``) along ``dim``.

    >>> F.normalize(facula.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    if out is not None:
        return _f.div(input, input.norm(p, dim, keepdim=True).clamp(min=eps), out=out)
    return _C.ops._normalize(input, float(p), dim, float(eps))


# ---- pooling


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Largest value of each window of ``[N, C, H, W]`` or ``[C, H, W]``."""
    given = (input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)
    return tuple(_f.max_pool2d_with_indices(*given)) if return_indices else _f.max_pool2d(*given)  # type: ignore[return-value]


def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
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
        out=out,
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Largest value of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    given = (input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)
    return tuple(_f.max_pool3d_with_indices(*given)) if return_indices else _f.max_pool3d(*given)  # type: ignore[return-value]


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Mean of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    return _C.nn_functional.avg_pool3d(
        input,
        kernel_size,
        [] if stride is None else stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
        out=out,
    )


def _with_indices(name: str) -> Any:
    def f(*args: Any, **kwargs: Any) -> Any:
        return globals()[name](*args, **kwargs, return_indices=True)

    f.__name__ = f.__qualname__ = name + "_with_indices"
    f.__doc__ = f"{name} with ``return_indices``."
    return f


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Largest value of each window of ``[N, C, L]`` or ``[C, L]``."""
    _check_rank("max_pool1d", input, (2, 3))
    if 0 in input.shape[-2:]:
        raise RuntimeError(f"max_pool1d: only the batch may be empty, got {list(input.shape)}")
    k, p, d = _one(kernel_size), _one(padding), _one(dilation)
    s = k if stride is None else _one(stride)
    sizes = (1, k), (1, s), (0, p), (1, d)
    r = _as("max_pool1d", max_pool2d, input.unsqueeze(-2), *sizes, ceil_mode, return_indices)
    return tuple(t.squeeze(-2) for t in r) if return_indices else r.squeeze(-2)


def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of ``[N, C, L]`` or ``[C, L]``."""
    _check_rank("avg_pool1d", input, (2, 3))
    k, p = _one(kernel_size), _one(padding)
    s = k if stride is None else _one(stride)
    sizes = (1, k), (1, s), (0, p)
    return _as("avg_pool1d", avg_pool2d, input.unsqueeze(-2), *sizes, ceil_mode, count_include_pad).squeeze(
        -2
    )


def _as(name: str, f: Any, *args: Any) -> Any:
    """f(*args), whose errors bear the name of the function that the user called."""
    try:
        return f(*args)
    except RuntimeError as e:
        raise type(e)(name + str(e)[str(e).index(":") :]) from e


def _one(x: Any) -> int:
    """The number of a setting of one dimension: 3, (3,)."""
    return x if isinstance(x, int) else x[0]


def _check_rank(name: str, input: Tensor, ranks: tuple[int, ...]) -> None:
    if input.dim() not in ranks:
        raise RuntimeError(
            f"{name}: Expected {' or '.join(f'{r}D' for r in ranks)} input, got {list(input.shape)}"
        )


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """p-norm of each window of ``[N, C, L]`` or ``[C, L]``."""
    return _lp(
        avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), norm_type, _one(kernel_size)
    )


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """p-norm of each window of ``[N, C, H, W]`` or ``[C, H, W]``."""
    count = kernel_size**2 if isinstance(kernel_size, int) else math.prod(kernel_size)
    return _lp(avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), norm_type, count)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """p-norm of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""
    count = kernel_size**3 if isinstance(kernel_size, int) else math.prod(kernel_size)
    return _lp(avg_pool3d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), norm_type, count)


def _lp(means: Tensor, norm_type: float, count: int) -> Tensor:
    return (means.sign() * relu(means.abs()) * count).pow(1.0 / norm_type)


def _limit_rows(weight: Tensor, used: Tensor, max_norm: float, norm_type: float) -> None:
    """Scales the rows that are used, in place, to a norm of at most ``max_norm``."""
    with _C.GradMode(False):
        index = _C.tensor(sorted(set(used.reshape(-1).tolist())), dtype=_C.int64)
        rows = weight[index]
        norms = rows.norm(norm_type, 1, keepdim=True)
        weight[index] = rows * _f.where(norms > max_norm, max_norm / (norms + 1e-7), _f.ones_like(norms))


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
    if padding_idx is None:
        padding_idx = -1
    else:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= weight.shape[0]
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    return _f.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ``[*, num_classes]``: 1 at the class, else 0."""
    return _C.nn_functional.one_hot(tensor, num_classes)


# ---- pooling to a given size


def _target_sizes(name: str, input: Tensor, output_size: Any, dims: int) -> list[int]:
    """The sizes to reach, the last ``dims`` ones; None keeps a size."""
    if input.dim() <= dims and isinstance(output_size, (tuple, list)):
        raise ValueError(f"{name}: Input dimension should be at least {dims + 1}, got {list(input.shape)}")
    _check_rank(name, input, (dims + 1, dims + 2))
    if not input.is_floating_point() and name.startswith("adaptive_avg"):
        raise NotImplementedError(f"{name}: not implemented for '{input.dtype}'")
    given = [output_size] * dims if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(given) != dims:
        raise RuntimeError(f"{name}: output_size must be {dims}, got {given}")
    sizes = [m if n is None else n for m, n in zip(input.shape[-dims:], given)]
    if any(n < 0 for n in sizes):
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {given}"
        )
    if math.prod(sizes) >= 2**40:
        raise RuntimeError(f"{name}: a result of {given} windows does not fit into memory")
    return sizes


def _check_pooled(name: str, input: Tensor, dims: int) -> None:
    if any(m == 0 for m in input.shape[-dims:]):
        raise RuntimeError(
            f"{name}: Expected input to have non-zero size for non-batch dimensions, but input has "
            f"sizes {list(input.shape)}"
        )


def _adaptive_avg(name: str, input: Tensor, output_size: Any, dims: int) -> Tensor:
    sizes = _target_sizes(name, input, output_size, dims)
    if all(n == 1 for n in sizes):
        return input.mean(list(range(-dims, 0)), keepdim=True)
    given = list(input.shape[-dims:])
    _check_pooled(name, input, dims)
    if dims == 3:
        return _C.ops._adaptive_avg_pool3d(input, sizes)
    if dims == 1:
        given, sizes, input = [1, *given], [1, *sizes], input.unsqueeze(-2)
    if all(n and m % n == 0 for m, n in zip(given, sizes)):
        pooled = avg_pool2d(input, [m // n for m, n in zip(given, sizes)])
    else:
        pooled = _C.ops._adaptive_avg_pool2d(input, sizes)
    return pooled.squeeze(-2) if dims == 1 else pooled


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of ``output_size`` windows that cover ``[N, C, L]`` or ``[C, L]`` evenly."""
    return _adaptive_avg("adaptive_avg_pool1d", input, output_size, 1)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of ``output_size`` windows that cover ``[N, C, H, W]`` or ``[C, H, W]`` evenly."""
    return _adaptive_avg("adaptive_avg_pool2d", input, output_size, 2)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of ``output_size`` windows that cover ``[N, C, D, H, W]`` or ``[C, D, H, W]`` evenly."""
    return _adaptive_avg("adaptive_avg_pool3d", input, output_size, 3)


def _adaptive_max(name: str, input: Tensor, output_size: Any, dims: int, return_indices: bool) -> Any:
    sizes = _target_sizes(name, input, output_size, dims)
    _check_pooled(name, input, dims)
    if dims == 1:
        values, at = _C.ops._adaptive_max_pool2d(input.unsqueeze(-2), [1, *sizes])
        values, at = values.squeeze(-2), at.squeeze(-2)
    elif dims == 3:
        values, at = _C.ops._adaptive_max_pool3d(input, sizes)
    else:
        values, at = _C.ops._adaptive_max_pool2d(input, sizes)
    return (values, at) if return_indices else values


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest values of ``output_size`` windows that cover ``[N, C, L]`` or ``[C, L]`` evenly."""
    return _adaptive_max("adaptive_max_pool1d", input, output_size, 1, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest values of ``output_size`` windows that cover ``[N, C, H, W]`` or ``[C, H, W]`` evenly."""
    return _adaptive_max("adaptive_max_pool2d", input, output_size, 2, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Largest values of ``output_size`` windows that cover ``[N, C, D, H, W]`` or ``[C, D, H, W]`` evenly."""
    return _adaptive_max("adaptive_max_pool3d", input, output_size, 3, return_indices)


max_pool1d_with_indices, max_pool2d_with_indices = _with_indices("max_pool1d"), _with_indices("max_pool2d")
max_pool3d_with_indices = _with_indices("max_pool3d")
adaptive_max_pool1d_with_indices = _with_indices("adaptive_max_pool1d")
adaptive_max_pool2d_with_indices = _with_indices("adaptive_max_pool2d")
adaptive_max_pool3d_with_indices = _with_indices("adaptive_max_pool3d")


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor; None for None."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers to add: -inf where a bool one is True."""
    if mask is None:
        return None
    floating = mask.is_floating_point()
    if mask.dtype != _C.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both "
            "instead.",
            stacklevel=2,
        )
    if floating:
        return mask
    return _C.functions.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


_namespace.overridable(globals())

if TYPE_CHECKING:  # the operators that are found here under their own names
    from .._C.nn_functional import *  # noqa: F403
