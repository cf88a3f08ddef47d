"""Small questions about modules and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _C, _qscheme
from ..._types import qint8, quint8
from ...nn import Module
from ...nn.utils import parametrize

__all__ = [
    "activation_dtype",
    "activation_is_statically_quantized",
    "calculate_qmin_qmax",
    "get_combined_dict",
    "get_qconfig_dtypes",
    "getattr_from_fqn",
    "has_no_children_ignoring_parametrizations",
    "is_per_channel",
    "is_per_tensor",
    "weight_dtype",
    "weight_is_quantized",
]

Pattern = Any


class MatchAllNode:
    """A place of a pattern that every node fits."""


def type_before_parametrizations(module: Any) -> type:
    """Returns the class of a module, without parametrisations."""
    return (
        parametrize.type_before_parametrizations(module)
        if parametrize.is_parametrized(module)
        else type(module)
    )


def is_per_tensor(qscheme: Any) -> bool:
    return qscheme in (_qscheme.per_tensor_affine, _qscheme.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    return not is_per_tensor(qscheme)


def get_combined_dict(default_dict: dict, additional_dict: dict) -> dict:
    return {**default_dict, **additional_dict}


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def has_no_children_ignoring_parametrizations(module: Module) -> bool:
    """Returns whether a module has no submodules."""
    if parametrize.is_parametrized(module):
        return len(module._modules) == 1 and "parametrizations" in module._modules
    return len(module._modules) == 0


def activation_dtype(qconfig: Any) -> Any:
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    return qconfig.weight().dtype


def get_qconfig_dtypes(qconfig: Any) -> tuple:
    activation = qconfig.activation()
    return activation.dtype, weight_dtype(qconfig), getattr(activation, "is_dynamic", False)


def activation_is_statically_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in (quint8, qint8) and not getattr(
        qconfig.activation(), "is_dynamic", False
    )


def weight_is_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in (quint8, qint8, _C.int8, _C.uint8)


def calculate_qmin_qmax(
    quant_min: int, quant_max: int, has_customized_qrange: bool, dtype: Any, reduce_range: bool
) -> tuple[int, int]:
    """Returns the limits of the integers."""
    from .observer import UniformQuantizationObserverBase

    limits = {"quant_min": quant_min, "quant_max": quant_max} if has_customized_qrange else {}
    observer = UniformQuantizationObserverBase(dtype, reduce_range=reduce_range, **limits)  # type: ignore[arg-type]
    return observer.quant_min, observer.quant_max


def get_swapped_custom_module_class(custom_module: Any, mapping: dict, qconfig: Any) -> Callable:
    return mapping[type(custom_module)]
