"""Quantizers, and the annotations that they write into graphs (docs/quantization.md)."""

from .composable_quantizer import ComposableQuantizer
from .embedding_quantizer import EmbeddingQuantizer
from .quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)
from .utils import (
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
    annotate_input_qspec_map,
    annotate_output_qspec,
    get_bias_qspec,
    get_input_act_qspec,
    get_module_name_filter,
    get_output_act_qspec,
    get_weight_qspec,
    is_valid_annotation,
)
from .x86_inductor_quantizer import X86InductorQuantizer, get_default_x86_inductor_quantization_config
from .xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

__all__ = [
    "ComposableQuantizer",
    "DerivedQuantizationSpec",
    "EdgeOrNode",
    "EmbeddingQuantizer",
    "FixedQParamsQuantizationSpec",
    "OperatorConfig",
    "OperatorPatternType",
    "QuantizationAnnotation",
    "QuantizationConfig",
    "QuantizationSpec",
    "QuantizationSpecBase",
    "Quantizer",
    "SharedQuantizationSpec",
    "X86InductorQuantizer",
    "XNNPACKQuantizer",
    "annotate_input_qspec_map",
    "annotate_output_qspec",
    "get_bias_qspec",
    "get_default_x86_inductor_quantization_config",
    "get_input_act_qspec",
    "get_module_name_filter",
    "get_output_act_qspec",
    "get_symmetric_quantization_config",
    "get_weight_qspec",
    "is_valid_annotation",
]
