"""Window functions of ``M`` samples; ``sym=False`` gives one period of a periodic window.

The functions check their arguments; operators of the registry compute the windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C, _namespace
from .._tensor import Tensor

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]

_NONE = object()


def _sampled(kind: str, M: int, sym: bool, *parameters: Any, cosines: Any = _NONE, **options: Any) -> Tensor:
    dtype, layout = options.pop("dtype", None), options.pop("layout", None)
    options.pop("device", None)
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"{kind}() got an unexpected keyword argument '{next(iter(options))}'")
    dtype = _C.get_default_dtype() if dtype is None else dtype
    if M < 0:
        raise ValueError(f"{kind} requires non-negative window length, got M={M}")
    if layout is not None and layout is not _C.strided:
        raise ValueError(f"{kind} is implemented for strided tensors only, got: {layout}")
    if dtype not in (_C.float32, _C.float64):
        raise ValueError(f"{kind} expects float32 or float64 dtypes, got: {dtype}")
    if cosines is _NONE:
        window = _C.ops._window(kind, M, sym, *parameters, dtype=dtype)
    else:
        if M > 1 and not isinstance(cosines, Iterable):
            raise TypeError(f"{kind}: coefficients must be a list/tuple")
        if M > 1 and not cosines:
            raise ValueError(f"{kind}: coefficients cannot be empty")
        numbers = _C.tensor(list(cosines) if M > 1 else [], dtype=_C.float64)
        window = _C.ops._general_cosine_window(numbers, M, sym, dtype=dtype)
    return window.requires_grad_() if requires_grad else window


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """1 - abs(2i / n - 1) for the period n."""
    return _sampled("bartlett", M, sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)."""
    return _sampled("blackman", M, sym, **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """sin(pi (i + 0.5) / M); a periodic window uses M + 1."""
    return _sampled("cosine", M, sym, **options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """exp(-abs(i - center) / tau); ``center`` applies to periodic windows."""
    if tau <= 0:
        raise ValueError(f"exponential: tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("exponential: center must be None for symmetric windows")
    return _sampled("exponential", M, sym, tau, center, **options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-(i / std)^2 / 2), with i counted from the centre."""
    if std <= 0:
        raise ValueError(f"gaussian: standard deviation must be positive, got: {std} instead.")
    return _sampled("gaussian", M, sym, std, **options)


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """i0(beta sqrt(1 - (2i / n - 1)^2)) / i0(beta)."""
    if beta < 0:
        raise ValueError(f"kaiser: beta must be non-negative, got: {beta} instead.")
    return _sampled("kaiser", M, sym, beta, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A sum of four cosines.  Nuttall, 1981."""
    return _sampled("nuttall", M, sym, **options)


def general_cosine(M: int, *, a: Iterable, sym: bool = True, **options: Any) -> Tensor:
    """The sum of (-1)^k a[k] cos(2 pi k i / n)."""
    return _sampled("general_cosine", M, sym, cosines=a, **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi i / n)."""
    return _sampled("general_hamming", M, sym, cosines=[alpha, 1.0 - alpha], **options)


def hamming(M: int, *, sym: bool = True, alpha: float = 0.54, **options: Any) -> Tensor:
    """general_hamming with alpha=0.54."""
    return _sampled("hamming", M, sym, cosines=[alpha, 1.0 - alpha], **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """general_hamming with alpha=0.5."""
    return _sampled("hann", M, sym, cosines=[0.5, 0.5], **options)


_namespace.overridable(globals(), _namespace.of_tensors)
