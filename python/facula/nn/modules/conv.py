"""Convolutions."""

from __future__ import annotations

import math
from typing import Any

from ... import _C
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .lazy import LazyModuleMixin
from .module import TensorModule
from .utils import _ntuple, _reverse_repeat_tuple

Tensor = _C.Tensor
_empty = _C.functions.empty


class _ConvNd(TensorModule):
    _rank: int
    _transposed = False
    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode",
        "in_channels", "out_channels", "kernel_size",
    ]  # fmt: skip

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        modes = ("zeros", "reflect", "replicate", "circular")
        if padding_mode not in modes:
            raise ValueError(f"padding_mode must be one of {modes}, but got padding_mode='{padding_mode}'")
        tuple_of = _ntuple(self._rank)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = tuple_of(kernel_size), tuple_of(stride)
        self.padding = padding if isinstance(padding, str) else tuple_of(padding)
        self.dilation, self.groups, self.padding_mode = tuple_of(dilation), groups, padding_mode
        self.transposed, self.output_padding = self._transposed, tuple_of(0)
        # Arguments of F.pad, for padding modes that the operator does not support.
        if not isinstance(self.padding, str):
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(self.padding, 2)
        elif self.padding == "valid":
            self._reversed_padding_repeated_twice = [0] * (2 * self._rank)
        elif self.padding != "same":
            raise ValueError(f"Invalid padding string '{padding}', should be one of ('valid', 'same')")
        elif any(s != 1 for s in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        else:
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            self._reversed_padding_repeated_twice = [
                n for t in reversed(totals) for n in (t // 2, t - t // 2)
            ]
        first, second = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self.weight = Parameter(
            _empty([first, second // groups, *self.kernel_size], dtype=dtype, device=device)
        )
        if bias:
            self.bias = Parameter(_empty([out_channels], dtype=dtype, device=device))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with a weight and a bias, which may differ from the module's."""
        raise NotImplementedError

    def _padded(self, input: Tensor) -> tuple[Tensor, Any]:
        """Returns the input, padded if necessary, and the padding that remains for the operator."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != (0,) * self._rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._rank:
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


class Conv1d(_ConvNd):
    """Cross-correlation over ``[N, C, L]`` or ``[C, L]``; weight ``[out, in / groups, k]``.

    >>> nn.Conv1d(16, 33, 3, stride=2)(facula.randn(20, 16, 50)).shape
    facula.Size([20, 33, 24])
    """

    _rank = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """Cross-correlation over ``[N, C, H, W]`` or ``[C, H, W]``; weight ``[out, in / groups, kh, kw]``.

    >>> nn.Conv2d(16, 33, (3, 5), stride=(2, 1), padding="valid")(facula.randn(2, 16, 50, 100)).shape
    facula.Size([2, 33, 24, 96])
    """

    _rank = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_ConvNd):
    """Cross-correlation over ``[N, C, D, H, W]`` or ``[C, D, H, W]``; weight ``[out, in / groups, kd,
    kh, kw]``.

    >>> nn.Conv3d(4, 6, 3, stride=2)(facula.randn(2, 4, 7, 9, 9)).shape
    facula.Size([2, 6, 3, 4, 4])
    """

    _rank = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    _transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
            device, dtype
        )  # fmt: skip
        self.output_padding = _ntuple(self._rank)(output_padding)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._rank, self.dilation
        )
        return self._convolve(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _convolve(self, *args: Any) -> Tensor:
        raise NotImplementedError

    def _output_padding(
        self,
        input: Tensor,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        """Returns the output padding that leads to results of ``output_size``, which may include batch
        and channels.
        """
        if output_size is None:
            return self.output_padding
        batched = input.dim() == num_spatial_dims + 2
        sizes = tuple(output_size)[-num_spatial_dims:]
        if len(output_size) not in (num_spatial_dims, num_spatial_dims + 1 + batched):
            raise ValueError(
                f"{type(self).__name__}: for a {input.dim()}D input, output_size must have "
                f"{num_spatial_dims} or {num_spatial_dims + 1 + batched} elements (got {len(output_size)})"
            )
        extra = []
        for k, n in enumerate(sizes):
            least = (
                (input.shape[k - num_spatial_dims] - 1) * stride[k]
                - 2 * padding[k]
                + (dilation[k] if dilation is not None else 1) * (kernel_size[k] - 1)
                + 1
            )
            if not least <= n < least + stride[k]:
                raise ValueError(
                    f"requested an output size of {sizes}, but valid sizes of dimension {k} range from "
                    f"{least} to {least + stride[k] - 1} (for an input of {tuple(input.shape)})"
                )
            extra.append(n - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution over ``[N, C, L]`` or ``[C, L]``; weight ``[in, out / groups, k]``.

    >>> nn.ConvTranspose1d(16, 33, 3, stride=2)(facula.randn(20, 16, 50)).shape
    facula.Size([20, 33, 101])
    """

    _rank = 1

    def _convolve(self, *args: Any) -> Tensor:
        return F.conv_transpose1d(*args)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution over ``[N, C, H, W]`` or ``[C, H, W]``; weight ``[in, out / groups, kh, kw]``.

    >>> nn.ConvTranspose2d(16, 33, 3, stride=2, padding=1, output_padding=1)(facula.randn(2, 16, 5, 6)).shape
    facula.Size([2, 33, 10, 12])
    """

    _rank = 2

    def _convolve(self, *args: Any) -> Tensor:
        return F.conv_transpose2d(*args)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution over ``[N, C, D, H, W]`` or ``[C, D, H, W]``; weight ``[in, out / groups,
    kd, kh, kw]``.

    >>> nn.ConvTranspose3d(4, 6, 3, stride=2)(facula.randn(2, 4, 3, 4, 4)).shape
    facula.Size([2, 6, 7, 9, 9])
    """

    _rank = 3

    def _convolve(self, *args: Any) -> Tensor:
        return F.conv_transpose3d(*args)


class _LazyConvXdMixin(LazyModuleMixin):
    """Convolutions whose ``in_channels`` is inferred from the first input."""

    _size = "in_channels"

    def __init__(self: Any, out_channels: int, kernel_size: Any, *args: Any, **options: Any) -> None:
        super().__init__(0, out_channels, kernel_size, *args, **options)
        self._forget_shapes()

    def _size_in(self: Any, input: Tensor) -> int:
        single, batch = self._rank + 1, self._rank + 2
        if input.dim() not in (single, batch):
            raise RuntimeError(
                f"Expected {single}D (unbatched) or {batch}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {input.shape}"
            )
        return input.shape[-single]

    def _shapes(self: Any) -> dict[str, tuple[int, ...]]:
        ends = self.out_channels, self.in_channels
        ends = ends[::-1] if self.transposed else ends
        return {
            "weight": (ends[0], ends[1] // self.groups, *self.kernel_size),
            "bias": (self.out_channels,),
        }


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """Conv1d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """Conv2d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """Conv3d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvXdMixin, ConvTranspose1d):
    """ConvTranspose1d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvXdMixin, ConvTranspose2d):
    """ConvTranspose2d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvXdMixin, ConvTranspose3d):
    """ConvTranspose3d whose ``in_channels`` is inferred from the first input."""

    cls_to_become = ConvTranspose3d
