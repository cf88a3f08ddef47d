"""Graph: a program as a list of calls, and its Python source."""

from __future__ import annotations

import builtins
import contextlib
import copy
import enum
import functools
import keyword
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _C
from ..utils import _pytree as pytree
from . import _pytree as fx_pytree
from .node import Argument, Node, Target, _get_qualified_name, _reached, _root, _type_repr, map_arg

if TYPE_CHECKING:
    from .graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode"]

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
reflectable_magic_methods = {n: f"{{}} {sign} {{}}" for n, sign in _BINARY.items()} | {
    "div": "{} / {}",
    "getitem": "{}[{}]",
}
magic_methods = {
    **{n: f"{{}} {sign} {{}}" for n, sign in _COMPARISONS.items()},
    **{"pos": "+{}", "neg": "-{}", "invert": "~{}"},
    **reflectable_magic_methods,
}
inplace_methods = {f"i{n.rstrip('_')}": f"{{}} {sign}= {{}}" for n, sign in _BINARY.items()} | {
    "setitem": "{}[{}] = {}"
}


def _always_there() -> dict[str, tuple[str, Any]]:
    """Returns the names that generated code may use, with the lines that import them."""
    root = _root().__name__
    return {
        "inf": ("from math import inf", math.inf),
        "nan": ("from math import nan", math.nan),
        "NoneType": ("NoneType = type(None)", type(None)),
        root: (f"import {root}", _root()),
        "device": (f"from {root} import device", _C.device),
        "fx_pytree": (f"import {root}.fx._pytree as fx_pytree", fx_pytree),
        "pytree": (f"import {root}.utils._pytree as pytree", pytree),
    }


