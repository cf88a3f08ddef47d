"""``onnx.export``: the graph of an exported program as an ONNX model, written with the package ``onnx``."""

from __future__ import annotations

import operator
import os
from typing import Any

from .. import _C
from .._ops import OpOverload, SizeOperator
from ..export.exported_program import ExportedProgram
from ..export.graph_signature import InputKind, OutputKind
from ..fx._bridge import without_gradient
from ..fx.node import Node, map_arg
from ._operators import FORMS

__all__ = ["ONNXProgram", "export"]

DEFAULT_OPSET = 20
_SIZE_FUNCTIONS = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div",
    operator.mod: "Mod", _C.sym_max: "Max", _C.sym_min: "Min",
}  # fmt: skip


class OnnxExporterError(RuntimeError):
    """A program has no ONNX form; the message names the operator."""


class UnsupportedOperatorError(OnnxExporterError, NotImplementedError):
    """An operator has no ONNX form."""


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError(
            "onnx.export writes models with the package onnx, which is not installed\n  hint: pip install "
            "onnx"
        ) from None
    return onnx


class Exporter:
    """Converts the nodes of one graph."""

    def __init__(self, program: ExportedProgram, opset: int) -> None:
        self.onnx, self.program, self.opset = _onnx(), program, opset
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.values: dict[Node, Any] = {}
        self.dtypes: dict[str, Any] = {}  # dtype of a value by name, where it is known
        self._constants: dict[Any, str] = {}
        self._count = 0

    # ---- values

    def kind(self, dtype: Any) -> int:
        """Returns ONNX's number of a dtype."""
        name = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bool": "BOOL"}.get(
            text := str(dtype).rpartition(".")[2], text.upper()
        )
        return int(getattr(self.onnx.TensorProto, name))

    def dtype(self, node: Any) -> Any:
        """Returns the dtype of a node with one result; a program from a file has no values in its nodes."""
        value = node.meta.get("val")
        return value.dtype if value is not None else node.meta["dtype"]

    def rank(self, node: Any) -> int:
        return len(node.meta["sizes"])

    def unsupported(self, node: Node, what: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"onnx.export: {node.target} ({node.format_node()}) has no ONNX form here: {what}"
        )

    def fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}_{self._count}"

    def emit(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """Adds a node and returns the name of its result."""
        return self.emit_many(op, 1, *inputs, **attributes)[0]

    def emit_many(self, op: str, count: int, *inputs: Any, **attributes: Any) -> list[str]:
        names = [self.fresh(op.lower()) for _ in range(count)]
        self.nodes.append(
            self.onnx.helper.make_node(op, list(inputs), names, name=self.fresh(op), **attributes)
        )
        if op == "Cast":
            self.dtypes[names[0]] = attributes["to"]
        return names

    def tensor_of(self, value: Any, dtype: Any) -> Any:
        return self.onnx.helper.make_tensor("value", self.kind(dtype), [1], [value])

    def constant(self, values: Any, dtype: Any, sizes: list[int]) -> str:
        key = (repr(values), str(dtype), tuple(sizes))
        if key not in self._constants:
            name = self._constants[key] = self.fresh("constant")
            numbers = _C.tensor(values, dtype=dtype).reshape(sizes)
            self.initializers.append(self._tensor(name, numbers))
            self.dtypes[name] = self.kind(dtype)
        return self._constants[key]

    def _tensor(self, name: str, t: Any) -> Any:
        t = t.detach().contiguous()
        bits = t.view(_C.int16) if t.dtype is _C.bfloat16 else t
        return self.onnx.helper.make_tensor(
            name, self.kind(t.dtype), list(t.shape), bits.numpy().tobytes(), raw=True
        )

    def ints(self, values: list[int]) -> str:
        return self.constant(values, _C.int64, [len(values)])

    def cast(self, x: Any, dtype: Any) -> Any:
        """Returns a value with this dtype; a number becomes a constant. ``None``: any dtype."""
        if not isinstance(x, str):
            return self.constant(x, dtype or _C.get_default_dtype(), [])
        if dtype is None or self.dtypes.get(x) == self.kind(dtype):
            return x
        if x not in self.dtypes:
            return x if self._node_dtype(x) is dtype else self.emit("Cast", x, to=self.kind(dtype))
        return self.emit("Cast", x, to=self.kind(dtype))

    def _node_dtype(self, name: str) -> Any:
        return self._by_name.get(name)

    def promoted(self, a: Any, b: Any) -> tuple[str, str]:
        """Returns operands of a comparison in their common dtype."""
        dtypes = [self._dtype_of_operand(x) for x in (a, b)]
        if None in dtypes:
            number = b if dtypes[1] is None else a
            dtype = next(d for d in dtypes if d is not None)
            if isinstance(number, float) and not dtype.is_floating_point:
                dtype = _C.get_default_dtype()
        else:
            dtype = _C.promote_types(*dtypes)
        return self.cast(a, dtype), self.cast(b, dtype)

    def _dtype_of_operand(self, x: Any) -> Any:
        if not isinstance(x, str):
            return None
        if x in self.dtypes:
            return next(d for d in _DTYPES if self.kind(d) == self.dtypes[x])
        return self._node_dtype(x)

    # ---- sizes

    def shape_of(self, x: str, dim: int) -> str:
        """Returns a size as a tensor of one element."""
        return self.emit("Gather", self.emit("Shape", x), self.ints([dim]), axis=0)

    def shape(self, sizes: Any, infer: bool = False) -> str:
        """Returns sizes, numbers or names of tensors of one element, as one tensor."""
        sizes = list(sizes)
        names = [k for k, n in enumerate(sizes) if isinstance(n, str)]
        if not names:
            return self.ints([int(n) for n in sizes])
        if (
            infer
            and len(names) == 1
            and all(n != -1 for n in sizes if not isinstance(n, str))
            and 0 not in sizes
        ):
            return self.ints([-1 if isinstance(n, str) else int(n) for n in sizes])
        parts = [n if isinstance(n, str) else self.ints([int(n)]) for n in sizes]
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)

    def reduce(self, op: str, x: str, dim: Any, keepdim: bool) -> str:
        dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        if op != "ReduceSum" and self.opset < 18:
            return self.emit(op, x, keepdims=int(keepdim), **({"axes": dims} if dims else {}))
        inputs = [x, self.ints(dims)] if dims else [x]
        return self.emit(op, *inputs, keepdims=int(keepdim))

    def sum_of(self, names: list[str]) -> str:
        total = names[0]
        for n in names[1:]:
            total = self.emit("Add", total, n)
        return total

    # ---- the graph

    def model(self, input_names: Any, output_names: Any) -> Any:
        signature, graph = self.program.graph_signature, self.program.graph
        self._by_name: dict[str, Any] = {}
        inputs, user_names = [], iter(input_names or ())
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            if spec.kind is not InputKind.USER_INPUT:
                if node.users:
                    self._add_tensor(node, spec.target, self.program.tensor_of(spec.target))
            elif "sizes" in node.meta:
                name = next(user_names, node.name)
                self._bind(node, name)
                sizes = list(node.meta["sizes"])
                inputs.append(
                    self.onnx.helper.make_tensor_value_info(name, self.kind(self.dtype(node)), sizes)
                )
        for node in graph.nodes:
            if node.op == "get_attr":
                self._add_tensor(node, node.target, self.program.constants[node.target])
            elif node.op == "call_function":
                self._call(node)
        outputs = self._outputs(graph, signature, iter(output_names or ()))
        graph_proto = self.onnx.helper.make_graph(self.nodes, "main", inputs, outputs, self.initializers)
        opset = [self.onnx.helper.make_opsetid("", self.opset)]
        model = self.onnx.helper.make_model(graph_proto, opset_imports=opset, producer_name=_C.package_name())
        model.ir_version = min(model.ir_version, 10)
        return model

    def _add_tensor(self, node: Node, name: str, t: Any) -> None:
        self._bind(node, name)
        if name not in (i.name for i in self.initializers):
            self.initializers.append(self._tensor(name, t))

    def _bind(self, node: Node, name: Any) -> None:
        self.values[node] = name
        if isinstance(name, str) and "sizes" in node.meta:
            self._by_name[name] = self.dtype(node)

    def _call(self, node: Node) -> None:
        target = node.target
        if target is operator.getitem and isinstance(self.values[node.args[0]], list):
            self._bind(node, self.values[node.args[0]][node.args[1]])
            return
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.values[n])
        if target is without_gradient:
            self._bind(node, args[0])
            return
        if isinstance(target, SizeOperator):
            self.values[node] = self.shape_of(args[0], args[1])
            return
        if target in _SIZE_FUNCTIONS:
            a, b = (x if isinstance(x, str) else self.ints([x]) for x in args)
            self.values[node] = self.emit(_SIZE_FUNCTIONS[target], a, b)
            return
        if not isinstance(target, OpOverload) or target.namespace != "aten" or target._opname not in FORMS:
            raise self.unsupported(node, "the operator is not in the table")
        try:
            result = FORMS[target._opname](self, node, *args, **kwargs)
        except TypeError as e:
            raise self.unsupported(node, str(e)) from e
        self._bind(node, result)

    def _outputs(self, graph: Any, signature: Any, names: Any) -> list[Any]:
        outputs = []
        for item, spec in zip(graph.output_node().args[0], signature.output_specs, strict=True):
            if spec.kind is not OutputKind.USER_OUTPUT:
                raise UnsupportedOperatorError(
                    f"onnx.export: the program writes {spec.target}, and an ONNX model has no state\n"
                    "  hint: call eval() before"
                )
            if not isinstance(item, Node):
                continue
            name = next(names, None) or (item.name if item.op != "placeholder" else f"output_{len(outputs)}")
            self.nodes.append(self.onnx.helper.make_node("Identity", [self.values[item]], [name]))
            sizes = [n if isinstance(n, int) or n.isidentifier() else None for n in item.meta["sizes"]]
            outputs.append(self.onnx.helper.make_tensor_value_info(name, self.kind(self.dtype(item)), sizes))
        return outputs


