"""Rounding to integers and back in place of observers."""

from __future__ import annotations

import warnings
from typing import Any

from .... import _C
from ...._ops import ops
from ...._types import qint8, qint32, quint8
from ....fx import GraphModule, Node
from ....fx.node import map_arg
from ..observer import PER_CHANNEL, limits_of
from ..quantize import _has_seen_data
from .graph_utils import attribute
from .prepare import is_observer, module_of

__all__ = ["convert_observers", "fold_constants"]

_q = ops.quantized_decomposed
QUANTIZE = (_q.quantize_per_tensor.default, _q.quantize_per_tensor.tensor, _q.quantize_per_channel.default)
DEQUANTIZE = (
    _q.dequantize_per_tensor.default,
    _q.dequantize_per_tensor.tensor,
    _q.dequantize_per_channel.default,
)
_PLAIN = {qint8: _C.int8, quint8: _C.uint8, qint32: _C.int32}
_FLOATS = (_C.float16, _C.bfloat16)


def convert_observers(model: GraphModule) -> None:
    """Replaces the calls of observers by calls that round to integers, and back."""
    calls = [n for n in model.graph.nodes if is_observer(model, n)]
    _check_calibrated(model, calls)
    conversion = _Conversion(model)
    for node in calls:
        conversion.replace(node)
    for path in {str(n.target) for n in calls}:
        model.delete_submodule(path)
    model.graph.lint()


def _check_calibrated(model: GraphModule, calls: list[Node]) -> None:
    unseen = [n for n in calls if not _has_seen_data(module_of(model, n))]
    if not unseen:
        return
    paths = [f"{n.args[0]} ({n.target})" for n in unseen]
    if len(unseen) == len(calls):
        raise RuntimeError(
            f"convert_pt2e: the observer of {paths[0]} has seen no data, nor have all others\n"
            "  hint: run the prepared model on typical data before convert_pt2e"
        )
    warnings.warn(
        f"convert_pt2e: no data have reached the observers of {', '.join(paths[:5])}: scale 1 and zero "
        "point 0 are used there",
        stacklevel=4,
    )


