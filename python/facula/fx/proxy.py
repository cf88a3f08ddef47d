"""Proxy: a value of a program that is being traced; operations on it become nodes of a graph."""

from __future__ import annotations

import bisect
import collections
import dis
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from .. import _C
from .graph import Graph, magic_methods, reflectable_magic_methods
from .node import Argument, Node, Target, base_types, map_aggregate

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

_ITERATED = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args "
    "or **kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of "
    "what types of control flow can be traced, and check out the Proxy docstring for help troubleshooting "
    "Proxy iteration errors"
)


class TraceError(ValueError):
    """Raised if the traced program needs a value that is known only at run time."""


class Scope:
    """The module whose forward is being traced: its path and type."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Replaces a scope within the ``with`` block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self.scope, self.before = scope, Scope(scope.module_path, scope.module_type)
        self.scope.module_path, self.scope.module_type = current_scope.module_path, current_scope.module_type

    def __enter__(self) -> Scope:
        return self.scope

    def __exit__(self, *exc: object) -> None:
        self.scope.module_path, self.scope.module_type = self.before.module_path, self.before.module_type


class TracerBase:
    """Creates nodes for calls on proxies; Tracer also follows modules."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"
    scope: Scope
    module_stack: collections.OrderedDict[str, Any]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = self.module_stack.copy()
        return node

    def proxy(self, node: Node) -> Proxy:
        """Returns the value of a node, for the traced program."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node with the program's arguments, and returns its value."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        if self.record_stack_traces:
            frame = self._find_user_frame()
            if frame is not None:
                node.stack_trace = "".join(traceback.StackSummary.from_list(
                    traceback.extract_stack(frame)).format()).strip()  # fmt: skip
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def _find_user_frame(self) -> Any:
        """Returns the caller's frame: the innermost one outside of this package."""
        frame = inspect.currentframe()
        while frame is not None and (frame.f_globals.get("__name__") or "").startswith(
            __name__.rpartition(".")[0]
        ):
            frame = frame.f_back
        return frame

    def create_arg(self, a: Any) -> Argument:
        """Converts a value to the argument of a node: proxies become their nodes, also in containers."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(type(a), "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*[self.create_arg(x) for x in a])
        if isinstance(a, _C.Size):
            return tuple(a)
        if isinstance(a, (tuple, list)):
            return type(a)([self.create_arg(x) for x in a])
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(a.start, a.stop, a.step)
        if is_dataclass(a) and not isinstance(a, type):
            values = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a) if f.init}
            return self.create_node("call_function", type(a), (), values)
        if isinstance(a, base_types) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, k: Any) -> Any:
        key = self.create_arg(k)

        def no_node(x: Any) -> Any:
            if isinstance(x, Node):
                raise RuntimeError(
                    f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
                )
            return x

        map_aggregate(key, no_node)
        return key

    def to_bool(self, obj: Proxy) -> bool:
        """Called when control flow tests a proxy."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator:
        """Called when a proxy is iterated over."""
        raise TraceError(_ITERATED)

    def keys(self, obj: Proxy) -> Any:
        """Called for ``**proxy``."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends to an existing graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()


class Proxy:
    """Stands for a value while a program is traced: operators, functions of tensors, methods and
    attributes return further proxies, and become nodes.

    Control flow cannot test it, loops cannot iterate over it, and ``len`` and conversions to Python
    numbers fail: these raise TraceError, RuntimeError or TypeError.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k in ("node", "tracer"):  # while a copy is being created
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict:
        return self.__dict__

    def __setstate__(self, d: dict) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict) -> Proxy:
        import copy

        copied = Proxy.__new__(type(self))
        copied.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller is not None:  # unpacking, ``a, b = proxy``, tells the number of elements
            code = list(dis.get_instructions(caller.f_code))
            at = bisect.bisect_left([i.offset for i in code], caller.f_lasti)
            if at < len(code) and code[at].opname == "UNPACK_SEQUENCE":
                return (self[i] for i in range(code[at].argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
            "please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Proxy:
        from ..overrides import is_tensor_method_or_property

        tracers: dict[Any, None] = {}

        def look(a: Any) -> Any:
            if isinstance(a, Proxy):
                tracers[a.tracer] = None
            return a

        kwargs = kwargs or {}
        map_aggregate(args, look)
        map_aggregate(kwargs, look)
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers)} while trying to trace operations "
                f"{orig_method}"
            )
        (tracer,) = tracers
        if is_tensor_method_or_property(orig_method):
            owner = getattr(orig_method, "__self__", None)  # a property's __get__
            if owner is not None and orig_method.__name__ == "__get__":
                return tracer.create_proxy("call_function", getattr, (args[0], owner.__name__), {})
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        name = tracer.graph._target_to_str(orig_method.__name__)
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=name)


class Attribute(Proxy):
    """An attribute of a proxy: becomes a node when it is used as a value, but not when it is called as a
    method.
    """

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose shape is available while its program is traced."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _define_operators() -> None:
    def method(target: Callable) -> Callable:
        def f(self: Proxy, *args: Any, **kwargs: Any) -> Proxy:
            return self.tracer.create_proxy("call_function", target, (self, *args), kwargs)

        return f

    def reflected(target: Callable) -> Callable:
        def f(self: Proxy, left: Any) -> Proxy:
            return self.tracer.create_proxy("call_function", target, (left, self), {})

        return f

    for name in magic_methods:
        target = getattr(operator, name, operator.truediv)
        setattr(Proxy, f"__{name.strip('_')}__", method(target))
        if name in reflectable_magic_methods:
            setattr(Proxy, f"__r{name.strip('_')}__", reflected(target))
    Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]  (__eq__ creates nodes)


_define_operators()
