"""Linear layers whose inputs are quantised with the range of each call."""

from __future__ import annotations

from typing import Any

from ...... import _C, _quantized_ops, nn
from ......_types import qint8
from ......nn.modules.linear import NonDynamicallyQuantizableLinear
from ... import modules as nnq
from ...modules.utils import check_kind, observed_weight

__all__ = ["Linear"]


class Linear(nnq.Linear):
    """A linear layer of float32 values with a weight in int8 or float16.

    >>> m = facula.ao.nn.quantized.dynamic.Linear(20, 30)
    >>> m(facula.randn(8, 20)).shape
    facula.Size([8, 30])
    """

    _version = 4
    _FLOAT_MODULE = (nn.Linear, NonDynamicallyQuantizableLinear)
    _relu = ""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__(in_features, out_features, bias_, dtype)
        self.version = 4

    def forward(self, x: Any) -> Any:
        packed = self._packed_params._packed_params
        if self._packed_params.dtype == _C.float16:
            return _quantized_ops.TABLE[f"linear{self._relu}_dynamic_fp16"](x, packed).to(x.dtype)
        return _quantized_ops.TABLE[f"linear{self._relu}_dynamic"](x, packed, self.version >= 4).to(x.dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        dtype = self._packed_params.dtype
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={dtype}"
        return text + (f", qscheme={self.weight().qscheme()}" if dtype == qint8 else "")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        self.version = metadata.get("version") or 1
        super()._load_from_state_dict(state_dict, prefix, metadata, *args)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of a linear layer."""
        from ....qat.dynamic import Linear as QatLinear

        if type(mod) is not QatLinear:
            check_kind(cls, mod, cls._FLOAT_MODULE)
        inner = mod[0] if "0" in mod._modules else mod
        qconfig = mod.qconfig
        if qconfig is None or qconfig.weight is None:
            from .....quantization.qconfig import default_dynamic_qconfig as qconfig  # type: ignore[no-redef]
        dtype = getattr(qconfig.weight(), "dtype", None)
        if dtype not in (qint8, _C.float16):
            raise RuntimeError(
                f"The only supported dtypes for dynamic quantized linear are qint8 and float16, got {dtype}"
            )
        new = cls(inner.in_features, inner.out_features, dtype=dtype)
        weight = observed_weight(inner, qconfig)[0] if dtype == qint8 else inner.weight.detach().float()
        new.set_weight_bias(weight, inner.bias)
        return new

    @classmethod
    def from_reference(cls, ref_module: Any, *parameters: Any) -> Any:
        new = cls(ref_module.in_features, ref_module.out_features)
        new.set_weight_bias(ref_module.get_quantized_weight(), ref_module.bias)
        return new
