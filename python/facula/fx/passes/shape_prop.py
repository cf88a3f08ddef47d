"""Records at each node the metadata of its results for example inputs."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import _C
from ..interpreter import Interpreter
from ..node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Any, include_contiguity: bool = True) -> TensorMetadata:
    format = None
    if include_contiguity:
        if result.is_contiguous():
            format = _C.contiguous_format
        else:
            orders = _C.channels_last, _C.channels_last_3d
            format = next((f for f in orders if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, result.stride(), format, False, {}
    )


class ShapeProp(Interpreter):
    """Runs a module and records ``tensor_meta`` and ``type`` of the results in ``node.meta``.

    >>> gm = facula.fx.symbolic_trace(lambda x: x.sum(0))
    >>> _ = facula.fx.passes.shape_prop.ShapeProp(gm).propagate(facula.ones(2, 3))
    >>> [(n.name, tuple(n.meta["tensor_meta"].shape)) for n in gm.graph.nodes]
    [('x', (2, 3)), ('sum_1', (3,)), ('output', (3,))]
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        if fake_mode is not None:
            raise NotImplementedError("ShapeProp: fake_mode is not there; give tensors on the device 'meta'")
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        has_tensor = False

        def note(x: Any) -> Any:
            nonlocal has_tensor
            if isinstance(x, _C.Tensor):
                has_tensor = True
                return _extract_tensor_metadata(x)
            return x

        meta = map_aggregate(result, note)
        if has_tensor:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the module with these inputs."""
        return super().run(*args)
