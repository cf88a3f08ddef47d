"""Interpreter: runs a graph node by node; Transformer: creates another graph in this way."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..nn.modules.module import Module
from .graph import Graph
from .graph_module import GraphModule
from .node import Argument, Node, Target, map_aggregate, map_arg
from .proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a GraphModule node by node; subclasses override how a kind of node is executed.

    >>> class Doubled(facula.fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         return 2 * super().call_function(target, args, kwargs)
    >>> Doubled(facula.fx.symbolic_trace(lambda x: x + 1)).run(facula.ones(1))
    tensor([4.])
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        if garbage_collect_values:
            from .graph import _last_uses

            self.user_to_last_uses = _last_uses(self.graph)

    def run(
        self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True
    ) -> Any:
        """Returns the program's result for these inputs; values in ``initial_env`` are not computed."""
        self.env = initial_env if initial_env is not None else {}
        inputs = self.graph.process_inputs(*args) if enable_io_processing else args
        self.args_iter: Iterator[Any] = iter(inputs)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as e:
                if self.extra_traceback:
                    where = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
                    first = f"{e.args[0]}\n\n{where}" if e.args else where
                    e.args = (first, *e.args[1:])
                    if isinstance(e, KeyError):
                        raise RuntimeError(*e.args) from e
                raise
            if self.garbage_collect_values:
                for n in self.user_to_last_uses.get(node, ()):
                    self.env.pop(n, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Like ``run``, with the inputs in a list, which is cleared first so that they can be freed
        early.
        """
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        env = {n: value for n, value in zip(inputs, args_list)}
        args_list.clear()
        return self.run(initial_env=env)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        yield

    def run_node(self, n: Node) -> Any:
        """Returns the value of one node, whose arguments have been computed."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        if target.startswith("**"):
            raise NotImplementedError("fx.Interpreter: programs with **kwargs are not interpreted")
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        this, *rest = args
        return getattr(this, target)(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Returns a parameter, buffer or submodule of the module by its path."""
        member, parts = self.module, target.split(".")
        for k, name in enumerate(parts):
            if not hasattr(member, name):
                raise RuntimeError(
                    f"Node referenced nonexistent target {'.'.join(parts[: k + 1])}; "
                    f"original whole target: '{target}'"
                )
            member = getattr(member, name)
        return member

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Returns arguments with values in place of nodes."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


class Transformer(Interpreter):
    """Runs a GraphModule on proxies: the calls of its methods become the nodes of another GraphModule.

    >>> class Swap(facula.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         target = facula.sigmoid if target is facula.relu else target
    ...         return super().call_function(target, args, kwargs)
    >>> print(Swap(facula.fx.symbolic_trace(lambda x: facula.relu(x))).transform().code.strip())
    def forward(self, x):
        sigmoid = facula.sigmoid(x);  x = None
        return sigmoid
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        from ._symbolic_trace import Tracer

        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        graph = self.new_graph

        class TransformerTracer(Tracer):
            def __init__(self) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs: dict[Any, str] = {}

            def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
                return True

        self.tracer = TransformerTracer()
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        default = next(iter(args)) if args else inspect.Signature.empty
        value = ... if default is inspect.Signature.empty else default
        return Proxy(self.new_graph.placeholder(target, default_value=value), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        submodule = self.fetch_attr(target)
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Returns the module with the graph that this run records."""
        env: dict[Node, Any] = {}
        result = super().run(initial_env=env, enable_io_processing=False)
        old = self.graph.output_node()

        def node_of(a: Any) -> Any:
            return a.node if isinstance(a, Proxy) else a

        if result is not None or old.args[0] is None:
            new = self.new_graph.output(map_aggregate(result, node_of), old.type)
            new.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph)
