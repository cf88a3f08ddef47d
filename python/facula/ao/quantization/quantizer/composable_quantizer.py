"""Several quantizers in a row."""

from __future__ import annotations

from ....fx import GraphModule, Node
from .quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation, Quantizer

__all__ = ["ComposableQuantizer"]


class ComposableQuantizer(Quantizer):
    """Applies quantizers in turn; a later one must not change what an earlier one has annotated.

    >>> from facula.ao.quantization.quantizer import ComposableQuantizer, EmbeddingQuantizer
    >>> quantizer = ComposableQuantizer([EmbeddingQuantizer()])
    """

    def __init__(self, quantizers: list[Quantizer]) -> None:
        super().__init__()
        self.quantizers = quantizers
        self._graph_annotations: dict[Node, QuantizationAnnotation] = {}

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        for quantizer in self.quantizers:
            model = quantizer.transform_for_annotation(model)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        for quantizer in self.quantizers:
            quantizer.annotate(model)
            self._record(model, type(quantizer).__name__)
        return model

    def _record(self, model: GraphModule, name: str) -> None:
        for n in model.graph.nodes:
            annotation, before = n.meta.get(Q_ANNOTATION_KEY), self._graph_annotations.get(n)
            if before is not None and annotation is None:
                raise RuntimeError(f"Quantizer {name} has removed annotations on node {n}")
            if before is not None and annotation is not before:
                raise RuntimeError(f"Quantizer {name} has changed annotations on node {n}")
            if annotation is not None:
                self._graph_annotations[n] = annotation

    def validate(self, model: GraphModule) -> None:
        for quantizer in self.quantizers:
            quantizer.validate(model)
