"""Names of PyTorch's top level that differ from ours by the order of arguments: neural network functions,
symbolic numbers, switches, queries about builds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import _C, _namespace
from .nn import functional as F

Tensor = _C.Tensor
_f = _C.functions

__all__ = [
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "ctc_loss",
    "detach_",
    "fork",
    "frobenius_norm",
    "get_autocast_gpu_dtype",
    "get_device",
    "get_device_module",
    "get_num_interop_threads",
    "has_lapack",
    "has_mkl",
    "has_openmp",
    "has_spectral",
    "hinge_embedding_loss",
    "init_num_threads",
    "is_distributed",
    "is_inference",
    "is_same_size",
    "is_signed",
    "is_vulkan_available",
    "is_warn_always_enabled",
    "kl_div",
    "layer_norm",
    "margin_ranking_loss",
    "native_dropout",
    "norm_except_dim",
    "nuclear_norm",
    "poisson_nll_loss",
    "range",
    "set_anomaly_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_gpu_dtype",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
    "thread_safe_generator",
    "triplet_margin_loss",
    "wait",
]

_REDUCTIONS = ("none", "mean", "sum")


def _shape_as_tensor(self: Tensor) -> Tensor:
    """The sizes, as a tensor."""
    return _C.tensor(list(self.shape), dtype=_C.int64)


def _reduction(number: int | str) -> str:
    if isinstance(number, str):
        return number
    if number not in (0, 1, 2):
        raise ValueError(f"{number} is not a valid value for reduction: 0 (none), 1 (mean) or 2 (sum)")
    return _REDUCTIONS[number]


# ---- functions of networks, with the parameters of operators: a reduction is a number, 0 unless it is given


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Returns ``input`` after dropout, and the mask of the elements that were not dropped.

    >>> facula.native_dropout(facula.ones(2), 0.5, False)
    (tensor([1., 1.]), tensor([True, True]))
    """
    if train is False or p == 0:
        return input.clone(), _f.ones_like(input, dtype=_C.bool)
    scale = F.dropout(_f.ones_like(input), p, True)
    return input * scale, scale != 0


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """``nn.functional.batch_norm``, with the parameters before the statistics."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int | str = 0,
) -> Tensor:
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_reduction(reduction), pos_weight=pos_weight
    )


def kl_div(input: Tensor, target: Tensor, reduction: int | str = 0, *, log_target: bool = False) -> Tensor:
    return F.kl_div(input, target, reduction=_reduction(reduction), log_target=log_target)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int | str = 0,
    zero_infinity: bool = False,
) -> Tensor:
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction), zero_infinity
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int | str = 0
) -> Tensor:
    return F.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int | str = 0
) -> Tensor:
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_reduction(reduction))


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int | str
) -> Tensor:
    return F.poisson_nll_loss(
        input, target, log_input=log_input, full=full, eps=eps, reduction=_reduction(reduction)
    )


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: int | str = 0,
) -> Tensor:
    return F.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction)
    )


# ---- norms and ranges under older names


def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Returns the root of the sum of squares over ``dim``."""
    return _C.linalg.vector_norm(input, 2, dim, keepdim, out=out)


