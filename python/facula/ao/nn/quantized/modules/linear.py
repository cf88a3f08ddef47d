"""Quantised linear layers."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized, _quantized_ops
from ....._types import qint8
from .....nn import Linear as _Linear
from .....nn import Module
from .....nn.modules.linear import NonDynamicallyQuantizableLinear
from .utils import (
    OutputParameters,
    WeightedQuantizedModule,
    check_kind,
    check_weight,
    observed_weight,
    output_parameters,
    taken,
)

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(Module):
    """Weight and bias in the form that products take."""

    _version = 3

    def __init__(self, dtype: Any = qint8) -> None:
        super().__init__()
        self.dtype = dtype
        weight = (
            _quantized._empty_affine_quantized([1, 1], scale=1.0, zero_point=0, dtype=qint8)
            if dtype == qint8
            else _C.functions.zeros([1, 1])
        )
        self.set_weight_bias(weight, None)

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        if self.dtype == qint8:
            self._packed_params = _quantized_ops.linear_prepack(weight, bias)
        elif self.dtype == _C.float16:
            self._packed_params = _quantized_ops.linear_prepack_fp16(weight, bias)
        else:
            raise RuntimeError(f"Unsupported dtype on quantized linear: {self.dtype}; qint8 and float16 are")

    def _weight_bias(self) -> tuple:
        weight, bias = self._packed_params.unpack()
        return (weight if self.dtype == qint8 else weight.float()), bias

    def forward(self, x: Any) -> Any:
        return x

    def __repr__(self) -> str:
        return repr(self._weight_bias())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        version = metadata.get("version")
        self.dtype = state_dict.pop(prefix + "dtype", qint8) if (version or 1) >= 2 else qint8
        if (version or 1) < 3:
            weight, bias = (taken(self, state_dict, prefix, name) for name in ("weight", "bias"))
        else:
            weight, bias = taken(self, state_dict, prefix, "_packed_params")
        check_weight(self, prefix, weight, self._weight_bias()[0])
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])


class Linear(OutputParameters, WeightedQuantizedModule):
    """A linear layer of a quantised input, with a quantised result.

    >>> m = facula.ao.nn.quantized.Linear(20, 30)
    >>> x = facula.quantize_per_tensor(facula.randn(8, 20), 0.1, 64, facula.quint8)
    >>> m(x).shape
    facula.Size([8, 30])
    """

    _version = 3
    _FLOAT_MODULE: tuple = (_Linear, NonDynamicallyQuantizableLinear)

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if dtype == qint8:
            weight = _quantized._empty_affine_quantized(
                [out_features, in_features], scale=1, zero_point=0, dtype=qint8
            )
            weight._integers.zero_()
        elif dtype == _C.float16:
            weight = _C.functions.zeros([out_features, in_features])
        else:
            raise RuntimeError(f"Unsupported dtype specified for quantized Linear: {dtype}")
        self._packed_params = LinearPackedParams(dtype)
        self._packed_params.set_weight_bias(weight, _C.functions.zeros([out_features]) if bias_ else None)
        self.scale, self.zero_point = 1.0, 0

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def forward(self, x: Any) -> Any:
        return _quantized_ops.TABLE["linear"](
            x, self._packed_params._packed_params, self.scale, self.zero_point
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        self._take_parameters(state_dict, prefix)
        _move_old_weights(state_dict, prefix, metadata)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])

    def _weight_bias(self) -> tuple:
        return self._packed_params._weight_bias()

    def weight(self) -> Any:
        return self._weight_bias()[0]

    def bias(self) -> Any:
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of an observed linear layer."""
        qconfig, inner = getattr(mod, "qconfig", None), mod
        if hasattr(mod, "weight_fake_quant"):
            _merge_norm(mod)
        else:
            check_kind(cls, mod, cls._FLOAT_MODULE)
            inner = mod[0] if hasattr(mod, "_modules") and "0" in mod._modules else mod
        weight, observer = observed_weight(inner, qconfig, not use_precomputed_fake_quant)
        if observer.dtype != qint8:
            raise AssertionError(f"Weight observer must have dtype torch.qint8, got {observer.dtype}")
        new = cls(inner.in_features, inner.out_features)
        new.set_weight_bias(weight, inner.bias)
        new.scale, new.zero_point = output_parameters(mod)
        return new

    @classmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        new = cls(ref_module.in_features, ref_module.out_features)
        new.set_weight_bias(ref_module.get_quantized_weight(), ref_module.bias)
        new.scale, new.zero_point = float(output_scale), int(output_zero_point)
        return new


def _move_old_weights(state_dict: Any, prefix: str, metadata: Any) -> None:
    """Moves the weights of a state in the first format to where later ones have them."""
    if metadata.get("version") in (None, 1):
        for name in ("weight", "bias"):
            if prefix + name in state_dict:
                state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)


def _merge_norm(mod: Any) -> None:
    """Merges the batch normalisation of a layer that was trained with it into its weight and bias."""
    from .....nn import Parameter
    from .....nn.utils import fuse_conv_bn_weights, fuse_linear_bn_weights

    bn = getattr(mod, "bn", None)
    if bn is None:
        return
    fuse = fuse_linear_bn_weights if isinstance(mod, _Linear) else fuse_conv_bn_weights
    weight, bias = fuse(mod.weight, mod.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    mod.weight, mod.bias = Parameter(weight.detach()), Parameter(bias.detach())
