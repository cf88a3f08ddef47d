"""Training and evaluation of exported graphs."""

from __future__ import annotations

from typing import Any

from .... import nn
from ...._ops import ops
from ....fx import GraphModule
from .graph_utils import calls
from .recompose import recompose

__all__ = [
    "PreparedGraphModule",
    "WrapperModule",
    "allow_exported_model_train_eval",
    "model_is_exported",
    "move_exported_model_to_eval",
    "move_exported_model_to_train",
]

_aten = ops.aten
# The operators that differ between training and evaluation, and the position of the argument that says so.
_FLAGS = {_aten.batch_norm.default: 5, _aten.dropout.default: 2}
_OWN = ("_checks", "_out_spec")  # of exported graphs: the checks of arguments, the structure of results


class WrapperModule(nn.Module):
    """A module that calls a function, for ``export``."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class PreparedGraphModule(GraphModule):
    """An exported graph whose normalisation and dropout follow ``train()`` and ``eval()``."""

    @classmethod
    def of(cls, model: GraphModule) -> Any:
        """Returns a module with the graph of another one, and its members."""
        result = cls(model, model.graph, "GraphModule")
        for name in _OWN:
            if name in model.__dict__:
                result.__dict__[name] = model.__dict__[name]
        for name, parameter in model.named_parameters():
            _keep(result, name, parameter)
        result.meta.update(model.meta)
        result.recompile()
        return result

    def train(self, mode: bool = True) -> Any:
        return _train(self, mode)


def _train(model: Any, mode: bool = True) -> Any:
    _switch(model, mode)
    return nn.Module.train(model, mode)


def _keep(model: nn.Module, path: str, parameter: Any) -> None:
    """Adds a parameter that the graph does not read, at its path."""
    *owners, name = path.split(".")
    for owner in owners:
        if not hasattr(model, owner):
            model.add_module(owner, nn.Module())
        model = getattr(model, owner)
    if not hasattr(model, name):
        model.register_parameter(name, parameter)


def model_is_exported(m: nn.Module) -> bool:
    """Returns whether a module is the graph of an exported program."""
    return isinstance(m, GraphModule) and any("val" in n.meta for n in m.graph.nodes)


def _switch(model: GraphModule, training: bool) -> None:
    changed = False
    for node in calls(model, _FLAGS):
        position = _FLAGS[node.target]
        if len(node.args) > position and node.args[position] is not training:
            node.args = (*node.args[:position], training, *node.args[position + 1 :])
            changed = True
    if changed:
        model.recompile()


def _moved(model: GraphModule, training: bool) -> GraphModule:
    recompose(model)
    _switch(model, training)
    return model


def move_exported_model_to_eval(model: GraphModule) -> GraphModule:
    """Lets normalisation and dropout compute as in evaluation."""
    return _moved(model, False)


def move_exported_model_to_train(model: GraphModule) -> GraphModule:
    """Lets normalisation and dropout compute as in training."""
    return _moved(model, True)


def allow_exported_model_train_eval(model: GraphModule) -> GraphModule:
    """Lets ``train()`` and ``eval()`` of an exported graph switch normalisation and dropout."""
    if not isinstance(model, PreparedGraphModule):
        recompose(model)
        type(model).train = _train  # type: ignore[method-assign]
    return model
