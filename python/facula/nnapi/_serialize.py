"""Exported programs as models of NNAPI: operands, operations, and the list of words that
``nnapi_runner.h`` describes."""

from __future__ import annotations

import ast
import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import _C
from .._ops import FunctionOperator, OpOverload, SizeOperator
from ..export.exported_program import ExportedProgram
from ..export.graph_signature import InputKind, OutputKind
from ..fx._bridge import without_gradient
from ..fx.graph_module import GraphModule
from ..fx.node import Node, map_arg
from ._codes import BUFFER, CHANNEL_SCALES, IMMEDIATE, Code, Fuse, Type

Tensor = _C.Tensor
Size = int | str  # a number, or an expression of the inputs' sizes
NCHW_TO_NHWC, NHWC_TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


class UnsupportedOperatorError(NotImplementedError):
    """An operator has no form in NNAPI; the message names it as it was called."""


@dataclass(frozen=True)
class Value:
    """A tensor that the model computes."""

    operand: int
    sizes: tuple[Size, ...]  # in PyTorch's order of dimensions
    type: Type
    nhwc: bool = False  # the operand has its channels last
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True)
class Dequantized:
    """The numbers that an 8-bit value stands for; nothing computes them unless a floating-point operation
    reads them."""

    value: Value


@dataclass(frozen=True)
class QuantizedConstant:
    """A constant of 8-bit integers, with one scale or one for each index of a dimension."""

    integers: Tensor
    scales: Tensor
    zero_points: Tensor
    axis: int | None

    def real(self) -> Tensor:
        shape = [-1 if d == self.axis else 1 for d in range(self.integers.dim())]
        scales, zeros = (
            t.reshape(shape) if self.axis is not None else t for t in (self.scales, self.zero_points)
        )
        return ((self.integers.double() - zeros.double()) * scales.double()).float()


@dataclass
class Model:
    """A serialized model.

    Attributes:
        words: the model; see ``nnapi_runner.h``
        weights: the buffers that it reads
        inputs, outputs: its tensors; their sizes are in PyTorch's order
        rules: words that depend on the inputs' sizes, as expressions of the names ``d0``, ``d1``, ... of all
            inputs' dimensions
        single: whether the program returns a tensor, and not a tuple
    """

    words: list[int]
    weights: list[Tensor]
    inputs: list[Value]
    outputs: list[Value]
    rules: list[tuple[int, str]] = field(default_factory=list)
    single: bool = True


@dataclass
class Source:
    """A graph to convert.

    Attributes:
        graph: nodes whose ``meta`` has ``sizes`` and a tensor ``val``
        constants: tensors that the graph reads, by node
        results: the nodes of its results
        single: whether it returns a tensor, and not a tuple
    """

    graph: Any
    constants: dict[Node, Tensor]
    results: list[Node]
    single: bool


def of_program(program: ExportedProgram) -> Source:
    """Returns the source of an exported program."""
    graph, signature = program.graph, program.graph_signature
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise UnsupportedOperatorError(
                f"nnapi.export: the program writes {spec.target}, and a model of NNAPI has no state\n"
                "  hint: call eval() before"
            )
    constants = {n: program.constants[n.target] for n in graph.nodes if n.op == "get_attr"}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind is not InputKind.USER_INPUT:
            constants[node] = program.tensor_of(spec.target)
    return Source(graph, constants, list(graph.output_node().args[0]), len(signature.output_specs) == 1)


def of_module(module: GraphModule, args: tuple[Tensor, ...]) -> Source:
    """The source of a module that was generated from a graph, such as those of ``convert_pt2e``. Their
    quantisations remain operators, which an exported program does not have."""
    from ..fx.interpreter import Interpreter

    class Sizes(Interpreter):
        def run_node(self, n: Node) -> Any:
            y = super().run_node(n)
            if isinstance(y, Tensor):
                n.meta["val"], n.meta["sizes"] = y, list(y.shape)
                if n.op == "get_attr":
                    constants[n] = y
            return y

    constants: dict[Node, Tensor] = {}
    Sizes(module).run(*args)
    results = module.graph.output_node().args[0]
    single = isinstance(results, Node) or len(results) == 1
    return Source(module.graph, constants, [results] if isinstance(results, Node) else list(results), single)


