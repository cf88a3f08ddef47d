"""Configurations by module, function and path of a graph."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ... import _C, nn
from ...nn import functional as F
from .fake_quantize import FixedQParamsFakeQuantize, default_weight_fake_quant
from .observer import (
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    default_placeholder_observer,
    default_weight_observer,
)
from .qconfig import (
    QConfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    default_symmetric_qnnpack_qat_qconfig,
    default_symmetric_qnnpack_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_f = _C.functions
_FIXED_QPARAMS_OP_TO_OBSERVER: dict[Any, Any] = {
    **dict.fromkeys(
        (
            nn.Hardsigmoid,
            F.hardsigmoid,
            "hardsigmoid",
            "hardsigmoid_",
            nn.Sigmoid,
            _f.sigmoid,
            "sigmoid",
            "sigmoid_",
            nn.Softmax,
        ),
        default_fixed_qparams_range_0to1_observer,
    ),
    **dict.fromkeys((nn.Tanh, _f.tanh, "tanh", "tanh_"), default_fixed_qparams_range_neg1to1_observer),
}

_STYLES = {
    "object_type_qconfigs": "object_type",
    "module_name_regex_qconfigs": "module_name_regex",
    "module_name_qconfigs": "module_name",
    "module_name_object_type_order_qconfigs": "module_name_object_type_order",
}


class QConfigMapping:
    """Configurations: one for everything, others for kinds and names. The most specific one applies.

    >>> from facula.ao.quantization import QConfigMapping, get_default_qconfig
    >>> mapping = QConfigMapping().set_global(get_default_qconfig()).set_module_name("head", None)
    """

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: OrderedDict[Any, Any] = OrderedDict()
        self.module_name_regex_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_qconfigs: OrderedDict[str, Any] = OrderedDict()
        self.module_name_object_type_order_qconfigs: OrderedDict[tuple, Any] = OrderedDict()

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """Sets the configuration of everything else."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Callable | str, qconfig: Any) -> QConfigMapping:
        """Sets that of a class of modules, a function or a method's name."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """Sets that of modules whose path matches; the first expression that matches applies."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """Sets that of a module and what it contains, by its path."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(
        self, module_name: str, object_type: Callable, index: int, qconfig: Any
    ) -> QConfigMapping:
        """Sets that of call number ``index`` of a class or function inside of a module."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} (", " global_qconfig", f"  {self.global_qconfig}"]
        for style in _STYLES:
            items = getattr(self, style)
            lines += [f" {style}", *([f"  {k}: {v}" for k, v in items.items()] or [f"  {items}"])]
        return "\n".join([*lines, ")"])

    def to_dict(self) -> dict[str, Any]:
        """Returns the mapping as a dictionary of lists of pairs."""
        table: dict[str, Any] = {"": self.global_qconfig}
        for style, key in _STYLES.items():
            table[key] = [
                (*k, v) if isinstance(k, tuple) else (k, v) for k, v in getattr(self, style).items()
            ]
        return table

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """Returns the mapping that a dictionary of lists of pairs describes."""
        mapping = cls().set_global(qconfig_dict.get(""))
        for style, key in _STYLES.items():
            for *k, v in qconfig_dict.get(key, []):
                getattr(mapping, style)[tuple(k) if len(k) > 1 else k[0]] = v
        return mapping

    def find(self, path: str, kind: Any, index: int) -> Any:
        """Returns the configuration of call number ``index`` of ``kind`` in the module at ``path``."""
        ordered = self.module_name_object_type_order_qconfigs
        if (path, kind, index) in ordered:
            return ordered[path, kind, index]
        parts = path.split(".")
        for n in range(len(parts), 0, -1):
            if (outer := ".".join(parts[:n])) in self.module_name_qconfigs:
                return self.module_name_qconfigs[outer]
        for expression, qconfig in self.module_name_regex_qconfigs.items():
            if re.match(expression, path):
                return qconfig
        return self.object_type_qconfigs.get(kind, self.global_qconfig)


def _mapping(is_qat: bool, backend: str, version: int) -> QConfigMapping:
    qconfig = (get_default_qat_qconfig if is_qat else get_default_qconfig)(backend, version)
    weight = default_weight_fake_quant if is_qat else default_weight_observer
    transposed = QConfig(qconfig.activation, weight) if backend in ("fbgemm", "x86") else qconfig
    norm = QConfig(qconfig.activation, default_placeholder_observer)
    mapping = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for rank in (1, 2, 3):
        mapping.set_object_type(getattr(nn, f"ConvTranspose{rank}d"), transposed)
    for rank in (1, 2, 3):
        mapping.set_object_type(getattr(F, f"conv_transpose{rank}d"), transposed)
    mapping.set_object_type(F.layer_norm, norm).set_object_type(nn.LayerNorm, norm)
    mapping.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    for op, observer in _FIXED_QPARAMS_OP_TO_OBSERVER.items():
        activation = FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer
        mapping.set_object_type(op, QConfig(activation, weight))
    return mapping


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """Returns the configurations for quantisation after training."""
    return _mapping(False, backend, version)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """Returns the configurations for training for a quantised model."""
    return _mapping(True, backend, version)


def _symmetric(mapping: QConfigMapping, qconfig: QConfig) -> QConfigMapping:
    mapping.set_global(qconfig)
    for kind in mapping.object_type_qconfigs:
        if kind not in _FIXED_QPARAMS_OP_TO_OBSERVER:
            mapping.set_object_type(kind, qconfig)
    return mapping


def _get_symmetric_qnnpack_qconfig_mapping() -> QConfigMapping:
    return _symmetric(get_default_qconfig_mapping("qnnpack"), default_symmetric_qnnpack_qconfig)


def _get_symmetric_qnnpack_qat_qconfig_mapping() -> QConfigMapping:
    return _symmetric(get_default_qat_qconfig_mapping("qnnpack"), default_symmetric_qnnpack_qat_qconfig)