_DTYPES = (
    _C.float32, _C.float64, _C.float16, _C.bfloat16, _C.int64, _C.int32, _C.int16, _C.int8, _C.uint8, _C.bool,
)  # fmt: skip


class ONNXProgram:
    """An ONNX model of an exported program.

    Attributes:
        model_proto: the model, an object of the package ``onnx``
        exported_program: the program that it was converted from
    """

    def __init__(self, model_proto: Any, exported_program: ExportedProgram) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program

    def save(self, destination: str | os.PathLike | Any, **options: Any) -> None:
        """Writes the model to a file or stream."""
        _save(self.model_proto, destination)

    def __call__(self, *args: Any) -> list[Any]:
        """Runs the model with ONNX Runtime, which has to be installed."""
        import onnxruntime

        session = onnxruntime.InferenceSession(
            self.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        tensors = [x for x in args if isinstance(x, _C.Tensor)]
        names = [i.name for i in session.get_inputs()]
        results = session.run(None, {n: t.detach().numpy() for n, t in zip(names, tensors, strict=True)})
        return [_C.from_numpy(r) for r in results]


def _save(model: Any, f: Any) -> None:
    data = model.SerializeToString()
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            file.write(data)
    else:
        f.write(data)


def _shapes_of_axes(axes: dict, model: Any, args: tuple, kwargs: dict, input_names: Any) -> dict:
    """Returns ``dynamic_shapes`` for ``dynamic_axes``."""
    from ..export.dynamic_shapes import Dim, arguments_by_name

    parameters = arguments_by_name(model, args, kwargs)
    names = dict(zip(input_names or (), parameters))
    shapes: dict[str, Any] = dict.fromkeys(parameters)
    for name, dims in axes.items():
        parameter = names.get(name, name)
        if parameter in shapes:
            chosen = dims if isinstance(dims, dict) else {d: f"{parameter}_{d}" for d in dims}
            shapes[parameter] = {
                d: Dim(n) if str(n).isidentifier() else Dim.DYNAMIC for d, n in chosen.items()
            }
    return shapes


def export(
    model: Any,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    input_names: Any = None,
    output_names: Any = None,
    opset_version: int | None = None,
    dynamic_shapes: Any = None,
    dynamic_axes: Any = None,
    verbose: Any = None,
    dynamo: bool = True,
    export_params: bool = True,
    training: Any = None,
    do_constant_folding: bool = True,
    keep_initializers_as_inputs: bool = False,
    external_data: bool = True,
    verify: bool = False,
    **options: Any,
) -> ONNXProgram:
    """Converts a module, or an ExportedProgram, to ONNX, and writes it to the file ``f`` if that is not
    None. A module is converted in evaluation mode. Raises UnsupportedOperatorError, with the operator's
    line, if an operator has no ONNX form.
    """
    from ..export import export as export_program

    args = args if isinstance(args, tuple) else (args,)
    kwargs = dict(kwargs or {})
    program = model
    if not isinstance(model, ExportedProgram):
        if dynamic_shapes is None and dynamic_axes:
            dynamic_shapes = _shapes_of_axes(dynamic_axes, model, args, kwargs, input_names)
        modes = [(m, m.training) for m in model.modules()]
        model.eval()
        _active[0] += 1
        try:
            program = export_program(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        finally:
            _active[0] -= 1
            for m, mode in modes:
                m.training = mode
    proto = Exporter(program, opset_version or DEFAULT_OPSET).model(input_names, output_names)
    _rename_sizes(proto, program)
    _onnx().checker.check_model(proto)
    converted = ONNXProgram(proto, program)
    if f is not None:
        converted.save(f)
    return converted


_active = [0]


def _rename_sizes(model: Any, program: ExportedProgram) -> None:
    """Names sizes that may change after their Dims."""
    names = {s.name: s.dim.__name__ for s in program._checks.symbols.values() if s.dim}
    for value in (*model.graph.input, *model.graph.output):
        for d in value.type.tensor_type.shape.dim:
            if d.dim_param in names:
                d.dim_param = names[d.dim_param]
