"""Pooling over windows, and to a target size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _C
from .. import functional as F
from .module import TensorModule
from .utils import _single

Tensor = _C.Tensor


class _MaxPoolNd(TensorModule):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
    _pool: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Largest value of each window of ``[N, C, L]`` or ``[C, L]``."""

    def _pool(self, *args: Any) -> Any:
        return F.max_pool1d(*args)


class MaxPool2d(_MaxPoolNd):
    """Largest value of each window of ``[N, C, H, W]`` or ``[C, H, W]``.

    >>> nn.MaxPool2d(3, stride=2)(facula.randn(2, 16, 50, 32)).shape
    facula.Size([2, 16, 24, 15])
    """

    def _pool(self, *args: Any) -> Any:
        return F.max_pool2d(*args)


class MaxPool3d(_MaxPoolNd):
    """Largest value of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``.

    >>> nn.MaxPool3d(3, stride=2)(facula.randn(2, 4, 9, 7, 7)).shape
    facula.Size([2, 4, 4, 3, 3])
    """

    def _pool(self, *args: Any) -> Any:
        return F.max_pool3d(*args)


class AvgPool1d(TensorModule):
    """Mean of each window of ``[N, C, L]`` or ``[C, L]``."""

    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = self.kernel_size if stride is None else _single(stride)
        self.padding, self.ceil_mode, self.count_include_pad = _single(padding), ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPoolNd(TensorModule):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"]
    _pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPoolNd):
    """Mean of each window of ``[N, C, H, W]`` or ``[C, H, W]``.

    >>> nn.AvgPool2d(2)(facula.arange(4.0).view(1, 1, 2, 2))
    tensor([[[[1.5000]]]])
    """

    def _pool(self, *args: Any) -> Any:
        return F.avg_pool2d(*args)


class AvgPool3d(_AvgPoolNd):
    """Mean of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``.

    >>> nn.AvgPool3d(2)(facula.arange(8.0).view(1, 1, 2, 2, 2))
    tensor([[[[[3.5000]]]]])
    """

    def _pool(self, *args: Any) -> Any:
        return F.avg_pool3d(*args)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"padding": 0, "ceil_mode": False, "count_include_pad": True, **state})


class _LPPoolNd(TensorModule):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = (
            norm_type,
            kernel_size,
            stride,
            ceil_mode,
        )

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """p-norm of each window of ``[N, C, L]`` or ``[C, L]``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """p-norm of each window of ``[N, C, H, W]`` or ``[C, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """p-norm of each window of ``[N, C, D, H, W]`` or ``[C, D, H, W]``."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptiveAvgPoolNd(TensorModule):
    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of ``output_size`` windows that cover ``[N, C, L]`` or ``[C, L]`` evenly."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of ``output_size`` windows that cover ``[N, C, H, W]`` or ``[C, H, W]`` evenly; None keeps a
    size.

    >>> nn.AdaptiveAvgPool2d((5, 7))(facula.randn(1, 64, 8, 9)).shape
    facula.Size([1, 64, 5, 7])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of ``output_size`` windows that cover ``[N, C, D, H, W]`` or ``[C, D, H, W]`` evenly."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(TensorModule):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Largest values of ``output_size`` windows that cover ``[N, C, L]`` or ``[C, L]`` evenly."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Largest values of ``output_size`` windows that cover ``[N, C, H, W]`` or ``[C, H, W]`` evenly."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Largest values of ``output_size`` windows that cover ``[N, C, D, H, W]`` or ``[C, D, H, W]`` evenly."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _MaxUnpoolNd(TensorModule):
    _unpool: Callable[..., Any]
    _rank: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        each = self._each
        self.kernel_size = each(kernel_size)
        self.stride, self.padding = each(kernel_size if stride is None else stride), each(padding)

    def _each(self, x: Any) -> tuple[int, ...]:
        return (x,) * self._rank if isinstance(x, int) else tuple(x)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """The inverse of :class:`MaxPool1d` with indices: 0 but for the largest elements.

    >>> y, at = nn.MaxPool1d(2, return_indices=True)(facula.randn(1, 2, 6))
    >>> nn.MaxUnpool1d(2)(y, at).shape
    facula.Size([1, 2, 6])
    """

    _rank = 1

    def _unpool(self, *args: Any) -> Any:
        return F.max_unpool1d(*args)


class MaxUnpool2d(_MaxUnpoolNd):
    """The inverse of :class:`MaxPool2d` with indices: 0 but for the largest elements.

    >>> y, at = nn.MaxPool2d(2, return_indices=True)(facula.randn(1, 2, 6, 4))
    >>> nn.MaxUnpool2d(2)(y, at).shape
    facula.Size([1, 2, 6, 4])
    """

    _rank = 2

    def _unpool(self, *args: Any) -> Any:
        return F.max_unpool2d(*args)


class MaxUnpool3d(_MaxUnpoolNd):
    """The inverse of :class:`MaxPool3d` with indices: 0 but for the largest elements.

    >>> y, at = nn.MaxPool3d(2, return_indices=True)(facula.randn(1, 2, 6, 4, 2))
    >>> nn.MaxUnpool3d(2)(y, at).shape
    facula.Size([1, 2, 6, 4, 2])
    """

    _rank = 3

    def _unpool(self, *args: Any) -> Any:
        return F.max_unpool3d(*args)


class _FractionalMaxPool(TensorModule):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _pool: Callable[..., Any]
    _rank: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"{type(self).__name__} requires one of output_size and output_ratio, got {output_size} and "
                f"{output_ratio}"
            )
        self.kernel_size, self.return_indices = self._each(kernel_size), return_indices
        self.output_size = None if output_size is None else self._each(output_size)
        self.output_ratio = None if output_ratio is None else self._each(output_ratio)
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.register_buffer("_random_samples", _random_samples)

    def _each(self, x: Any) -> tuple[Any, ...]:
        return (x,) * self._rank if isinstance(x, (int, float)) else tuple(x)

    def forward(self, input: Tensor) -> Any:
        return self._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest value of windows that are spread over each plane at random.  Graham, 2014."""

    _rank = 2

    def _pool(self, *args: Any) -> Any:
        return F.fractional_max_pool2d(*args)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Largest value of windows that are spread over each volume at random.  Graham, 2014."""

    _rank = 3

    def _pool(self, *args: Any) -> Any:
        return F.fractional_max_pool3d(*args)
