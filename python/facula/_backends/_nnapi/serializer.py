"""``serialize_model`` of PyTorch's exporter to NNAPI."""

from __future__ import annotations

import array
from typing import Any

from ... import nnapi

__all__ = ["serialize_model"]


def serialize_model(
    module: Any,
    inputs: Any,
    *,
    config: Any = None,
    return_shapes: Any = None,
    use_int16_for_qint16: bool = False,
) -> tuple:
    """Returns the model as an array of integers, its weights, the orders of its inputs' and outputs'
    dimensions (0: PyTorch's, 1: channels last), lines that set sizes which depend on the inputs, and the
    count of results (-1: a tensor).
    """
    if use_int16_for_qint16 or return_shapes is not None:
        raise NotImplementedError("serialize_model: use_int16_for_qint16 and return_shapes are not supported")
    model = nnapi.export(module, inputs).model
    lines = [f"ser_model[{word}] = {expression}" for word, expression in model.rules]
    orders = [[int(v.nhwc) for v in values] for values in (model.inputs, model.outputs)]
    return (
        array.array("i", model.words),
        model.weights,
        *orders,
        lines,
        -1 if model.single else len(model.outputs),
    )
