"""Configurations of operators, and helpers for annotating nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .... import _C, _qscheme
from ....fx import Node
from .quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation, QuantizationSpec

__all__ = [
    "OperatorConfig",
    "OperatorPatternType",
    "QuantizationConfig",
    "annotate_input_qspec_map",
    "annotate_output_qspec",
    "get_bias_qspec",
    "get_input_act_qspec",
    "get_module_name_filter",
    "get_output_act_qspec",
    "get_weight_qspec",
    "is_valid_annotation",
]


@dataclass(eq=True, frozen=True)
class QuantizationConfig:
    """How the operands and the result of an operator are quantised."""

    input_activation: QuantizationSpec | None
    output_activation: QuantizationSpec | None
    weight: QuantizationSpec | None
    bias: QuantizationSpec | None
    is_qat: bool = False


# Modules and functions that follow each other.
OperatorPatternType = list[Callable]


class OperatorConfig(NamedTuple):
    """A configuration and the patterns that it is for."""

    config: QuantizationConfig
    operators: list[OperatorPatternType]


def _activation(spec: QuantizationSpec | None) -> QuantizationSpec | None:
    if spec is not None and spec.qscheme not in (_qscheme.per_tensor_affine, _qscheme.per_tensor_symmetric):
        raise AssertionError(f"activations are quantised per tensor, got qscheme {spec.qscheme}")
    return spec


def get_input_act_qspec(quantization_config: QuantizationConfig | None) -> QuantizationSpec | None:
    """Returns how inputs are quantised."""
    return None if quantization_config is None else _activation(quantization_config.input_activation)


def get_output_act_qspec(quantization_config: QuantizationConfig | None) -> QuantizationSpec | None:
    """Returns how results are quantised."""
    return None if quantization_config is None else _activation(quantization_config.output_activation)


def get_weight_qspec(quantization_config: QuantizationConfig | None) -> QuantizationSpec | None:
    """Returns how weights are quantised."""
    spec = None if quantization_config is None else quantization_config.weight
    symmetric = (_qscheme.per_tensor_symmetric, _qscheme.per_channel_symmetric, None)
    if spec is not None and spec.qscheme not in symmetric:
        raise ValueError(f"Unsupported quantization_spec {spec} for weight")
    return spec


def get_bias_qspec(quantization_config: QuantizationConfig | None) -> QuantizationSpec | None:
    """Returns how biases are quantised."""
    spec = None if quantization_config is None else quantization_config.bias
    if spec is not None and spec.dtype != _C.float32:
        raise AssertionError(f"only float32 is supported for biases, got {spec.dtype}")
    return spec


def annotation_of(node: Node) -> QuantizationAnnotation:
    """Returns the annotation of a node, a new one if it has none."""
    return node.meta.setdefault(Q_ANNOTATION_KEY, QuantizationAnnotation())


def annotate_input_qspec_map(node: Node, input_node: Node, qspec: Any) -> None:
    """Annotates one input of a node."""
    annotation_of(node).input_qspec_map[input_node] = qspec


def annotate_output_qspec(node: Node, qspec: Any) -> None:
    """Annotates the result of a node."""
    annotation_of(node).output_qspec = qspec


def is_annotated(nodes: list[Node]) -> bool:
    """Returns whether any of the nodes is annotated already."""
    return any(n.meta[Q_ANNOTATION_KEY]._annotated for n in nodes if Q_ANNOTATION_KEY in n.meta)


def is_valid_annotation(annotation: QuantizationAnnotation | None) -> bool:
    """Returns whether an annotation quantises anything."""
    return annotation is not None and bool(annotation.input_qspec_map or annotation.output_qspec is not None)


def module_stack(node: Node) -> list[tuple[str, str]]:
    """Returns (path, class) of the modules that a node belongs to, the outermost first."""
    stack = []
    for path, kind in node.meta.get("nn_module_stack", {}).values():
        name = f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)
        stack.append((path.removeprefix("L['self']."), name))
    return stack


def get_module_name_filter(module_name: str) -> Callable[[Node], bool]:
    """Returns a function that says whether a node belongs to the module with this path."""

    def module_name_filter(n: Node) -> bool:
        return any(path == module_name for path, _ in module_stack(n))

    return module_name_filter


def module_type_filter(kind: type) -> Callable[[Node], bool]:
    """Returns a function that says whether a node belongs to a module of this class."""
    wanted = f"{kind.__module__}.{kind.__qualname__}"
    return lambda n: any(name == wanted for _, name in module_stack(n))
