"""Shapes as tensors, for graphs that are exported to ONNX."""

from __future__ import annotations

from typing import Any

from .. import _C


def shape_as_tensor(x: Any) -> Any:
    """Returns the sizes of ``x`` as a tensor of int64.

    >>> facula.onnx.operators.shape_as_tensor(facula.zeros(2, 3))
    tensor([2, 3])
    """
    return _C.tensor(list(x.shape), dtype=_C.int64)


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """Returns ``x`` with the sizes in a tensor."""
    return x.reshape(shape.tolist())
