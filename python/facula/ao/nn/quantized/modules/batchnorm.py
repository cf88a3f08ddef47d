"""Quantised batch normalisation, of models where no convolution precedes it."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized_ops, nn
from .utils import output_parameters

__all__ = ["BatchNorm2d", "BatchNorm3d"]


class _BatchNorm:
    _op = ""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum)  # type: ignore[call-arg]
        self.register_buffer("scale", _C.tensor(1.0))  # type: ignore[attr-defined]
        self.register_buffer("zero_point", _C.tensor(0))  # type: ignore[attr-defined]

    def _get_name(self) -> str:
        return "Quantized" + type(self).__name__

    def _check_input_dim(self, input: Any) -> None:
        rank = 4 if "2d" in self._op else 5
        if input.dim() != rank:
            raise ValueError(
                f"{type(self).__name__}: Input shape must have {rank} dimensions, got {tuple(input.shape)}"
            )

    def forward(self, input: Any) -> Any:
        self._check_input_dim(input)
        m: Any = self
        return _quantized_ops.find(self._op)(
            input, m.weight, m.bias, m.running_mean, m.running_var, m.eps, float(m.scale), int(m.zero_point)
        )

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        scale, zero_point = output_parameters(mod)
        return cls.from_reference(mod[0] if "0" in mod._modules else mod, scale, zero_point)

    @classmethod
    def from_reference(cls, bn: Any, output_scale: float, output_zero_point: int) -> Any:
        new: Any = cls(bn.num_features, bn.eps)
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(new, name, getattr(bn, name))
        new.scale, new.zero_point = _C.tensor(float(output_scale)), _C.tensor(int(output_zero_point))
        return new


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """Batch normalisation of a quantised tensor with two spatial dimensions."""

    _op = "batch_norm2d"


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """Batch normalisation of a quantised tensor with three spatial dimensions."""

    _op = "batch_norm3d"
