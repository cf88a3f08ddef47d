"""The annotators of XNNPACKQuantizer, one for each pattern of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import _C
from ...._ops import ops
from ....fx import GraphModule, Node
from ..pt2e.graph_utils import (
    ADDITIONS,
    CONVOLUTIONS,
    LINEAR,
    NORMS,
    PRODUCTS,
    RELUS,
    TRANSPOSED,
    argument,
    attribute,
    calls,
    chains,
)
from .quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation, SharedQuantizationSpec
from .utils import (
    OperatorConfig,
    OperatorPatternType,
    QuantizationConfig,
    annotation_of,
    get_bias_qspec,
    get_input_act_qspec,
    get_output_act_qspec,
    get_weight_qspec,
    is_annotated,
)

__all__ = [
    "OP_TO_ANNOTATOR",
    "OperatorConfig",
    "OperatorPatternType",
    "QuantizationConfig",
    "get_bias_qspec",
    "get_input_act_qspec",
    "get_output_act_qspec",
    "get_weight_qspec",
    "propagate_annotation",
    "register_annotator",
]

_Annotator = Callable[..., list[list[Node]]]
_Filter = Callable[[Node], bool] | None
OP_TO_ANNOTATOR: dict[str, _Annotator] = {}
_aten = ops.aten

# Operators whose result is quantised as the input is.
SHARING = (
    _aten.relu.default,
    _aten.hardtanh.default,
    _aten.max_pool2d.default,
    _aten.avg_pool2d.default,
    _aten.adaptive_avg_pool2d.default,
    _aten.mean.dim,
    _aten.permute.default,
    _aten.squeeze.dims,
    _aten.view.default,
    _aten.slice.Tensor,
    _aten.flatten.using_ints,
)
# Averages over windows; an exported graph has adaptive pools of equal windows as avg_pool2d.
_AVERAGES = (_aten.avg_pool2d.default, _aten.adaptive_avg_pool2d.default)
# Histograms do not hold larger values.
_LARGEST = 3.4028235e15


def register_annotator(op: str) -> Callable[[_Annotator], _Annotator]:
    """A decorator that makes a function the annotator of a pattern."""

    def register(annotator: _Annotator) -> _Annotator:
        OP_TO_ANNOTATOR[op] = annotator
        return annotator

    return register


def weighted_inputs(node: Node, config: QuantizationConfig | None) -> dict[Node, Any]:
    """Returns the annotation of the input, the weight and the bias of a layer."""
    inputs = {node.args[0]: get_input_act_qspec(config), node.args[1]: get_weight_qspec(config)}
    bias = argument(node, 2, "bias")
    if isinstance(bias, Node):
        inputs[bias] = get_bias_qspec(config)
    return inputs


def _mark(nodes: list[Node]) -> None:
    for node in nodes:
        annotation_of(node)._annotated = True


def _annotate(
    nodes: list[Node], inputs: dict[Node, Any], config: QuantizationConfig | None, filter_fn: _Filter
) -> list[list[Node]]:
    """Annotates a chain whose first node reads ``inputs`` and whose last one has the result."""
    weights = [n for n in inputs if n.op == "get_attr"]
    partition = [*reversed(nodes), *weights]
    if is_annotated(partition) or (filter_fn and not all(map(filter_fn, nodes))):
        return []
    first, last = nodes[0], nodes[-1]
    first.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map=inputs, _annotated=True)
    output = get_output_act_qspec(config)
    if first is last:
        first.meta[Q_ANNOTATION_KEY].output_qspec = output
    else:
        last.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(output_qspec=output, _annotated=True)
    _mark(partition)
    return [partition]


def _layers(name: str, *kinds: tuple) -> None:
    """Registers the annotator of a layer that is followed by calls of the other kinds."""

    def annotate(
        gm: GraphModule, quantization_config: QuantizationConfig | None, filter_fn: _Filter = None
    ) -> list[list[Node]]:
        done = []
        for nodes in chains(gm, list(kinds)):
            if not isinstance(nodes[0].args[0], Node) or not isinstance(nodes[0].args[1], Node):
                continue
            inputs = weighted_inputs(nodes[0], quantization_config)
            done += _annotate(nodes, inputs, quantization_config, filter_fn)
        return done

    OP_TO_ANNOTATOR[name] = annotate


_layers("conv_bn_relu", CONVOLUTIONS, NORMS, RELUS)
_layers("conv_bn", CONVOLUTIONS, NORMS)
_layers("conv_transpose_bn_relu", TRANSPOSED, NORMS, RELUS)
_layers("conv_transpose_bn", TRANSPOSED, NORMS)
_layers("linear_relu", LINEAR, RELUS)
_layers("linear", LINEAR)
_layers("conv_relu", CONVOLUTIONS, RELUS)
_layers("conv", CONVOLUTIONS)
_layers("conv_transpose_relu", TRANSPOSED, RELUS)


def _is_quantizable(gm: GraphModule, n: Node) -> bool:
    """Returns whether a value is one of float32 that a histogram holds."""
    value = n.meta.get("val")
    if not isinstance(value, _C.Tensor) or value.dtype != _C.float32:
        return False
    if n.op != "get_attr":
        return True
    constant = attribute(gm, str(n.target))
    return constant.numel() != 1 or abs(constant.item()) <= _LARGEST


def _pairs(name: str, *kinds: tuple) -> None:
    """Registers the annotator of a function of two tensors, followed by calls of the other kinds."""

    def annotate(
        gm: GraphModule, quantization_config: QuantizationConfig | None, filter_fn: _Filter = None
    ) -> list[list[Node]]:
        done = []
        for nodes in chains(gm, list(kinds)):
            operands = [a for a in nodes[0].args[:2] if isinstance(a, Node)]
            if all(_is_quantizable(gm, n) for n in operands):
                inputs = dict.fromkeys(operands, get_input_act_qspec(quantization_config))
                done += _annotate(nodes, inputs, quantization_config, filter_fn)
        return done

    OP_TO_ANNOTATOR[name] = annotate


_pairs("add_relu", ADDITIONS, RELUS)
_pairs("add", ADDITIONS)
_pairs("mul_relu", PRODUCTS, RELUS)
_pairs("mul", PRODUCTS)


def _annotate_shared(node: Node, first: Node, others: list[Node], spec: Any) -> None:
    shared = SharedQuantizationSpec((first, node))
    inputs = {**dict.fromkeys(others, shared), first: spec}
    node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
        input_qspec_map=inputs, output_qspec=shared, _annotated=True
    )


@register_annotator("adaptive_avg_pool2d")
def _annotate_adaptive_avg_pool2d(
    gm: GraphModule, quantization_config: QuantizationConfig | None, filter_fn: _Filter = None
) -> list[list[Node]]:
    done = []
    for node in calls(gm, _AVERAGES):
        if is_annotated([node]) or (filter_fn and not filter_fn(node)):
            continue
        source = node.args[0]
        annotation = source.meta.get(Q_ANNOTATION_KEY)
        observed = annotation is not None and annotation._annotated and annotation.output_qspec is not None
        spec = SharedQuantizationSpec(source) if observed else get_input_act_qspec(quantization_config)
        _annotate_shared(node, source, [], spec)
        done.append([node])
    return done


@register_annotator("cat")
def _annotate_cat(
    gm: GraphModule, quantization_config: QuantizationConfig | None, filter_fn: _Filter = None
) -> list[list[Node]]:
    done = []
    for node in calls(gm, (_aten.cat.default,)):
        if is_annotated([node]) or (filter_fn and not filter_fn(node)):
            continue
        first, *others = node.args[0]
        _annotate_shared(node, first, others, get_input_act_qspec(quantization_config))
        done.append([node])
    return done


def propagate_annotation(model: GraphModule) -> None:
    """Annotates operators that move values, with the annotation of the value that they move."""
    for n in calls(model, SHARING):
        source = n.args[0]
        annotation = source.meta.get(Q_ANNOTATION_KEY) if isinstance(source, Node) else None
        if annotation is None or annotation.output_qspec is None or is_annotated([n]):
            continue
        shared = SharedQuantizationSpec(source)
        n.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
            input_qspec_map={source: shared}, output_qspec=shared, _annotated=True
        )


def convert_scalars_to_attrs(model: GraphModule) -> GraphModule:
    """Replaces numbers that are added or multiplied by tensors of the module, which can be quantised."""
    count = 0
    for n in calls(model, ADDITIONS + PRODUCTS):
        args = list(n.args)
        if not n.meta["val"].dtype.is_floating_point:
            continue
        for k, value in enumerate(args[:2]):
            if isinstance(value, Node):
                continue
            while hasattr(model, f"_tensor_constant_{count}"):
                count += 1
            name, constant = f"_tensor_constant_{count}", _C.tensor(float(value))
            model.register_buffer(name, constant)
            with model.graph.inserting_before(n):
                args[k] = model.graph.create_node("get_attr", name)
            args[k].meta["val"] = constant.to("meta")
        n.args = tuple(args)
    model.recompile()
    return model
