"""``convert_model_to_nnapi`` of PyTorch."""

from __future__ import annotations

from typing import Any

from ... import nnapi

__all__ = ["convert_model_to_nnapi"]

ANEURALNETWORKS_PREFER_LOW_POWER = 0
ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER = 1
ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = 2


def convert_model_to_nnapi(
    model: Any,
    inputs: Any,
    serializer: Any = None,
    return_shapes: Any = None,
    use_int16_for_qint16: bool = False,
    compilation_preference: int = ANEURALNETWORKS_PREFER_SUSTAINED_SPEED,
    relax_f32_to_f16: bool = False,
) -> nnapi.NnapiModel:
    """Converts a traced or plain module: :func:`facula.nnapi.export`."""
    if serializer is not None or return_shapes is not None or use_int16_for_qint16:
        raise NotImplementedError(
            "convert_model_to_nnapi: serializer, return_shapes and use_int16_for_qint16 are not supported"
        )
    inputs = [inputs] if not isinstance(inputs, (list, tuple)) else inputs
    return nnapi.export(model, tuple(inputs), preference=compilation_preference, relax=relax_f32_to_f16)