def nuclear_norm(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The sum of the singular values of matrices in the dimensions ``dim``; without them ``keepdim`` may be
    the second argument.
    """
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return _C.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """Returns the norm over all dimensions but ``dim``; -1: over all."""
    if dim == -1:
        return v.norm(pow)
    return _C.linalg.vector_norm(v, pow, [d for d in _builtin_range(v.dim()) if d != dim % v.dim()], True)


_builtin_range = __builtins__["range"] if isinstance(__builtins__, dict) else __builtins__.range


def range(start: Any, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """Returns numbers from ``start`` to ``end`` inclusive, in the default dtype. See ``arange``."""
    import warnings

    warnings.warn(
        "range is deprecated and will be removed in a future release because its behavior is inconsistent "
        "with Python's range builtin. Instead, use arange, which produces values in [start, end).",
        stacklevel=2,
    )
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not math.isfinite(start) or not math.isfinite(end):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end > start) != (step > 0) and end != start:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    options.setdefault("dtype", _C.get_default_dtype())
    count = int((end - start) / step) + 1
    return (
        (_f.arange(count, dtype=_C.float64) * step + start)
        .to(options.pop("dtype"))
        .requires_grad_(options.pop("requires_grad", False))
    )


# ---- questions about tensors


def is_inference(input: Tensor) -> bool:
    return input.is_inference()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    return input.is_signed()


def is_distributed(input: Tensor) -> bool:
    return False


def get_device(input: Tensor) -> int:
    return input.get_device()


def detach_(input: Tensor) -> Tensor:
    return input.detach_()


# ---- numbers that may be symbolic in PyTorch's tracer; here they are plain numbers


def sym_int(a: Any) -> int:
    return int(a)


def sym_float(a: Any) -> float:
    return float(a)


def sym_not(a: Any) -> bool:
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """Returns the maximum, as a float if one of them is a float."""
    if isinstance(a, float) or isinstance(b, float):
        return float(max(a, b))
    return _C.sym_max(a, b) if isinstance(a, int) and isinstance(b, int) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """Returns the minimum, as a float if one of them is a float."""
    if isinstance(a, float) or isinstance(b, float):
        return float(min(a, b))
    return _C.sym_min(a, b) if isinstance(a, int) and isinstance(b, int) else min(a, b)


def sym_sum(args: Any) -> Any:
    return sum(args)


def sym_sqrt(a: Any) -> float:
    return math.sqrt(a)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    return t if b else f


# ---- switches and facts

has_lapack, has_mkl, has_openmp, has_spectral = True, False, True, True
_depth = 0
_interop = 1


def set_warn_always(b: bool) -> None:
    """Sets whether warnings that are issued once per process are issued every time."""
    if not isinstance(b, bool):
        raise TypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _C.set_warn_always(b)


def is_warn_always_enabled() -> bool:
    return bool(_C.is_warn_always_enabled())


def autocast_increment_nesting() -> int:
    global _depth
    _depth += 1
    return _depth


def autocast_decrement_nesting() -> int:
    global _depth
    _depth -= 1
    return _depth


def set_autocast_cpu_enabled(enabled: bool) -> None:
    from . import amp

    amp.set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    from . import amp

    amp.set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> Any:
    from . import amp

    return amp.get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    from . import amp

    amp.set_autocast_dtype("cuda", dtype)


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switches anomaly mode; ``autograd.detect_anomaly`` does it for a block."""
    from .autograd.anomaly_mode import set_detect_anomaly

    set_detect_anomaly(enabled, check_nan)


def set_flush_denormal(mode: bool) -> bool:
    """Returns False: subnormal numbers are never flushed."""
    return False


def get_num_interop_threads() -> int:
    return _interop


def set_num_interop_threads(n: int) -> None:
    """Stores the number; operators of a program run one after the other."""
    global _interop
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop = n


def init_num_threads() -> None:
    """Has no effect: there is nothing to initialize."""


def is_vulkan_available() -> bool:
    return False


def get_device_module(device: Any = None) -> Any:
    """Returns the module of a device type: ``facula.cpu`` or ``facula.cuda``."""
    import importlib

    kind = "cpu" if device is None else _C.device(device).type
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Invalid device_type of {kind}: {_C.package_name()}.{kind} is no module")
    return importlib.import_module("." + kind, __package__)


def thread_safe_generator() -> Any:
    """Returns the generator of the worker in which a sampler runs; None in the main process."""
    from .utils.data import get_worker_info

    return getattr(get_worker_info(), "generator", None)


def fork(func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Runs the function immediately and returns a Future of its result: see ``facula.jit.fork``."""
    from .futures import Future

    future: Any = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as e:
        future.set_exception(e)
    return future


def wait(future: Any) -> Any:
    return future.wait()


_namespace.overridable(
    globals(),
    lambda f: _namespace.of_tensors(f) or f.__name__.startswith("sym_"),
)
