"""Quantised convolutions."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized, _quantized_ops
from ....._types import qint8
from .....nn import Conv1d as _Conv1d
from .....nn import Conv2d as _Conv2d
from .....nn import Conv3d as _Conv3d
from .....nn import ConvTranspose1d as _ConvTranspose1d
from .....nn import ConvTranspose2d as _ConvTranspose2d
from .....nn import ConvTranspose3d as _ConvTranspose3d
from .....nn import functional as F
from .linear import _merge_norm
from .utils import (
    OutputParameters,
    WeightedQuantizedModule,
    check_kind,
    check_weight,
    observed_weight,
    output_parameters,
    pair,
    taken,
)

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Tensor = _C.Tensor


class _ConvNd(OutputParameters, WeightedQuantizedModule):
    _rank: int
    _transposed = False
    _FLOAT_MODULE: tuple
    _op = ""

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
        self._set_up(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode
        )

    def _set_up(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
    ) -> None:
        super().__init__()
        rank = self._rank
        if out_channels <= 0:
            raise ValueError(f"out_channels must be greater than 0, got {out_channels}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {channels} and {groups}")
        if padding_mode not in ("zeros", "reflect") or (self._transposed and padding_mode != "zeros"):
            raise ValueError(f"'padding_mode' {padding_mode} is not supported by quantized convolution")
        if isinstance(padding, str):
            raise NotImplementedError(
                f"{type(self).__name__}: padding={padding!r} is not supported, numbers are"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = pair(kernel_size, rank), pair(stride, rank)
        self.padding, self.dilation = pair(padding, rank), pair(dilation, rank)
        self.output_padding, self.transposed = pair(output_padding, rank), self._transposed
        self.padding_mode = padding_mode
        channels = (
            (in_channels, out_channels // groups)
            if self.transposed
            else (out_channels, in_channels // groups)
        )
        weight = _quantized._empty_affine_quantized(
            [*channels, *self.kernel_size], scale=1, zero_point=0, dtype=qint8
        )
        weight._integers.zero_()
        self.set_weight_bias(weight, _C.functions.zeros([out_channels]) if bias else None)
        self.scale, self.zero_point = 1.0, 0

    def _get_name(self) -> str:
        return "Quantized" + type(self).__name__

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if set(value := getattr(self, name)) != {usual}:
                text += f", {name}={value}"
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias() is None else "")

    def set_weight_bias(self, w: Any, b: Any) -> None:
        prepack = _quantized_ops.TABLE[f"{self._kind()}_prepack"]
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._rank
        more = (self.output_padding,) if self.transposed else ()
        self._packed_params = prepack(w, b, self.stride, padding, *more, self.dilation, self.groups)

    def _kind(self) -> str:
        return f"conv{'_transpose' * self._transposed}{self._rank}d"

    def _weight_bias(self) -> tuple:
        return self._packed_params.unpack()

    def weight(self) -> Any:
        return self._weight_bias()[0]

    def bias(self) -> Any:
        return self._weight_bias()[1]

    def _padded(self, x: Any) -> Any:
        if x.dim() != self._rank + 2:
            raise ValueError(
                f"{type(self).__name__}: Input shape must have {self._rank + 2} dimensions: a "
                "batch, channels "
                f"and {self._rank} more; got {tuple(x.shape)}"
            )
        if self.padding_mode == "zeros":
            return x
        return F.pad(x, [p for p in reversed(self.padding) for _ in range(2)], mode=self.padding_mode)

    def forward(self, input: Any) -> Any:
        op = _quantized_ops.TABLE[self._op or self._kind()]
        return op(self._padded(input), self._packed_params, self.scale, self.zero_point)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        saved = type(destination)()
        super()._save_to_state_dict(saved, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight_bias()
        destination.update(saved)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        weight, bias = (taken(self, state_dict, prefix, name) for name in ("weight", "bias"))
        check_weight(self, prefix, weight, self.weight())
        self.set_weight_bias(weight, bias)
        self._take_parameters(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of an observed convolution."""
        qconfig, inner = getattr(mod, "qconfig", None), mod
        if hasattr(mod, "weight_fake_quant"):
            _merge_norm(mod)
        else:
            check_kind(cls, mod, cls._FLOAT_MODULE)
            inner = mod[0] if "0" in mod._modules else mod
        weight, observer = observed_weight(inner, qconfig, not use_precomputed_fake_quant)
        if observer.dtype != qint8:
            raise AssertionError(f"Weight observer must have a dtype of qint8, got {observer.dtype}")
        new = cls._like(inner)
        new.set_weight_bias(weight, inner.bias)
        post = getattr(mod, "activation_post_process", None)
        if post is not None and post.dtype != _C.float32 and not getattr(post, "is_dynamic", False):
            new.scale, new.zero_point = output_parameters(mod)
        return new

    @classmethod
    def _like(cls, mod: Any) -> Any:
        """Returns a module with the geometry of another one."""
        more = (mod.output_padding, mod.groups, mod.bias is not None, mod.dilation) if cls._transposed else ()
        rest = () if cls._transposed else (mod.dilation, mod.groups, mod.bias is not None)
        return cls(
            mod.in_channels,
            mod.out_channels,
            mod.kernel_size,
            mod.stride,
            mod.padding,
            *more,
            *rest,
            mod.padding_mode,
        )

    @classmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        new = cls._like(ref_module)
        new.set_weight_bias(ref_module.get_quantized_weight(), ref_module.bias)
        new.scale, new.zero_point = float(output_scale), int(output_zero_point)
        return new


class Conv1d(_ConvNd):
    """A convolution over one dimension of a quantised input."""

    _rank = 1
    _FLOAT_MODULE: tuple = (_Conv1d,)


class Conv2d(_ConvNd):
    """A convolution over two dimensions of a quantised input."""

    _rank = 2
    _FLOAT_MODULE: tuple = (_Conv2d,)


class Conv3d(_ConvNd):
    """A convolution over three dimensions of a quantised input."""

    _rank = 3
    _FLOAT_MODULE: tuple = (_Conv3d,)


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
        self._set_up(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            dilation,
            groups,
            bias,
            padding_mode,
        )


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution over one dimension of a quantised input."""

    _rank = 1
    _FLOAT_MODULE: tuple = (_ConvTranspose1d,)


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution over two dimensions of a quantised input."""

    _rank = 2
    _FLOAT_MODULE: tuple = (_ConvTranspose2d,)


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution over three dimensions of a quantised input."""

    _rank = 3
    _FLOAT_MODULE: tuple = (_ConvTranspose3d,)
