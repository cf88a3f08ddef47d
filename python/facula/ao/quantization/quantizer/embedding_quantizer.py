"""The quantizer of embeddings: tables of bytes, with a scale and zero point for each row."""

from __future__ import annotations

from .... import _C, _qscheme, nn
from ...._ops import ops
from ....fx import GraphModule
from ....nn import functional as F
from ..observer import PerChannelMinMaxObserver
from .quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation, QuantizationSpec, Quantizer
from .utils import OperatorConfig, OperatorPatternType, QuantizationConfig

__all__ = ["EmbeddingQuantizer", "get_embedding_operators_config"]


def get_embedding_operators_config() -> OperatorConfig:
    """Returns the configuration of embeddings."""
    weight = QuantizationSpec(
        dtype=_C.uint8,
        qscheme=_qscheme.per_channel_affine_float_qparams,
        ch_axis=0,
        observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-12),
    )
    return OperatorConfig(QuantizationConfig(None, None, weight, None), [[nn.Embedding], [F.embedding]])


class EmbeddingQuantizer(Quantizer):
    """Quantises the tables of embeddings."""

    @classmethod
    def get_supported_quantization_configs(cls) -> list[QuantizationConfig]:
        return [config for config, _ in cls.get_supported_operators()]

    @classmethod
    def get_supported_operators(cls) -> list[OperatorConfig]:
        return [get_embedding_operators_config()]

    @classmethod
    def get_supported_operator_for_quantization_config(
        cls, quantization_config: QuantizationConfig
    ) -> list[OperatorPatternType]:
        return next((o for c, o in cls.get_supported_operators() if c == quantization_config), [])

    def annotate(self, model: GraphModule) -> GraphModule:
        weight = get_embedding_operators_config().config.weight
        for node in model.graph.nodes:
            if node.op == "call_function" and node.target == ops.aten.embedding.default:
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map={node.args[0]: weight})
        return model

    def validate(self, model: GraphModule) -> None:
        pass
