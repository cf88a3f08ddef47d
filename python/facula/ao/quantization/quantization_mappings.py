"""Tables of the quantised modules that replace others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn import functional as F
from ...nn.modules.linear import NonDynamicallyQuantizableLinear
from ..nn import intrinsic as nni
from ..nn import qat as nnqat
from ..nn import quantizable as nnqa
from ..nn import quantized as nnq
from ..nn.intrinsic import qat as nniqat
from ..nn.intrinsic import quantized as nniq
from ..nn.intrinsic.quantized import dynamic as nniqd
from ..nn.quantized import dynamic as nnqd
from .fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from .stubs import DeQuantStub, QuantStub

__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_quantized_operator",
    "get_static_quant_module_class",
    "no_observer_set",
]


def _named(module: Any, target: Any, names: str) -> dict:
    """Returns the pairs of classes with the same name in two modules."""
    return {getattr(module, name): getattr(target, name) for name in names.split()}


DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **_named(
        nn,
        nnq,
        """BatchNorm2d BatchNorm3d Dropout Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
        ConvTranspose3d ELU
        Embedding EmbeddingBag GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm
        LeakyReLU Linear ReLU6 PReLU""",
    ),
    NonDynamicallyQuantizableLinear: nnq.Linear,
    nnq.FloatFunctional: nnq.QFunctional,
    **_named(
        nni,
        nniq,
        """BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d ConvAdd2d ConvAddReLU2d LinearReLU
        LinearLeakyReLU LinearTanh""",
    ),
    nniqat.ConvBn1d: nnq.Conv1d,
    nniqat.ConvBn2d: nnq.Conv2d,
    nniqat.ConvBn3d: nnq.Conv3d,
    nniqat.ConvBnReLU1d: nniq.ConvReLU1d,
    nniqat.ConvBnReLU2d: nniq.ConvReLU2d,
    nniqat.ConvBnReLU3d: nniq.ConvReLU3d,
    **_named(nniqat, nniq, "ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"),
    nniqat.LinearBn1d: nnq.Linear,
    **_named(nnqat, nnq, "Linear Conv1d Conv2d Conv3d"),
}
DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    **_named(nn, nnqat, "Conv2d Conv3d Linear"),
    NonDynamicallyQuantizableLinear: nnqat.Linear,
    **_named(
        nni,
        nniqat,
        "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU2d "
        "ConvReLU3d LinearReLU LinearBn1d",
    ),
}
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    **_named(nn, nnqd, "GRUCell Linear LSTM GRU LSTMCell RNNCell"),
    nnqat.dynamic.Linear: nnqd.Linear,
    NonDynamicallyQuantizableLinear: nnqd.Linear,
    nni.LinearReLU: nniqd.LinearReLU,
    nn.EmbeddingBag: nnq.EmbeddingBag,
    nn.Embedding: nnq.Embedding,
}
DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Any, Any] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def _operators() -> dict[Any, Callable]:
    from ..._ops import ops

    names = "elu hardswish instance_norm layer_norm leaky_relu dropout".split()
    return {getattr(F, name): getattr(ops.quantized, name) for name in names}


DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Any, Callable] = _operators()


def no_observer_set() -> set:
    """Returns the classes that observe their values themselves."""
    return {nnqa.LSTM, nnqa.MultiheadAttention}


def get_default_static_quant_module_mappings() -> dict:
    """Returns a copy of the table for quantisation after training."""
    return copy.copy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict:
    """Returns the same with embeddings that were trained with rounded tables."""
    return {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **_named(nnqat, nnq, "EmbeddingBag Embedding")}


def get_default_qat_module_mappings() -> dict:
    """Returns a copy of the table for training."""
    return copy.copy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict:
    """Returns the same with embeddings."""
    return {**DEFAULT_QAT_MODULE_MAPPINGS, **_named(nn, nnqat, "EmbeddingBag Embedding")}


def get_default_dynamic_quant_module_mappings() -> dict:
    """Returns the table for layers whose inputs are quantised at each call."""
    return copy.copy(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_default_qconfig_propagation_list() -> set:
    """Returns the classes that get an observer of their results."""
    from .. import nn as _  # noqa: F401

    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        *DEFAULT_QAT_MODULE_MAPPINGS,
        *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        nn.Sequential,
    }


def get_default_compare_output_module_list() -> set:
    """Returns the classes, float and quantised, whose results correspond."""
    tables = (
        DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        DEFAULT_QAT_MODULE_MAPPINGS,
        DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
    )
    return {kind for table in tables for kind in (*table, *table.values())}


def get_default_float_to_quantized_operator_mappings() -> dict:
    return copy.copy(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def _of(table: dict, kind: Any, what: str) -> Any:
    if kind not in table:
        raise AssertionError(
            f"Floating point module class {kind} does not have a corresponding {what} module class"
        )
    return table[kind]


def get_static_quant_module_class(
    float_module_class: Any, additional_static_quant_mapping: Any = None, is_reference: bool = False
) -> Any:
    """Returns the class that replaces a module after training."""
    table = {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **(additional_static_quant_mapping or {})}
    return _of(table, float_module_class, "quantized")


def get_dynamic_quant_module_class(
    float_module_class: Any, additional_dynamic_quant_mapping: Any = None
) -> Any:
    """Returns the class that replaces a module whose inputs are quantised at each call."""
    table = {**DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, **(additional_dynamic_quant_mapping or {})}
    return _of(table, float_module_class, "quantized")


def get_quantized_operator(float_op: Any) -> Callable:
    """Returns the function of ``ops.quantized`` for one of ``nn.functional``."""
    return _of(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS, float_op, "quantized operator")


def _get_special_act_post_process(module: Any) -> Any:
    return DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type(module))


def _has_special_act_post_process(module: Any) -> bool:
    return module.training and type(module) in DEFAULT_MODULE_TO_ACT_POST_PROCESS