class Serializer:
    """Converts the nodes of one graph."""

    def __init__(self, source: Source, channels_last: Sequence[bool] = ()) -> None:
        self.source, self.channels_last = source, tuple(channels_last)
        self.operands: list[tuple[Type, tuple[Size, ...], float, int]] = []
        self.data: list[tuple[int, int, bytes]] = []  # operand, source, bytes
        self.operations: list[tuple[Code, list[int], list[int]]] = []
        self.weights: list[Tensor] = []
        self.values: dict[Node, Any] = {}
        self.ready: dict[Node, Value] = {}  # computed as a part of an earlier node's operation
        self._constants: dict[Any, int] = {}
        self._converted: dict[Any, Value] = {}
        self._names: dict[str, str] = {}  # of sizes: the first input's dimension that has it

    # ---- operands

    def operand(self, kind: Type, sizes: Sequence[Size], scale: float = 0.0, zero_point: int = 0) -> int:
        self.operands.append((kind, tuple(sizes), scale, zero_point))
        return len(self.operands) - 1

    def _immediate(self, kind: Type, data: bytes, sizes: tuple[int, ...] = ()) -> int:
        key = (kind, data, sizes)
        if key not in self._constants:
            self._constants[key] = self.operand(kind, sizes)
            self.data.append((self._constants[key], IMMEDIATE, data))
        return self._constants[key]

    def integer(self, n: int) -> int:
        return self._immediate(Type.INT32, struct.pack("i", n))

    def number(self, x: float) -> int:
        return self._immediate(Type.FLOAT32, struct.pack("f", x))

    def flag(self, on: bool) -> int:
        return self._immediate(Type.BOOL, b"\1" if on else b"\0")

    def integers(self, values: Sequence[int], columns: int | None = None) -> int:
        sizes = (len(values),) if columns is None else (len(values) // columns, columns)
        return self._immediate(Type.TENSOR_INT32, struct.pack(f"{len(values)}i", *values), sizes)

    def constant(
        self, t: Tensor, kind: Type = Type.TENSOR_FLOAT32, scale: float = 0.0, zero_point: int = 0
    ) -> int:
        """Adds a tensor as a weight, with the elements that the type asks for."""
        t = t.detach().contiguous()
        operand = self.operand(kind, tuple(t.shape), scale, zero_point)
        self.data.append(
            (operand, BUFFER, struct.pack("iii", len(self.weights), 0, t.numel() * t.element_size()))
        )
        self.weights.append(t)
        return operand

    def channel_scales(self, operand: int, dim: int, scales: Tensor) -> None:
        values = scales.float().tolist()
        self.data.append((operand, CHANNEL_SCALES, struct.pack(f"i{len(values)}f", dim, *values)))

    # ---- values

    def value(self, x: Any) -> Value:
        """Returns a floating-point value for anything that stands for a tensor."""
        if isinstance(x, Value):
            return x
        if isinstance(x, Dequantized):
            return self._once(("dequantized", x.value), lambda: self._dequantize(x.value))
        t = x.real() if isinstance(x, QuantizedConstant) else x
        if isinstance(t, Tensor):
            return Value(self.constant(t.float()), tuple(t.shape), Type.TENSOR_FLOAT32)
        return Value(self.constant(_C.tensor([float(t)])), (1,), Type.TENSOR_FLOAT32)

    def _once(self, key: Any, make: Any) -> Value:
        if key not in self._converted:
            self._converted[key] = make()
        return self._converted[key]

    def _dequantize(self, v: Value) -> Value:
        return self.apply(
            Code.DEQUANTIZE, [v.operand], replace(v, type=Type.TENSOR_FLOAT32, scale=0.0, zero_point=0)
        )

    def dims(self, v: Value) -> tuple[Size, ...]:
        """Returns the dimensions of a value's operand."""
        return tuple(v.sizes[d] for d in NCHW_TO_NHWC) if v.nhwc else v.sizes

    def dim(self, v: Value, d: int) -> int:
        """Returns the dimension of a value's operand that is PyTorch's dimension ``d``."""
        d %= len(v.sizes)
        return NCHW_TO_NHWC.index(d) if v.nhwc else d

    def apply(self, code: Code, inputs: list[int], result: Value) -> Value:
        """Adds an operation; ``result`` says what it computes."""
        out = replace(
            result, operand=self.operand(result.type, self.dims(result), result.scale, result.zero_point)
        )
        self.operations.append((code, inputs, [out.operand]))
        return out

    def image(self, v: Value) -> Value:
        """Returns a value of 4 dimensions with its channels last."""
        if v.nhwc:
            return v
        return self._once(
            ("nhwc", v),
            lambda: self.apply(
                Code.TRANSPOSE, [v.operand, self.integers(NCHW_TO_NHWC)], replace(v, nhwc=True)
            ),
        )

    def plain(self, v: Value) -> Value:
        """Returns a value whose operand has PyTorch's order of dimensions."""
        if not v.nhwc:
            return v
        return self._once(
            ("nchw", v),
            lambda: self.apply(
                Code.TRANSPOSE, [v.operand, self.integers(NHWC_TO_NCHW)], replace(v, nhwc=False)
            ),
        )

    # ---- results

    def sizes(self, node: Node) -> tuple[Size, ...]:
        return tuple(n if isinstance(n, int) else str(n) for n in node.meta["sizes"])

    def tail(self, node: Node, fused: bool) -> tuple[Fuse, list[Node], tuple[float, int] | None]:
        """Returns the activation behind a node that its operation includes, the nodes that share its result,
        and the scale and zero point if they end with a quantisation."""
        nodes, fuse = [node], Fuse.NONE
        user = _only_user(node)
        if fused and user is not None and (activation := _activation(user)) is not None:
            fuse = activation
            nodes.append(user)
            user = _only_user(user)
        if user is not None and _name(user) == "quantize_per_tensor":
            scale, zero_point = _quantization(user)
            return fuse, [*nodes, user], (scale, zero_point)
        return fuse, nodes, None

    def normalisation(self, node: Node) -> tuple[Any, ...] | None:
        """Returns the nodes of a batch norm that alone reads a convolution, and three constants of its
        channels:
        the result is (x - second) * first + third. None if there is no such batch norm."""

        def constant(x: Any) -> Tensor | None:
            t = self.values.get(x) if isinstance(x, Node) else None
            fits = isinstance(t, Tensor) and t.dim() == 4 and t.numel() == t.shape[1] == node.meta["sizes"][1]
            return t.flatten() if fits else None

        less = _only_user(node)
        last = _only_user(less) if less is not None and _name(less) == "sub" else None
        if (
            last is None
            or _name(last) != "_fused_multiply_add"
            or less.args[0] is not node
            or last.args[1] is not less
        ):
            return None
        constants = constant(last.args[0]), constant(less.args[1]), constant(last.args[2])
        return None if any(c is None for c in constants) or less.kwargs else (less, last, *constants)

    def give(
        self,
        node: Node,
        code: Code,
        inputs: list[int],
        like: Value,
        *,
        fuse_at: int | None = None,
        eight_bits: bool = False,
        through: Sequence[Node] = (),
    ) -> Any:
        """Adds the operation of a node, with the activation that follows if ``fuse_at`` is the place of
        its code.
        With ``eight_bits`` the operation's result is what the quantisation behind it computes. ``like``
        has the
        result's sizes and order of dimensions; ``through``: nodes behind the first that the operation
        computes
        too."""
        fuse, nodes, quantization = self.tail(through[-1] if through else node, fuse_at is not None)
        nodes = [node, *through[:-1], *nodes] if through else nodes
        if fuse_at is not None:
            inputs = [*inputs[:fuse_at], self.integer(fuse), *inputs[fuse_at:]]
        if eight_bits and quantization:
            result = replace(
                like, type=Type.TENSOR_QUANT8_ASYMM, scale=quantization[0], zero_point=quantization[1]
            )
        else:
            result = replace(like, type=Type.TENSOR_FLOAT32, scale=0.0, zero_point=0)
            nodes = nodes[:-1] if quantization else nodes
        out = self.apply(code, inputs, result)
        self.ready.update(dict.fromkeys(nodes, out))
        return out

    def in_eight_bits(self, node: Node, *tensors: Any, fused: bool = True) -> bool:
        """Whether the operation computes with integers: its tensors are dequantised, and its result is
        quantised."""
        quantized = all(isinstance(t, (Dequantized, QuantizedConstant)) for t in tensors)
        return quantized and self.tail(node, fused)[2] is not None

    def unsupported(self, node: Node, what: str) -> UnsupportedOperatorError:
        where = node.meta.get("stack_trace")
        line = f"\n  in {where.strip().splitlines()[-1].strip()}" if where else ""
        return UnsupportedOperatorError(
            f"nnapi.export: {node.target} ({node.format_node()}) has no form in NNAPI here: {what}{line}"
        )

    # ---- the graph

    def model(self) -> Model:
        from ._operators import FORMS

        inputs: list[Value] = []
        self.values.update(self.source.constants)
        for node in self.source.graph.nodes:
            if node.op == "placeholder" and node not in self.values and "sizes" in node.meta:
                inputs.append(self._input(node, len(inputs)))
            elif node.op == "call_function":
                self._fold(node)
        for node in self.source.graph.nodes:
            if node.op == "call_function" and node not in self.values:
                self._call(node, FORMS)
        model = self._serialized(inputs, self._outputs(inputs))
        model.single = self.source.single
        return model

    def _input(self, node: Node, index: int) -> Value:
        sizes, dtype = self.sizes(node), node.meta["val"].dtype
        types = {_C.float32: Type.TENSOR_FLOAT32, _C.int32: Type.TENSOR_INT32}
        if dtype not in types:
            raise self.unsupported(node, f"inputs are float32 or int32, this one is {dtype}")
        last = index < len(self.channels_last) and self.channels_last[index]
        if last and len(sizes) != 4:
            raise self.unsupported(node, f"nnapi_nhwc asks for 4 dimensions, this input has {len(sizes)}")
        value = Value(0, sizes, types[dtype], nhwc=last)
        value = replace(value, operand=self.operand(value.type, self.dims(value)))
        self.values[node] = value
        return value

    def _fold(self, node: Node) -> None:
        """Computes a node whose operands are constants."""
        if not isinstance(node.target, OpOverload) or _name(node).startswith("dequantize"):
            return
        operands = node.all_input_nodes
        if operands and all(isinstance(self.values.get(n), Tensor) for n in operands):
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.values[n])
            result = node.target(*args, **kwargs)
            if isinstance(result, Tensor):
                self.values[node] = result

    def _call(self, node: Node, forms: dict[str, Any]) -> None:
        if node in self.ready:
            self.values[node] = self.ready[node]
            return
        if isinstance(node.target, SizeOperator) or "sizes" not in node.meta and "val" not in node.meta:
            self.values[node] = None  # a size: the sizes of results say what it is
            return
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.values[n])
        if node.target is without_gradient:
            self.values[node] = args[0]
        elif node.target is operator.getitem:
            self.values[node] = args[0][args[1]]
        elif (name := _name(node)) not in forms:
            raise self.unsupported(node, "the operator is not in the table")
        else:
            try:
                self.values[node] = forms[name](self, node, *args, **kwargs)
            except TypeError as e:
                raise self.unsupported(node, str(e)) from e

    def _outputs(self, inputs: list[Value]) -> list[Value]:
        outputs: list[Value] = []
        for item in self.source.results:
            v = self.plain(self.value(self.values[item]))
            if v in inputs or v in outputs:  # a model returns no operand twice, and no input
                zeros = self.integers([0] * len(v.sizes))
                v = self.apply(Code.SLICE, [v.operand, zeros, self.integers([-1] * len(v.sizes))], v)
            outputs.append(v)
        return outputs

    # ---- serialization

    def _serialized(self, inputs: list[Value], outputs: list[Value]) -> Model:
        names = self._size_names(inputs)
        words: list[int] = [
            1,
            len(self.operands),
            len(self.data),
            len(self.operations),
            len(inputs),
            len(outputs),
        ]
        for kind, sizes, scale, zero_point in self.operands:
            words += [kind, len(sizes), *struct.unpack("i", struct.pack("f", scale)), zero_point]
        for operand, source, data in self.data:
            words += [operand, source, len(data)]
        for code, read, written in self.operations:
            words += [code, len(read), len(written)]
        rules = []
        for _, sizes, _, _ in self.operands:
            for n in sizes:
                if not isinstance(n, int):
                    rules.append((len(words), renamed(n, names)))
                words.append(n if isinstance(n, int) else 0)
        for _, _, data in self.data:
            padded = data + bytes(-len(data) % 4)
            words += struct.unpack(f"{len(padded) // 4}i", padded)
        for _, read, written in self.operations:
            words += [*read, *written]
        words += [v.operand for v in (*inputs, *outputs)]
        return Model(words, self.weights, inputs, outputs, rules)

    def _size_names(self, inputs: list[Value]) -> dict[str, str]:
        """Names of symbols: each is the size of an input's dimension."""
        names: dict[str, str] = {}
        at = 0
        for v in inputs:
            for n in self.dims(v):
                if isinstance(n, str) and n.isidentifier():
                    names.setdefault(n, f"d{at}")
                at += 1
        return names


