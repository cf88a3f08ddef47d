"""Computing a converted graph with integers.

The graph that ``convert_pt2e`` returns rounds to integers and back around operators in floating point. Here
products become sums of integers with one rounding (``_int8_linear``, ``_int8_conv2d``), operators that move
values are applied to the integers, and tables of embeddings are read as bytes. Other operators compute in
floating point, between two roundings.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from .... import _C
from ...._ops import ops
from ....fx import Graph, GraphModule, Node
from ....fx.graph_module import PythonCode, _forward_from
from .convert import DEQUANTIZE, QUANTIZE, Constants
from .export_utils import PreparedGraphModule
from .graph_utils import LINEAR, RELUS, argument, is_call
from .recompose import erase_unread

__all__ = ["ConvertedGraphModule", "lower", "lower_pt2e_quantized_to_x86", "reference"]

_f = _C.functions
_aten = ops.aten
_q = ops.quantized_decomposed
_BYTES = {_C.uint8: (0, 255), _C.int8: (-128, 127)}
_LINES, _IMAGES = (_aten.conv1d.default,), (_aten.conv2d.default,)
_PREFIX = "_lowered_"
# Operators that move values of their first argument, or of the tensors in it.
_MOVES = (
    _aten.view.default,
    _aten.reshape.default,
    _aten.flatten.using_ints,
    _aten.permute.default,
    _aten.transpose.int,
    _aten.t.default,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.unsqueeze.default,
    _aten.expand.default,
    _aten.clone.default,
    _aten._row_major.default,
    _aten.cat.default,
    _aten.max_pool2d.default,
)


class Steps(NamedTuple):
    """The integers that a value is rounded to, with one scale for all."""

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: Any


class _Weight(NamedTuple):
    """A constant of 8-bit integers without zero points."""

    node: Node
    integers: Any
    scale: Any  # of each output channel, float64


def _steps_of(node: Node) -> Steps | None:
    """Returns how a call that rounds to integers, or back, does it; None unless all numbers are constant."""
    fixed = (_q.quantize_per_tensor.default, _q.dequantize_per_tensor.default)
    return Steps(*node.args[1:6]) if is_call(node, fixed) else None


class _Lowering:
    """Builds the graph of integers for a converted graph."""

    def __init__(self, model: GraphModule) -> None:
        self.model, self.graph = model, Graph()
        self.constant_value = Constants(model)
        self.values: dict[Node, Node] = {}  # by node of the source: its value
        self.integers: dict[Node, Node] = {}  # by value that is rounded to integers and back: the integers
        self.layers: dict[Node, tuple] = {}  # by product of integers: input, its steps, weight, bias
        self.constants: dict[Any, Node] = {}
        self.count = 0

    def run(self) -> Graph:
        for n in self.model.graph.nodes:
            if is_call(n, QUANTIZE[:1]):
                self.values[n] = self._rounded(n)
            elif is_call(n, DEQUANTIZE[:1]) and n.args[0] in self.values:
                self._restore(n)
            elif self._layer(n) or self._dynamic_linear(n) or self._embedding(n):
                pass
            else:
                self.values[n] = self.graph.node_copy(n, lambda a: self.values[a])
                self.values[n].target = _for_any_layout(n.target)
        self.graph._codegen = self.model.graph._codegen
        return self.graph

    # ---- helpers

    def call(self, target: Any, *args: Any) -> Node:
        return self.graph.call_function(target, args)

    def constant(self, value: Any, key: Any = None) -> Node:
        """Returns the node of a tensor that the module holds."""
        if key is not None and key in self.constants:
            return self.constants[key]
        name = f"{_PREFIX}{self.count}"
        self.count += 1
        self.model.register_buffer(name, value, persistent=False)
        node = self.graph.get_attr(name)
        if key is not None:
            self.constants[key] = node
        return node

    def _parameters(self, steps: Steps) -> tuple[Node, Node]:
        scale = _C.tensor(steps.scale, dtype=_C.float32)
        zero_point = _C.tensor(steps.zero_point, dtype=_C.int32)
        return (
            self.constant(scale, ("scale", steps.scale)),
            self.constant(zero_point, ("zero point", steps.zero_point)),
        )

    def _clamped(self, integers: Node, low: int | None, high: int | None, dtype: Any) -> Node:
        limits = _BYTES[dtype]
        low = None if low is None or low <= limits[0] else low
        high = None if high is None or high >= limits[1] else high
        return integers if low is high is None else self.call(_aten.clamp.default, integers, low, high)

    # ---- rounding

    def _restore(self, n: Node) -> None:
        steps = _steps_of(n)
        integers = self.values[n.args[0]]
        self.values[n] = self.call(
            _aten._dequantize_affine.default,
            integers,
            *self._parameters(steps),
            _C.float32,  # type: ignore[arg-type]
        )
        if _steps_of(n.args[0]) == steps and steps.dtype in _BYTES:  # type: ignore[union-attr]
            self.integers[n] = integers

    def _rounded(self, n: Node) -> Node:
        """Returns the integers of a value."""
        source, steps = n.args[0], _steps_of(n)
        if steps.dtype in _BYTES:  # type: ignore[union-attr]
            integers = self._product(source, steps) or self._moved(source, steps)
            if integers is not None:
                return integers
        value = self.values[source]
        if source.op == "placeholder" and _rank(source) == 4:
            # The layout of products; further operators keep it.
            value = self.graph.call_method("contiguous", (value,), {"memory_format": _C.channels_last})
        return self.call(
            _aten._quantize_affine.default,
            value,
            *self._parameters(steps),  # type: ignore[arg-type]
            *steps[2:],  # type: ignore[index]
        )

    def _product(self, source: Node, steps: Any) -> Node | None:
        """Returns the rounded result of a layer, which may be cut to a range before it is rounded."""
        low = high = None
        layer = source
        if is_call(source, (*RELUS, _aten.hardtanh.default)):
            layer = source.args[0]
            if source.target in RELUS:
                low = 0.0
            else:
                low, high = argument(source, 1, "min_val", -1.0), argument(source, 2, "max_val", 1.0)
        if layer not in self.layers or not (_is_only_rounded(source) and _is_only_read_by(layer, source)):
            return None
        relu = low == 0.0
        integers = self._emit(layer, steps, relu)

        def cut(x: float | None) -> int | None:
            return None if x is None else round(x / steps.scale) + steps.zero_point

        least = cut(low) if not relu else None
        bounds = [max(steps.low, least) if least is not None else steps.low, steps.high]
        if high is not None:
            bounds[1] = min(steps.high, cut(high))  # type: ignore[type-var]
        return self._clamped(integers, *bounds, steps.dtype)

    def _moved(self, source: Node, steps: Any) -> Node | None:
        """Returns integers that are moved, if they are rounded as the result is."""
        if not is_call(source, (*_MOVES, *RELUS)):
            return None
        first = source.args[0]
        several = isinstance(first, (list, tuple))
        operands = list(first) if several else [first]
        if not all(a in self.integers and _steps_of(a) == steps for a in operands):
            return None
        integers = [self.integers[a] for a in operands]
        if source.target in RELUS:
            return self.call(_aten.clamp.default, integers[0], steps.zero_point, None)
        rest = self._arguments(source.args[1:])
        moved = self.graph.call_function(
            _for_any_layout(source.target),
            (integers if several else integers[0], *rest),
            self._arguments(source.kwargs),
        )
        return moved

    def _arguments(self, args: Any) -> Any:
        from ....fx.node import map_arg

        return map_arg(args, lambda a: self.values[a])

    # ---- layers

    def _layer(self, n: Node) -> bool:
        """Adds a layer whose input and weight are integers; its value is in floating point."""
        if not is_call(n, LINEAR + _LINES + _IMAGES) or n.args[0] not in self.integers:
            return False
        weight = self._weight(n.args[1])
        bias = argument(n, 2, "bias")
        bias_value = None if bias is None else self.constant_value(bias)
        if weight is None or (bias is not None and bias_value is None):
            return False
        self.layers[n] = (self.integers[n.args[0]], _steps_of(n.args[0]), weight, bias_value)
        self.values[n] = self._emit(n, None, False)
        return True

    def _weight(self, node: Any) -> _Weight | None:
        if not is_call(node, (DEQUANTIZE[0], DEQUANTIZE[2])):
            return None
        integers = self.constant_value(node.args[0])
        if integers is None or integers.dtype != _C.int8:
            return None
        scale, zero_point = (self.constant_value(a) for a in node.args[1:3])
        channels = integers.shape[0]
        if node.target == DEQUANTIZE[2]:
            if node.args[3] != 0 or bool((zero_point != 0).any()):
                return None
            scale = scale.double()
        elif zero_point != 0:
            return None
        else:
            scale = _f.full([channels], float(scale), dtype=_C.float64)
        return _Weight(self.values[node.args[0]], integers, scale)

    def _emit(self, n: Node, steps: Any, relu: bool) -> Node:
        """Adds the product of a layer, rounded to ``steps``, or in floating point without them."""
        x, steps_of_input, weight, bias = self.layers[n]
        scale = steps.scale if steps else 1.0
        multiplier = self.constant((weight.scale * (steps_of_input.scale / scale)).float())
        shift = None if bias is None else self.constant((bias.double() / scale).float())
        rest = (multiplier, shift, steps_of_input.zero_point, steps.zero_point if steps else 0, relu)
        dtype = steps.dtype if steps else _C.float32
        if n.target in LINEAR:
            return self._by_rows(n, x, lambda rows: self.call(
                _aten._int8_linear.default, rows, weight.node, *rest, dtype
            ))  # fmt: skip
        geometry = [*n.args[3:], *([1], [0], [1], 1)[len(n.args) - 3 :]]
        matrix = weight.node
        if n.target in _LINES:
            x, matrix = (self.call(_aten.unsqueeze.default, t, 2) for t in (x, matrix))
            geometry = [*([k, *_list(g)] for k, g in zip((1, 0, 1), geometry)), geometry[3]]
        y = self.call(_aten._int8_conv2d.default, x, matrix, *rest, dtype, *geometry)
        return self.call(_aten.squeeze.dims, y, [2]) if n.target in _LINES else y

    def _by_rows(self, n: Node, x: Node, product: Any) -> Node:
        """Adds a product of the rows of a tensor of any rank."""
        rank = _rank(n.args[0])
        if rank == 2:
            return product(x)
        if rank == 1:
            return self.call(_aten.squeeze.dims, product(self.call(_aten.unsqueeze.default, x, 0)), [0])
        sizes = [self.call(_aten.sym_size.int, x, d) for d in range(rank - 1)]
        rows = self.call(_aten.flatten.using_ints, x, 0, -2)
        return self.graph.call_method("unflatten", (product(rows), 0, sizes))

    def _dynamic_linear(self, n: Node) -> bool:
        """Adds a linear layer whose input has the scale of the call: the sums are corrected by what the zero
        point adds to them.
        """
        if not is_call(n, LINEAR) or not is_call(n.args[0], (_q.dequantize_per_tensor.tensor,)):
            return False
        back = n.args[0]
        weight, bias = self._weight(n.args[1]), argument(n, 2, "bias")
        if weight is None or back.args[5] not in _BYTES:
            return False
        integers, scale, zero_point = (self.values[a] for a in back.args[:3])
        totals = self.constant(weight.integers.to(_C.int32).sum(1, dtype=_C.int32))
        of_weight = self.constant(weight.scale.float())

        def product(rows: Node) -> Node:
            sums = self.call(_aten._int8_linear.default, rows, weight.node, None, None, 0, 0, False, _C.int32)
            zero = self.graph.call_method("to", (zero_point, _C.int32))
            exact = self.call(operator.sub, sums, self.call(operator.mul, totals, zero))
            factor = self.call(operator.mul, self.graph.call_method("float", (scale,)), of_weight)
            return self.call(operator.mul, self.graph.call_method("float", (exact,)), factor)

        y = self._by_rows(n, integers, product)
        self.values[n] = y if bias is None else self.call(operator.add, y, self.values[bias])
        return True

    def _embedding(self, n: Node) -> bool:
        """Adds the rows of a table of bytes, with the scales and zero points of the rows."""
        if not is_call(n, (_aten.embedding.default,)) or not is_call(n.args[0], DEQUANTIZE[2:]):
            return False
        table, scale, zero_point, axis = n.args[0].args[:4]
        if axis != 0:
            return False
        index = self.values[n.args[1]]
        scale, zero_point = (
            self.call(_aten.unsqueeze.default, self.values[a], 1) for a in (scale, zero_point)
        )
        rows = [self.call(_aten.embedding.default, t, index) for t in (self.values[table], scale, zero_point)]
        self.values[n] = self.call(_aten._dequantize_affine.default, *rows, _C.float32)
        return True


def _for_any_layout(target: Any) -> Any:
    """Returns the operator that also serves images with channels last in memory, as products give them."""
    return _aten.reshape.default if target is _aten.view.default else target


def _rank(n: Node) -> int:
    return n.meta["val"].dim()


def _list(x: Any) -> list:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def _is_only_rounded(n: Node) -> bool:
    """Returns whether a value is rounded and not read otherwise."""
    return all(is_call(u, QUANTIZE[:1]) for u in n.users)


def _is_only_read_by(n: Node, user: Node) -> bool:
    return n is user or set(n.users) == {user}


def lower(model: GraphModule) -> Graph:
    """Returns the graph that computes a converted model with integers; the model gets its constants."""
    for name in [n for n in model._buffers if n.startswith(_PREFIX)]:
        delattr(model, name)
    return _Lowering(model).run()


def lower_pt2e_quantized_to_x86(model: GraphModule, example_inputs: tuple[Any, ...]) -> GraphModule:
    """Returns a model of ``convert_pt2e``, which computes with integers already."""
    if not isinstance(model, ConvertedGraphModule):
        raise TypeError(
            f"lower_pt2e_quantized_to_x86: expected a model of convert_pt2e, got {type(model).__name__}"
        )
    return model


def reference(model: GraphModule) -> GraphModule:
    """Returns a converted model that computes in floating point, rounding where its graph does."""
    plain = GraphModule(model, model.graph)
    for name in ("_checks", "_out_spec"):
        if name in model.__dict__:
            plain.__dict__[name] = model.__dict__[name]
    model.graph.owning_module = model
    return plain


class ConvertedGraphModule(PreparedGraphModule):
    """A converted model: ``graph`` rounds to integers and back, ``lowered_graph`` computes with integers."""

    lowered_graph: Graph

    def recompile(self) -> PythonCode:
        lowered = lower(self)
        erase_unread(lowered)
        lowered.owning_module = self
        lowered.lint()
        code = lowered.python_code("self")
        self.__dict__["lowered_graph"] = lowered
        self.__dict__["_code"] = code.src
        type(self).forward = _forward_from(code.src, code.globals)  # type: ignore[method-assign]
        return code

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.recompile()  # constants of the lowered graph depend on scales
