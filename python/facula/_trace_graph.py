"""A graph of the calls of a function, with the classes by which programs read TorchScript graphs: to count
operations, or to draw networks. The graph cannot be run; `facula.program.trace` makes what can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from . import _C
from .overrides import TorchFunctionMode
from .utils._pytree import tree_leaves

Tensor = _C.Tensor
# Functions of nn.functional whose operators take their operands in another order: the positions.
_ORDERS = dict.fromkeys(("batch_norm", "instance_norm"), (0, 3, 4, 1, 2))
_KINDS = {bool: "BoolType", int: "IntType", float: "FloatType", str: "StringType", type(None): "NoneType"}


class Type:
    """The type of a value; sizes, strides and dtype are those of a tensor."""

    def __init__(self, value: Any) -> None:
        self._is_tensor = isinstance(value, Tensor)
        self._list = isinstance(value, (list, tuple))
        self._kind = (
            "TensorType"
            if self._is_tensor
            else _KINDS.get(type(value), "ListType" if self._list else "AnyType")
        )
        if self._is_tensor:
            self._sizes, self._strides, self._dtype = list(value.shape), list(value.stride()), value.dtype

    def kind(self) -> str:
        return self._kind

    def sizes(self) -> list[int]:
        return self._sizes

    def strides(self) -> list[int]:
        return self._strides

    def dim(self) -> int:
        return len(self._sizes)

    def dtype(self) -> Any:
        return self._dtype

    def __str__(self) -> str:
        return f"{str(self._dtype).split('.')[-1]}{self._sizes}" if self._is_tensor else self._kind

    __repr__ = __str__


class Value:
    """An operand or a result of a node."""

    def __init__(self, node: Node, value: Any, name: str) -> None:
        self._node, self._type, self._name = node, Type(value), name
        self._constant = None if isinstance(value, Tensor) else value

    def type(self) -> Type:
        return self._type

    def isCompleteTensor(self) -> bool:
        return self._type.kind() == "TensorType"

    def toIValue(self) -> Any:
        return None if self._node.kind() == "prim::ListConstruct" else self._constant

    def node(self) -> Node:
        return self._node

    def debugName(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"%{self._name}"


class Node:
    def __init__(self, kind: str, scope: str) -> None:
        self._kind, self._scope = kind, scope
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []

    def kind(self) -> str:
        return self._kind

    def scopeName(self) -> str:
        return self._scope

    def inputs(self) -> Iterator[Value]:
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        return iter(self._outputs)

    def inputsSize(self) -> int:
        return len(self._inputs)

    def outputsSize(self) -> int:
        return len(self._outputs)

    def output(self) -> Value:
        (value,) = self._outputs
        return value

    def __repr__(self) -> str:
        results = ", ".join(f"{v} : {v.type()}" for v in self._outputs)
        return f"{results} = {self._kind}({', '.join(map(repr, self._inputs))})"


class Graph:
    """Nodes in the order of the calls. Tensors that no call has made are its inputs."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._parameters = Node("prim::Param", "")
        self._results = Node("prim::Return", "")
        self._values: dict[
            int, tuple[Any, Value]
        ] = {}  # by tensor, which it keeps, as addresses are used again
        self._count = 0

    def nodes(self) -> Iterator[Node]:
        return iter(self._nodes)

    def inputs(self) -> Iterator[Value]:
        return self._parameters.outputs()

    def outputs(self) -> Iterator[Value]:
        return self._results.inputs()

    def add(self, kind: str, scope: str, inputs: list[Any], outputs: list[Any]) -> Node:
        node = Node(kind, scope)
        node._inputs = [self._operand(x, scope) for x in inputs]
        for x in outputs:
            node._outputs.append(self._new_value(node, x))
        self._nodes.append(node)
        return node

    def _new_value(self, node: Node, x: Any) -> Value:
        value = Value(node, x, str(self._count))
        self._count += 1
        if isinstance(x, Tensor):
            self._values[id(x)] = x, value
        return value

    def _operand(self, x: Any, scope: str) -> Value:
        if isinstance(x, Tensor):
            if id(x) not in self._values:
                self._parameters._outputs.append(self._new_value(self._parameters, x))
            return self._values[id(x)][1]
        if isinstance(x, (list, tuple)):
            return self.add("prim::ListConstruct", scope, list(x), [x])._outputs[0]
        return self.add("prim::Constant", scope, [], [x])._outputs[0]

    def __str__(self) -> str:
        lines = [f"graph({', '.join(f'{v} : {v.type()}' for v in self.inputs())}):"]
        lines += [f"  {node}" for node in self._nodes]
        return "\n".join([*lines, f"  return ({', '.join(map(repr, self.outputs()))})", ""])

    __repr__ = __str__