def _snake_case(s: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", s).lower()


class _Namespace:
    """Valid Python names, each for one object."""

    def __init__(self) -> None:
        # keeps the object alive, so that its id stays unique
        self._obj_to_name: dict[int, tuple[Any, str]] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = defaultdict(int)

    def create_name(self, candidate: str, obj: Any) -> str:
        """Returns a unique name similar to ``candidate``; an object keeps its first name."""
        if obj is not None and id(obj) in self._obj_to_name:
            return self._obj_to_name[id(obj)][1]
        candidate = re.sub("[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = "_" + candidate
        numbered = re.fullmatch(r"(.*)_(\d+)", candidate)
        base, number = (numbered[1], int(numbered[2])) if numbered else (candidate, 0)
        if numbered:
            candidate = f"{base}_{number}"
        number = number or self._base_count[base]
        while candidate in self._used_names or self._is_taken(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None:
            self._obj_to_name[id(obj)] = (obj, candidate)
        return candidate

    def _is_taken(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name):
            return True
        if hasattr(builtins, name):
            return obj is not getattr(builtins, name)
        there = _always_there()
        return name in there and obj is not there[name][1]

    def _rename_object(self, obj: Any, name: str) -> None:
        self._obj_to_name[id(obj)] = (obj, name)
        self._used_names.add(name)


@dataclass
class PythonCode:
    """A graph as source code, and the objects that the source refers to by name."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None
    _prologue_start: int = 0


def _format_target(base: str, target: str) -> str:
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class CodeGen:
    """Generates the source of a function from a graph; subclasses change its signature and its inputs and
    outputs.
    """

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **ignored: Any) -> str:
        """Returns the line ``def forward``, and the lines before the body."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument, **ignored: Any) -> str:
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """Returns the values of placeholders from the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Returns the function's result from the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        return []

    def _gen_python_code(
        self, nodes: Any, root_module: str, namespace: _Namespace, *, verbose: bool = False
    ) -> PythonCode:
        writer = _Writer(self, root_module, namespace, verbose)
        for name, value in self.additional_globals():
            writer.globals[name] = value
        for node in nodes:
            writer.write(node)
        return writer.finish()


class _Writer:
    """Writes the source of one graph."""

    def __init__(self, codegen: CodeGen, root_module: str, namespace: _Namespace, verbose: bool) -> None:
        self.codegen, self.root_module, self.namespace, self.verbose = (
            codegen,
            root_module,
            namespace,
            verbose,
        )
        self.globals: dict[str, Any] = {name: value for name, (_, value) in _always_there().items()}
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.returned = ""
        self.last_uses: dict[Node, list[Node]] | None = None

    def add_global(self, hint: str, obj: Any) -> str:
        if hint.startswith(_root().__name__ + ".") and _reached(hint) is obj:
            return hint  # reached through the package
        name = self.namespace.create_name(hint.replace(".", "_"), obj)
        self.globals[name] = obj
        return name

    def type_text(self, t: Any) -> str:
        if t in (None, type(None)):
            return "None"
        text = _type_repr(t)
        if isinstance(t, type) and t.__module__ != "builtins":
            return self.add_global(text, t)
        if isinstance(t, type) or text.startswith("typing."):
            return self.add_global(text.partition("[")[0], t) if "[" in text or "." in text else text
        return self.add_global("annotation", t)

    def text(self, a: Any) -> str:
        """Returns an argument as source code."""
        if isinstance(a, Node):
            return repr(a)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return f"{self.add_global(_get_qualified_name(type(a)), type(a))}{self._list(tuple(a))}"
        if isinstance(a, enum.Enum):
            return f"{self.add_global(_get_qualified_name(type(a)), type(a))}.{a.name}"
        if isinstance(a, (tuple, list)):
            return self._list(a)
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        if isinstance(a, type) or isinstance(a, FunctionType):
            return self.add_global(_get_qualified_name(a), a)
        return repr(a)

    def _list(self, a: Any) -> str:
        inner = ", ".join(map(self.text, a))
        if isinstance(a, list):
            return f"[{inner}]"
        return f"({inner},)" if len(a) == 1 else f"({inner})"

    def arguments(self, args: Any, kwargs: dict) -> str:
        return ", ".join([self.text(a) for a in args] + [f"{k} = {self.text(v)}" for k, v in kwargs.items()])

    def write(self, node: Node) -> None:
        if self.last_uses is None:
            self.last_uses = _last_uses(node.graph)
        typed = f" : {self.type_text(node.type)}" if node.type is not None else ""
        if node.op == "placeholder":
            default = f" = {self.text(node.args[0])}" if node.args else ""
            self.parameters.append(f"{node.target}{typed}{default}")
            name = node.target.replace("*", "")
            if name != repr(node):
                self.body.append(f"{node!r} = {name}\n")
            return
        if node.op == "output":
            if node.type is not None:
                self.returned = f" -> {self.type_text(node.type)}"
            map_arg(node.args[0], lambda n: n)
            self.body.append(self.codegen.generate_output(self._with_names(node.args[0])) + "\n")
            return
        dropped = list(self.last_uses.get(node, ())) + ([] if node.users else [node])
        ends = f";  {' = '.join(map(repr, dropped))} = None" if dropped else ""
        self.body.append(self._call(node, typed) + ends + "\n")

    def _with_names(self, a: Any) -> Any:
        """Prepares a returned value for repr: functions and classes by their names in the source."""
        return _AsText(self.text(a)) if not isinstance(a, (tuple, list, dict, Node)) else _Named.of(a, self)

    def _call(self, node: Node, typed: str) -> str:
        left = f"{node!r}{typed}"
        if node.op == "call_method":
            called = _format_target(self.text(node.args[0]), node.target)
            return f"{left} = {called}({self.arguments(node.args[1:], node.kwargs)})"
        if node.op == "call_module":
            called = _format_target(self.root_module, node.target)
            return f"{left} = {called}({self.arguments(node.args, node.kwargs)})"
        if node.op == "get_attr":
            return f"{left} = {_format_target(self.root_module, node.target)}"
        name = getattr(node.target, "__name__", "")
        if getattr(node.target, "__module__", None) == "_operator" and not node.kwargs:
            if name in magic_methods:
                return f"{left} = {magic_methods[name].format(*map(self.text, node.args))}"
            if name in inplace_methods:
                done = inplace_methods[name].format(*map(self.text, node.args))
                return f"{done};  {left} = {self.text(node.args[0])}"
        called = self.add_global(_get_qualified_name(node.target), node.target)
        if called == "getattr" and isinstance(node.args[1], str) and node.args[1].isidentifier():
            if len(node.args) == 2:
                return f"{left} = {_format_target(self.text(node.args[0]), node.args[1])}"
        if node.meta.get("is_wrapped"):
            self.wrapped.setdefault(called)
        return f"{left} = {called}({self.arguments(node.args, node.kwargs)})"

    def finish(self) -> PythonCode:
        wraps = "\n".join(f'{_root().__name__}.fx._symbolic_trace.wrap("{n}")' for n in self.wrapped)
        head = self.codegen.gen_fn_def(self.parameters, self.returned)
        body = "\n".join("    " + line for line in ("".join(self.body) or "pass\n").split("\n"))
        return PythonCode(f"\n{wraps}\n\n{head}\n{body}", self.globals)


class _AsText:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _Named:
    """Containers whose leaves are printed as source code."""

    @staticmethod
    def of(a: Any, writer: _Writer) -> Any:
        if isinstance(a, Node):
            return a
        if isinstance(a, tuple) and not hasattr(a, "_fields"):
            return tuple(_Named.of(x, writer) for x in a)
        if isinstance(a, list):
            return [_Named.of(x, writer) for x in a]
        if isinstance(a, dict):
            return {k: _Named.of(v, writer) for k, v in a.items()}
        return _AsText(writer.text(a))


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Returns for each node the arguments that no later node reads."""
    seen: set[Node] = set()
    last_uses: dict[Node, list[Node]] = defaultdict(list)
    for user in reversed(graph.nodes):

        def used(n: Node, user: Node = user) -> Node:
            if n not in seen:
                seen.add(n)
                last_uses[user].append(n)
            return n

        map_arg(user.args, used)
        map_arg(user.kwargs, used)
    return last_uses


class _PyTreeInfo(NamedTuple):
    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class _PyTreeCodeGen(CodeGen):
    """The source of a function whose arguments or results are trees: it flattens and rebuilds them."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        if not isinstance(out, (list, tuple)) or self.pytree_info.out_spec is None:
            return out
        return pytree.tree_unflatten(list(out), self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **ignored: Any) -> str:
        names = self.pytree_info.orig_args
        head = super().gen_fn_def(names[:], maybe_return_annotation)
        if not free_vars:
            return head
        inner = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars if v != "self"]
        parameters = ", ".join(n.partition(":")[0].partition("=")[0].strip() for n in names if n != "self")
        return f"{head}\n    {', '.join(inner)}, = fx_pytree.tree_flatten_spec([{parameters}], self._in_spec)"

    def generate_output(self, output_args: Argument, **ignored: Any) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"


class _InsertPoint:
    """The position of new nodes; as a context manager, until the block ends."""

    def __init__(self, graph: Graph, place: Callable[[Node], None]) -> None:
        self.graph, self.before = graph, graph._insert
        graph._insert = place

    def __enter__(self) -> _InsertPoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.before


class _node_list:
    """The nodes of a graph in order; nodes may be inserted and erased during iteration."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self.graph._root, self.direction)
        while node is not self.graph._root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class Graph:
    """A program: nodes in the order of execution, created by a Tracer or one by one.

    >>> g = facula.fx.Graph()
    >>> x = g.placeholder("x")
    >>> _ = g.output(g.call_function(facula.relu, (x,)))
    >>> print(g)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=facula.relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._len = 0
        self._insert: Callable[[Node], None] = self._root.prepend
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._owners = 0
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The GraphModule that owns this graph, if exactly one does."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module: Any) -> None:
        if module is not None:
            self._owning_module = module if not self._owners else None
            self._owners += 1
        else:
            self._owning_module, self._owners = None, 0

    @property
    def nodes(self) -> _node_list:
        """The nodes in order; the graph may change during iteration, also in reverse by reversed()."""
        return _node_list(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """Returns the nodes of a kind, optionally with a certain target."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for op='call_function'")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        """Returns the node of the program's return value."""
        for node in reversed(self.nodes):
            if node.op == "output":
                return node
        raise RuntimeError("graph has no output node")

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node at the insertion point: the end, or the one that ``inserting_before`` sets."""
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if op == "root" or op not in (
            "call_function", "call_method", "get_attr", "call_module", "placeholder", "output",
        ):  # fmt: skip
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        if not isinstance(args, tuple):
            raise AssertionError("args must be a tuple")
        if not isinstance(kwargs, dict):
            raise AssertionError("kwargs must be a dict")
        unique = self._graph_namespace.create_name(name or self._target_to_str(target), None)
        node = Node(self, unique, op, target, args, kwargs, type_expr)
        self._graph_namespace._rename_object(node, unique)
        for hook in getattr(self.owning_module, "_create_node_hooks", ()) or ():
            hook(node)
        self._insert(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Target | None) -> str:
        name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        name = getattr(target, "_opname", name)  # the operator's name without its overload
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        return _snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Adds an input of this name."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds a read of a parameter, buffer, or submodule of the owner."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Adds the return value of the program."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Inserts new nodes before ``n``, or at the beginning: until the ``with`` block ends, or
        permanently.
        """
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Inserts new nodes after ``n``, or at the end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """Adds a copy of another graph's node; ``arg_transform`` maps its arguments to nodes of this
        graph.
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        if not isinstance(args, tuple):
            raise AssertionError(f"Expected args to be a tuple, got {type(args)}")
        copied = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | None:
        """Adds copies of all nodes of another graph but its output; ``val_map`` maps the originals to
        them.

        Nodes that ``val_map`` already contains are not copied. Returns the mapped return value of the
        other graph.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that has no users."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings

            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", ()) or ():
            hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erases calls without users and side effects; returns whether there were any."""
        self.lint()
        before = self._len
        for node in reversed(self.nodes):
            stays = node.is_impure() if is_impure_node is None else is_impure_node(node)
            if not stays and not node.users:
                self.erase_node(node)
        return self._len != before

    def lint(self) -> None:
        """Raises if a node is used before it is defined, belongs elsewhere, or names something its owner
        lacks.
        """
        seen: set[Node] = set()
        names: set[str] = set()

        def check(user: Node, n: Node) -> None:
            if n.graph is not self:
                raise RuntimeError(
                    f"Argument '{n}' of Node '{user}' does not belong to this Graph, but was used as an "
                    "argument! If you are copying nodes from another graph, make sure to use "
                    "``arg_transform`` on node_copy() to remap values\n" + str(self)
                )
            if n not in seen:
                raise RuntimeError(
                    f"Argument '{n}' of Node '{user}' was used before it has been defined! Please check that "
                    f"Nodes in the graph are topologically ordered\n{self}"
                )

        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            map_arg(node.args, functools.partial(check, node))
            map_arg(node.kwargs, functools.partial(check, node))
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._check_target(node)

    def _check_target(self, node: Node) -> None:
        from ..nn.modules.module import Module

        member, path = self.owning_module, ""
        for part in node.target.split("."):
            if not hasattr(member, part):
                raise RuntimeError(
                    f"Node {node} target {node.target} references nonexistent attribute {part} of {path}"
                )
            member, path = getattr(member, part), f"{path}.{part}".lstrip(".")
        if node.op == "call_module" and not isinstance(member, Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {path} of {type(member)} does not reference an nn.Module"
            )

    def process_inputs(self, *args: Any) -> Any:
        """Returns the values of placeholders from the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    @contextlib.contextmanager
    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> Iterator[None]:
        """Within the ``with`` block, transforms the body of generated code by ``make_transformer(previous
        transformer)``.
        """
        before = getattr(self._codegen, "_body_transformer", None)
        self._codegen._body_transformer = make_transformer(before)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._codegen._body_transformer = before  # type: ignore[attr-defined]

    def python_code(self, root_module: str, *, verbose: bool = False, **ignored: Any) -> PythonCode:
        """Returns the graph as the source of a function ``forward``; ``root_module`` is its owner's name
        there.
        """
        namespace = _Namespace()
        nodes = list(self.nodes)
        shown = [n._repr_fn for n in nodes]
        for node in nodes:
            node._repr_fn = lambda n: namespace.create_name(n.name, n)
        try:
            return self._codegen._gen_python_code(self.nodes, root_module, namespace, verbose=verbose)
        finally:
            for node, f in zip(nodes, shown):
                node._repr_fn = f

    def print_tabular(self) -> None:
        """Prints the nodes as a table, laid out as by the package tabulate, which PyTorch uses."""
        rows = [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        header = ["opcode", "name", "target", "args", "kwargs"]
        widths = [max(len(h) + 2, *(len(r[k]) for r in rows)) for k, h in enumerate(header)]
        for row in [header, ["-" * w for w in widths], *rows]:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())

    def __str__(self) -> str:
        inputs: list[str] = []
        returned = [""]
        lines = [n.format_node(maybe_return_typename=returned) for n in self.nodes]
        return f"graph({', '.join(inputs)}){returned[0]}:" + "".join(f"\n    {s}" for s in lines if s)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        g = Graph(tracer_cls=self._tracer_cls)
        values: dict[Node, Node] = {}
        returned = g.graph_copy(self, values, return_output_node=True)
        g._codegen = copy.deepcopy(self._codegen)
        if returned is not None:
            result, old = returned
            g.output(result, old.type).meta = copy.copy(old.meta)
        return g
