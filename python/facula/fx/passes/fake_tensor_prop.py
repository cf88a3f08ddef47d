"""Metadata of the results of nodes, without computing them."""

from __future__ import annotations

from typing import Any

from ... import _C
from ..interpreter import Interpreter
from ..node import Node, map_aggregate
from .shape_prop import _extract_tensor_metadata

__all__ = ["FakeTensorProp"]


class FakeTensorProp(Interpreter):
    """Runs a module on tensors without elements (``meta``) like its inputs, parameters and buffers, and
    records ``val``, ``tensor_meta`` and ``type`` of the results in ``node.meta``. Nothing is computed.
    """

    def __init__(self, module: Any, mode: Any = None) -> None:
        if mode is not None:
            raise NotImplementedError(
                "FakeTensorProp: mode is not there; tensors of the device 'meta' are used"
            )
        super().__init__(module)

    def fetch_attr(self, target: str) -> Any:
        return _on_meta(super().fetch_attr(target))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        from ...func import functional_call

        module = self.fetch_attr(target)
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return functional_call(module, {k: _on_meta(t) for k, t in state.items()}, args, kwargs)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        metas = map_aggregate(
            result, lambda x: _extract_tensor_metadata(x) if isinstance(x, _C.Tensor) else x
        )
        n.meta["val"], n.meta["tensor_meta"], n.meta["type"] = result, metas, type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the module with inputs like these."""
        return self.run(*(map_aggregate(x, _on_meta) for x in args))

    propagate_dont_convert_inputs = propagate


def _on_meta(x: Any) -> Any:
    return x.to("meta") if isinstance(x, _C.Tensor) else x