def renamed(expression: str, names: dict[str, str]) -> str:
    tree = ast.parse(expression, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in ("Max", "Min", "max", "min"):
            if node.id not in names:
                raise UnsupportedOperatorError(
                    f"nnapi.export: the size {expression} does not follow from the inputs' sizes"
                )
            node.id = names[node.id]
    return ast.unparse(tree)


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _name(node: Node) -> str:
    return node.target._opname if isinstance(node.target, (OpOverload, FunctionOperator)) else ""


def _quantization(node: Node) -> tuple[float, int]:
    """Returns the scale of a quantisation and its zero point, for integers from 0 to 255."""
    scale, zero_point, low = float(node.args[1]), int(node.args[2]), int(node.args[3])
    return scale, zero_point - low


def _activation(node: Node) -> Fuse | None:
    """Returns the code of an activation that operations include."""
    name, limits = _name(node), tuple(node.args[1:])
    if name in ("hardtanh", "hardtanh_", "clamp"):
        limits = limits or (-1, 1)
        return {(0, 6): Fuse.RELU6, (-1, 1): Fuse.RELU1, (0,): Fuse.RELU, (0, None): Fuse.RELU}.get(limits)
    return {"relu": Fuse.RELU, "relu_": Fuse.RELU, "relu6": Fuse.RELU6, "relu6_": Fuse.RELU6}.get(name)