class _Conversion:
    """Replaces the calls of observers of one graph."""

    def __init__(self, model: GraphModule) -> None:
        self.model, self.graph = model, model.graph
        self.count = 0

    def replace(self, node: Node) -> None:
        observer = module_of(self.model, node)
        dtype = _PLAIN.get(observer.dtype, observer.dtype)
        if dtype == _C.float32:
            node.replace_all_uses_with(node.args[0])
            self.graph.erase_node(node)
            return
        if dtype in _FLOATS:
            self._rounded_to_float(node, dtype)
            return
        if limits_of(dtype) is None:
            raise NotImplementedError(
                f"convert_pt2e: {node.args[0]}: values cannot be quantised to {dtype}\n"
                "  hint: int8, uint8, int16, uint16, int32, float16 and bfloat16 can"
            )
        low, high = limits_of(dtype)  # type: ignore[misc]
        low = low if observer.quant_min is None else observer.quant_min
        high = high if observer.quant_max is None else observer.quant_max
        with self.graph.inserting_before(node):
            if getattr(observer, "is_dynamic", False):
                form, parameters = "tensor", self._chosen(node, observer, low, high, dtype)
            else:
                form, parameters = self._static(node, observer)
            rest = (low, high, dtype)
            if form == "channel":
                rounding, back = _q.quantize_per_channel.default, _q.dequantize_per_channel.default
            else:
                form = "default" if form == "static" else form
                rounding = getattr(_q.quantize_per_tensor, form)
                back = getattr(_q.dequantize_per_tensor, form)
            integers = self._call(rounding, (node.args[0], *parameters, *rest), node)
            integers.meta["val"] = node.meta["val"].to(dtype) if "val" in node.meta else None
            for user in list(node.users):  # each user has its own, which can become a part of it
                user.replace_input_with(node, self._call(back, (integers, *parameters, *rest), node))
        self.graph.erase_node(node)

    def _call(self, target: Any, args: tuple, like: Node) -> Node:
        name = f"{target._opname}_{target._overloadname}"
        node = self.graph.create_node("call_function", target, args, {}, name)
        node.meta = dict(like.meta)
        return node

    def _rounded_to_float(self, node: Node, dtype: Any) -> None:
        convert = _q.convert_element_type.no_fuse
        with self.graph.inserting_before(node):
            half = self._call(convert, (node.args[0], dtype), node)
            restored = self._call(convert, (half, _C.float32), node)
        node.replace_all_uses_with(restored)
        self.graph.erase_node(node)

    def _chosen(self, node: Node, observer: Any, low: int, high: int, dtype: Any) -> tuple:
        import operator

        from .... import _qscheme

        symmetric = observer.qscheme is _qscheme.per_tensor_symmetric
        choose = (_q.choose_qparams_symmetric if symmetric else _q.choose_qparams).tensor
        eps = getattr(getattr(observer, "activation_post_process", observer), "eps", 2.0**-23)
        eps = float(eps) if not isinstance(eps, _C.Tensor) else eps.item()
        pair = self._call(choose, (node.args[0], low, high, eps, dtype), node)
        items = [self.graph.call_function(operator.getitem, (pair, k)) for k in (0, 1)]
        for item, kind in zip(items, (_C.float64, _C.int64)):
            item.meta["val"] = _C.functions.empty([1], dtype=kind, device="meta")
        return tuple(items)

    def _static(self, node: Node, observer: Any) -> tuple[str, tuple]:
        scale, zero_point = observer.calculate_qparams()
        if bool((~_C.functions.isfinite(scale)).any()) or bool((scale <= 0).any()):
            raise RuntimeError(
                f"convert_pt2e: {node.args[0]}: scales must be positive and finite, got {scale.tolist()}\n"
                "  hint: the observer may have seen NaN or infinity, or compute its scale wrongly"
            )
        if observer.qscheme not in PER_CHANNEL:
            return "static", (float(scale), int(zero_point))
        return "channel", (
            self._constant("_scale", scale, node),
            self._constant("_zero_point", zero_point, node),
            observer.ch_axis,
        )

    def _constant(self, prefix: str, value: Any, node: Node) -> Node:
        count = 0
        while hasattr(self.model, f"{prefix}_{count}"):
            count += 1
        self.model.register_buffer(f"{prefix}_{count}", value.detach().clone())
        constant = self.graph.get_attr(f"{prefix}_{count}")
        constant.meta["val"] = value.to("meta")
        return constant


class Constants:
    """The values of the nodes of a graph that no argument of the model determines.

    ``constants(node)`` is None for other nodes; a number is itself.
    """

    def __init__(self, model: GraphModule) -> None:
        self.model, self._nodes = model, set()
        for n in model.graph.nodes:
            computed = n.op == "call_function" and n.all_input_nodes and not n.is_impure()
            if n.op == "get_attr" or (computed and self._nodes.issuperset(n.all_input_nodes)):
                self._nodes.add(n)

    def __call__(self, node: Any) -> Any:
        if not isinstance(node, Node):
            return node
        if node not in self._nodes:
            return None
        if node.op == "get_attr":
            value = attribute(self.model, str(node.target))
            return value.detach() if isinstance(value, _C.Tensor) else None
        values = {n: self(n) for n in node.all_input_nodes}
        if any(v is None for v in values.values()):
            return None
        with _no_grad():
            return node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))


def _no_grad() -> Any:
    from ....autograd import no_grad

    return no_grad()


def fold_constants(model: GraphModule) -> None:
    """Computes the integers of weights, which become buffers of the module."""
    count, constants = 0, Constants(model)
    for node in list(model.graph.nodes):
        if node.op != "call_function" or node.target not in QUANTIZE:
            continue
        value = constants(node)
        if value is None:
            continue
        while hasattr(model, f"_frozen_param{count}"):
            count += 1
        model.register_buffer(f"_frozen_param{count}", value)
        with model.graph.inserting_before(node):
            frozen = model.graph.create_node("get_attr", f"_frozen_param{count}")
        frozen.meta = {**node.meta, "val": value.to("meta")}
        node.replace_all_uses_with(frozen)
        model.graph.erase_node(node)