class _Recorder(TorchFunctionMode):
    """Adds the calls of operators to a graph. Functions that are written in Python are looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.graph, self.scopes = Graph(), []  # type: ignore[var-annotated]

    def push_scope(self, name: str) -> None:
        self.scopes.append(name)

    def pop_scope(self) -> None:
        self.scopes.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, _C.Overridable):
            with self:
                return func.__wrapped__(*args, **kwargs)
        result = func(*args, **kwargs)
        tensors = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        name = getattr(func, "__name__", "")
        if tensors and name != "__get__":
            kind, operands = _operator(func, name, args, kwargs)
            self.graph.add(f"aten::{kind}", "/".join(self.scopes), operands, tensors)
        return result


def _operator(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> tuple[str, list[Any]]:
    """The name and the operands of the TorchScript operator of a call."""
    operands = [*args, *kwargs.values()]
    if name in _ORDERS and (getattr(func, "__module__", None) or "").endswith("nn.functional"):
        order = _ORDERS[name]
        return name, [operands[k] for k in order] + operands[len(order) :]
    if name.startswith("conv") and name[-1] == "d":
        return "_convolution", _convolution(int(name[-2]), "transpose" in name, args, kwargs)
    return name, operands


def _convolution(rank: int, transposed: bool, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    names = ["input", "weight", "bias", "stride", "padding"]
    names += ["output_padding", "groups", "dilation"] if transposed else ["dilation", "groups"]
    values = {"bias": None, "stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
    values |= dict(zip(names, args)) | kwargs

    def each(name: str) -> Any:
        return [values[name]] * rank if isinstance(values[name], int) else values[name]

    sizes = [each("stride"), each("padding"), each("dilation"), transposed, each("output_padding")]
    return [
        values["input"],
        values["weight"],
        values["bias"],
        *sizes,
        values["groups"],
        False,
        False,
        True,
        True,
    ]


_active: list[_Recorder] = []


def tracing_state() -> Any:
    """The trace of this moment, to which programs tell the names of modules; None outside of one."""
    return _active[-1] if _active else None


def _get_trace_graph(
    f: Callable[..., Any],
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    strict: bool = True,
    _force_outplace: bool = False,
    return_inputs: bool = False,
    _return_inputs_states: bool = False,
) -> tuple[Any, ...]:
    """Runs a function and returns the graph of its calls, and its result; with `return_inputs` the tensors of
    its arguments too.
    """
    if _return_inputs_states:
        raise NotImplementedError("torch.jit._get_trace_graph: _return_inputs_states is not supported")
    args = args if isinstance(args, tuple) else (args,)
    recorder = _Recorder()
    inputs = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
    for x in inputs:
        recorder.graph._operand(x, "")
    _active.append(recorder)
    try:
        with recorder:
            result = f(*args, **(kwargs or {}))
    finally:
        _active.pop()
    returned = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
    recorder.graph._results._inputs = [recorder.graph._operand(x, "") for x in returned]
    return (recorder.graph, result, tuple(inputs)) if return_inputs else (recorder.graph, result)
