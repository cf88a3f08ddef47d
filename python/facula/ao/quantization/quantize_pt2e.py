"""The export-based flow: a quantizer annotates a graph, which is observed or trained, and converted."""

from __future__ import annotations

from typing import Any

from ...fx import GraphModule
from .pt2e.convert import convert_observers, fold_constants
from .pt2e.lower import ConvertedGraphModule
from .pt2e.prepare import prepare
from .pt2e.qat import fold_norms, fold_trained_norms, scale_weights, scale_weights_back
from .pt2e.recompose import drop_detached, recompose
from .quantizer.quantizer import Quantizer

__all__ = ["convert_pt2e", "prepare_pt2e", "prepare_qat_pt2e"]


def _check(name: str, model: Any, quantizer: Any) -> None:
    if not isinstance(model, GraphModule):
        raise TypeError(
            f"{name}: expected the graph of an exported program, got {type(model).__name__}\n"
            "  hint: export(model, example_inputs).module() gives one"
        )
    if not isinstance(quantizer, Quantizer):
        raise TypeError(f"{name}: expected a Quantizer, got {type(quantizer).__name__}")


def _annotated(model: GraphModule, quantizer: Quantizer) -> GraphModule:
    model = quantizer.transform_for_annotation(model)
    quantizer.annotate(model)
    quantizer.validate(model)
    return model


def prepare_pt2e(model: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Returns a graph with observers, to be run on data that are typical, and then converted.

    Args:
        model: the graph of an exported program, ``export(model, inputs).module()``; it is changed.
        quantizer: annotates what is quantised, and how.
    """
    _check("prepare_pt2e", model, quantizer)
    drop_detached(model)
    recompose(model)
    fold_norms(model)
    model = _annotated(model, quantizer)
    return prepare(model, False, quantizer.prepare_obs_or_fq_callback)


def prepare_qat_pt2e(model: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Returns a graph that rounds weights and values as the converted one will, to be trained.

    ``train()`` and ``eval()`` switch its normalisation and dropout.
    """
    _check("prepare_qat_pt2e", model, quantizer)
    recompose(model)
    model = _annotated(model, quantizer)
    scale_weights(model)
    prepared = prepare(model, True, quantizer.prepare_obs_or_fq_callback)
    scale_weights_back(prepared)
    return prepared


def convert_pt2e(
    model: GraphModule, use_reference_representation: bool = False, fold_quantize: bool = True
) -> GraphModule:
    """Returns a model of integers for one that has been observed or trained.

    Its ``graph`` rounds to integers and back around operators in floating point. The module computes with a
    second graph, ``lowered_graph``, in which products are sums of integers that are rounded once; traces and
    ``export`` record the second one.

    Args:
        model: a graph of ``prepare_pt2e`` or ``prepare_qat_pt2e``; it is changed.
        use_reference_representation: must be False.
        fold_quantize: whether weights become integers now, or at each call.
    """
    if not isinstance(use_reference_representation, bool):
        raise ValueError(
            f"convert_pt2e: use_reference_representation must be a bool, got {use_reference_representation!r}"
        )
    if use_reference_representation:
        raise NotImplementedError(
            "convert_pt2e: use_reference_representation\n"
            "  hint: the module's lowered_graph computes with integers"
        )
    fold_trained_norms(model)
    convert_observers(model)
    if fold_quantize:
        fold_constants(model)
    return ConvertedGraphModule.of(model)
