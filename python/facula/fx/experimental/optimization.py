"""Rewrites of modules for inference: norms are folded into the layer before them, dropouts removed."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from ...nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from ...nn.modules.conv import Conv1d, Conv2d, Conv3d
from ...nn.modules.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d
from ...nn.modules.linear import Linear
from ...nn.modules.module import Module
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from .._symbolic_trace import Tracer, symbolic_trace
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_FUSED = (
    (Conv1d, BatchNorm1d, fuse_conv_bn_eval),
    (Conv2d, BatchNorm2d, fuse_conv_bn_eval),
    (Conv3d, BatchNorm3d, fuse_conv_bn_eval),
    (Linear, BatchNorm1d, fuse_linear_bn_eval),
)


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Module]) -> bool:
    """Returns whether ``node`` calls a module of the second type on the result of one of the first type."""
    if not node.args:
        return False
    for expected, n in zip(pattern, (node.args[0], node)):
        if not isinstance(n, Node) or n.op != "call_module" or not isinstance(n.target, str):
            return False
        if n.target not in modules or type(modules[n.target]) is not expected:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Module], new_module: Module) -> None:
    """Replaces the module that ``node`` calls by ``new_module``."""
    if not isinstance(node.target, str):
        raise AssertionError(f"Expected str target, got {type(node.target)}")
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """Folds each batch norm into the preceding convolution or linear layer if that has no other use; for
    evaluation. The model is copied unless ``inplace``, and traced unless it is a GraphModule and
    ``no_trace`` is set.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    >>> [type(m).__name__ for m in facula.fx.experimental.optimization.fuse(model).children()]
    ['Conv2d']
    """
    if not inplace:
        model = copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    for layer_type, norm_type, fused in _FUSED:
        for node in traced.graph.nodes:
            if not matches_module_pattern((layer_type, norm_type), node, modules):
                continue
            layer, norm = node.args[0], modules[node.target]
            if len(layer.users) > 1 or not norm.track_running_stats:
                continue
            replace_node_module(layer, modules, fused(modules[layer.target], norm))
            node.replace_all_uses_with(layer)
            traced.graph.erase_node(node)
            traced.delete_submodule(node.target)
    traced.graph.lint()
    traced.recompile()
    return traced


def remove_dropout(model: Module) -> Module:
    """Returns ``model``, traced, without its dropouts."""
    root = copy.deepcopy(model)
    tracer = Tracer()
    graph = tracer.trace(root)
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(
            root.get_submodule(node.target), (Dropout, Dropout1d, Dropout2d, Dropout3d)
        ):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    traced = GraphModule(root, graph)
    traced.delete_all_unused_submodules()
    return traced
