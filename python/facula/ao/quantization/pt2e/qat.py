"""Convolutions with normalisation, while they are trained for quantisation and afterwards.

During training, the weight is rounded as it will be when the normalisation is part of it: it is scaled before
it is rounded, and the result is scaled back before it is normalised.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .... import _C
from ...._ops import ops
from ....fx import GraphModule, Node
from ....nn import Parameter
from ..quantizer.quantizer import (
    Q_ANNOTATION_KEY,
    DerivedQuantizationSpec,
    EdgeOrNode,
    SharedQuantizationSpec,
)
from .graph_utils import CONVOLUTIONS, LINEAR, NORMS, TRANSPOSED, argument, attribute, chains
from .prepare import is_observer
from .recompose import erase_unread

__all__ = ["fold_norms", "fold_trained_norms", "scale_weights"]

_f = _C.functions
_aten = ops.aten
_MARK = "quantization_scaled_weight"


def _norm_parameters(model: GraphModule, norm: Node) -> tuple[Any, Any, Any, Any, float]:
    """Returns mean, variance, weight, bias and eps of a normalisation; the nodes of the first four."""
    mean, var, weight, bias = (argument(norm, k, "") for k in (1, 2, 3, 4))
    return mean, var, weight, bias, float(argument(norm, 7, "eps", 1e-5))


def _value(model: GraphModule, node: Any) -> Any:
    return None if node is None else attribute(model, str(node.target)).detach()


def _is_foldable(model: GraphModule, layer: Node, norm: Node) -> bool:
    mean, var, weight, bias, _ = _norm_parameters(model, norm)
    constants = [mean, var, *(n for n in (weight, bias, layer.args[1]) if n is not None)]
    return all(isinstance(n, Node) and n.op == "get_attr" for n in constants)


def _channel_axis(layer: Node) -> int:
    return 1 if layer.target in TRANSPOSED else 0


def _by_channel(rank: int, axis: int) -> list[int]:
    return [-1 if d == axis else 1 for d in range(rank)]


def _folded(
    model: GraphModule, layer: Node, norm: Node, weight: Any, bias: Any
) -> tuple[_C.Tensor, _C.Tensor]:
    """Returns the weight and bias of a layer that normalises, too."""
    mean, var, slope, shift, eps = _norm_parameters(model, norm)
    mean, var, slope, shift = (_value(model, n) for n in (mean, var, slope, shift))
    factor = _f.rsqrt(var + eps)
    factor = factor if slope is None else factor * slope
    axis = _channel_axis(layer)
    groups = argument(layer, 6, "groups", 1) if axis else 1
    channels = factor
    if groups > 1:  # a transposed weight holds the channels of one group
        channels = (
            factor.reshape(groups, 1, -1)
            .repeat_interleave(weight.shape[0] // groups, 1)
            .reshape(weight.shape[0], -1)
        )
        shape = [*channels.shape, *[1] * (weight.dim() - 2)]
    else:
        shape = _by_channel(weight.dim(), axis)
    bias = _f.zeros_like(mean) if bias is None else bias
    shifted = (bias - mean) * factor
    return weight * channels.reshape(shape), shifted if shift is None else shifted + shift


def _new_attribute(model: GraphModule, name: str, value: Any, before: Node, like: Node | None) -> Node:
    """Adds a parameter and the node that reads it."""
    path, count = name, 0
    while hasattr(model, path):
        count += 1
        path = f"{name}_{count}"
    model.register_parameter(path, Parameter(value.clone()))
    with model.graph.inserting_before(before):
        node = model.graph.get_attr(path)
    node.meta = dict(like.meta) if like is not None else {}
    node.meta["val"] = value.to("meta")
    return node


def fold_norms(model: GraphModule) -> None:
    """Makes normalisations by running statistics a part of the weights of the layers before them."""
    for layer, norm in chains(model, [CONVOLUTIONS + TRANSPOSED + LINEAR, NORMS]):
        if argument(norm, 5, "training", False) or not _is_foldable(model, layer, norm):
            continue
        weight, bias = layer.args[1], argument(layer, 2, "bias")
        values = _folded(model, layer, norm, _value(model, weight), _value(model, bias))
        name = str(weight.target).replace(".", "_")
        weight = _new_attribute(model, name + "_normalized", values[0], layer, weight)
        bias = _new_attribute(model, name + "_normalized_bias", values[1], layer, bias)
        layer.args = (layer.args[0], weight, bias, *layer.args[3:])
        layer.meta["val"] = norm.meta.get("val", layer.meta.get("val"))
        norm.replace_all_uses_with(layer)
        model.graph.erase_node(norm)
    model.recompile()


def scale_weights(model: GraphModule) -> None:
    """Scales the weights of convolutions that are normalised as the normalisation will."""
    for layer, norm in chains(model, [CONVOLUTIONS + TRANSPOSED, NORMS]):
        if not _is_foldable(model, layer, norm):
            continue
        if _channel_axis(layer) and argument(layer, 6, "groups", 1) != 1:
            continue
        _scale_weight(model, layer, norm)
    model.graph.lint()
    model.recompile()


def _scale_weight(model: GraphModule, layer: Node, norm: Node) -> None:
    graph = model.graph
    mean, var, slope, _, eps = _norm_parameters(model, norm)
    weight, bias = layer.args[1], argument(layer, 2, "bias")
    rank = weight.meta["val"].dim()
    values = {n: n.meta["val"] for n in (weight, var)}

    def call(target: Any, args: tuple, like: Node) -> Node:
        node = graph.call_function(target, args)
        node.meta = {k: v for k, v in layer.meta.items() if k != Q_ANNOTATION_KEY}
        node.meta["val"] = like.meta["val"]
        return node

    with graph.inserting_before(layer):
        deviation = call(_aten.sqrt.default, (call(_aten.add.Tensor, (var, eps), var),), var)
        one = slope if slope is not None else call(_aten.ones_like.default, (var,), var)
        factor = call(_aten.div.Tensor, (one, deviation), var)
        shape = _by_channel(rank, _channel_axis(layer))
        by_weight = call(_aten.view.default, (factor, shape), var)
        by_weight.meta["val"] = values[var].reshape(shape)
        scaled = call(_aten.mul.Tensor, (weight, by_weight), weight)
        scaled.meta[_MARK] = True
        zeros = None if bias is None else call(_aten.zeros_like.default, (bias,), bias)
    shape = _by_channel(rank, 1)
    with graph.inserting_before(norm):
        by_channel = call(_aten.view.default, (factor, shape), var)
        by_channel.meta["val"] = values[var].reshape(shape)
        y = call(_aten.div.Tensor, (layer, by_channel), layer)
        if bias is not None:
            added = call(_aten.view.default, (bias, shape), bias)
            added.meta["val"] = bias.meta["val"].reshape(shape)
            y = call(_aten.add.Tensor, (y, added), layer)
    norm.args = (y, *norm.args[1:])
    layer.args = (layer.args[0], scaled, zeros, *layer.args[3:])
    edges: dict[EdgeOrNode, EdgeOrNode] = {(weight, layer): (scaled, layer)}
    if bias is not None:
        edges[bias, layer] = (zeros, layer)
    _move_annotations(model, layer, edges)


def _move_annotations(model: GraphModule, layer: Node, edges: dict[EdgeOrNode, EdgeOrNode]) -> None:
    """Lets annotations refer to new edges of a layer."""

    def moved(spec: Any) -> Any:
        if isinstance(spec, SharedQuantizationSpec):
            return SharedQuantizationSpec(edges.get(spec.edge_or_node, spec.edge_or_node))
        if isinstance(spec, DerivedQuantizationSpec):
            return dataclasses.replace(spec, derived_from=[edges.get(e, e) for e in spec.derived_from])
        return spec

    for node in model.graph.nodes:
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        if annotation is None:
            continue
        annotation.output_qspec = moved(annotation.output_qspec)
        annotation.input_qspec_map = {
            edges.get((source, node), (source, node))[0]: moved(spec)  # type: ignore[index]
            for source, spec in annotation.input_qspec_map.items()
        }


def scale_weights_back(model: GraphModule) -> None:
    """Divides the rounded weights of convolutions instead of their results, which are larger."""
    for norm in [n for n in model.graph.nodes if n.op == "call_function" and n.target in NORMS]:
        parts = _scaled_parts(model, norm)
        if parts is None or is_observer(model, argument(parts[0], 2, "bias")):
            continue
        layer, scaled, bias = parts
        rounded = layer.args[1]
        with model.graph.inserting_before(layer):
            weight = model.graph.call_function(_aten.div.Tensor, (rounded, scaled.args[1]))
        weight.meta = {**scaled.meta}
        layer.args = (layer.args[0], weight, bias, *layer.args[3:])
        norm.args = (layer, *norm.args[1:])
    erase_unread(model.graph)
    model.graph.lint()
    model.recompile()


def fold_trained_norms(model: GraphModule) -> None:
    """Undoes ``scale_weights`` with the normalisation as a part of weight and bias."""
    for norm in [n for n in model.graph.nodes if n.op == "call_function" and n.target in NORMS]:
        parts = _scaled_parts(model, norm)
        if parts is None:
            continue
        layer, scaled, bias = parts
        weight = scaled.args[0]
        values = _folded(model, layer, norm, _value(model, weight), _value(model, bias))
        name = str(weight.target).replace(".", "_")
        rounded = _divided(layer.args[1])
        if rounded is not None:
            layer.args = (layer.args[0], rounded, *layer.args[2:])
        new_weight = _new_attribute(model, name + "_normalized", values[0], scaled, weight)
        scaled.replace_all_uses_with(new_weight)
        new_bias = _new_attribute(model, name + "_normalized_bias", values[1], layer, bias)
        old_bias = argument(layer, 2, "bias")
        if old_bias is not None and is_observer(model, old_bias):
            zeros = old_bias.args[0]
            old_bias.args = (new_bias,)
            if zeros.users:
                zeros.replace_all_uses_with(new_bias)
        else:
            layer.args = (*layer.args[:2], new_bias, *layer.args[3:])
        norm.replace_all_uses_with(layer)
        model.graph.erase_node(norm)
    _erase_counts(model)
    erase_unread(model.graph)
    model.graph.lint()
    model.recompile()


def _erase_counts(model: GraphModule) -> None:
    """Erases the updates of the numbers of batches, which belong to training."""
    for node in list(model.graph.nodes):
        if node.op != "call_function" or node.target != _aten.copy_.default:
            continue
        to = node.args[0]
        if to.op == "get_attr" and str(to.target).endswith("num_batches_tracked"):
            model.graph.erase_node(node)


def _scaled_parts(model: GraphModule, norm: Node) -> tuple[Node, Node, Node | None] | None:
    """Returns the layer before a normalisation, its scaled weight and its bias; None if it is another one."""
    y, bias = norm.args[0], None
    if isinstance(y, Node) and y.target == _aten.add.Tensor:
        y, added = y.args[:2]
        bias = added.args[0]
    if isinstance(y, Node) and y.target == _aten.div.Tensor:
        y = y.args[0]
    elif isinstance(y, Node) and y.op == "call_function" and y.target in CONVOLUTIONS + TRANSPOSED:
        bias = argument(y, 2, "bias")
    if not isinstance(y, Node) or y.op != "call_function" or y.target not in CONVOLUTIONS + TRANSPOSED:
        return None
    scaled = _divided(y.args[1]) or y.args[1]
    while is_observer(model, scaled):
        scaled = scaled.args[0]
    return (y, scaled, bias) if _MARK in scaled.meta and scaled.target == _aten.mul.Tensor else None


def _divided(weight: Node) -> Node | None:
    """Returns the rounded weight that a call divides by the factor that it was scaled with."""
    is_division = weight.op == "call_function" and weight.target == _aten.div.Tensor
    return weight.args[0] if is_division and _MARK in weight.meta else None
