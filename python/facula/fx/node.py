"""Node: one call of a traced program, and the names under which calls are printed."""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _C
from .immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any
Target = Any
_OPS = ("call_function", "call_method", "call_module", "get_attr", "output", "placeholder", "root")
BaseArgumentTypes = (str, int, float, bool, complex, _C.dtype, _C.Tensor, _C.device, _C.memory_format)
base_types = (*BaseArgumentTypes, _C.layout, type(None), type(...), range)

_side_effects: set[Callable] = set()  # functions whose calls a graph keeps even if their results are unused


def has_side_effect(fn: Callable) -> Callable:
    """Marks a function whose calls must stay in a graph, and returns it."""
    _side_effects.add(fn)
    return fn


def _root() -> Any:
    """Returns the package, whose name is torch behind the alias."""
    import facula

    return facula


def _reached(path: str) -> Any:
    """Resolves a dotted name that begins with the package's name; None if it does not exist."""
    first, *rest = path.split(".")
    member = _root() if first == _root().__name__ else None
    for name in rest:
        member = getattr(member, name, None)
    return member


def _get_qualified_name(func: Any) -> str:
    """Returns the dotted name of a function for generated code and printed graphs."""
    if getattr(builtins, getattr(func, "__name__", ""), None) is func:
        return func.__name__
    from .._ops import FunctionOperator, HigherOrderOperator, OpOverload, OpOverloadPacket
    from ..overrides import is_tensor_method_or_property, resolve_name

    if isinstance(func, (OpOverload, OpOverloadPacket, FunctionOperator)):
        return f"{_root().__name__}.ops.{func}"
    if isinstance(func, HigherOrderOperator):
        return f"{_root().__name__}.ops.higher_order.{func}"
    public_name = resolve_name(func)
    if public_name and not is_tensor_method_or_property(func):
        return public_name
    name = getattr(func, "__name__", None) or type(func).__name__
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{_root().__name__}.Tensor.{name}"
    module = getattr(func, "__module__", None) or _root().__name__
    if module == "facula" or module.startswith("facula."):
        # functions in classes keep our package's name
        module = _root().__name__ + module.removeprefix("facula")
    if module.startswith(_root().__name__ + "._") and getattr(_root(), name, None) is func:
        return f"{_root().__name__}.{name}"
    return f"{module}.{name}"


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies ``fn`` to every element of nested tuples, lists, dicts and slices, and returns the same
    structure.

    >>> facula.fx.node.map_aggregate(([1, 2], {"a": 3}), lambda x: -x)
    ([-1, -2], {'a': -3})
    """
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Applies ``fn`` to every Node in nested containers."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _shown(a: Any) -> str:
    """Returns an argument as printed nodes show it."""
    if isinstance(a, Node):
        return "%" + a.name
    if isinstance(a, tuple) and not hasattr(a, "_fields"):
        inner = ", ".join(map(_shown, a))
        return f"({inner},)" if len(a) == 1 else f"({inner})"
    if isinstance(a, list):
        return "[" + ", ".join(map(_shown, a)) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k}: {_shown(v)}" for k, v in a.items()) + "}"
    return str(a)


def _type_repr(obj: Any) -> str:
    """Returns a type, or a value in an annotation, as text."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        if obj is _C.Tensor:
            return _root().__name__ + ".Tensor"
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


class Node:
    """A call in a Graph: ``op`` is its kind, ``target`` the callee, ``args`` and ``kwargs`` the
    arguments.

    placeholder: an input of this name. get_attr: a parameter, buffer or submodule by its path.
    call_function, call_module, call_method: a call. output: its only argument is the return value of the
    program.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op not in _OPS:
            raise AssertionError(f"op must be one of {_OPS}, got {op}")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} "
                    "but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} "
                "but a str is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._set_arguments(args, kwargs)

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        if not isinstance(args, tuple):
            raise AssertionError(f"Expected a tuple for args, got {type(args)}")
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}

        def used(n: Node) -> Node:
            self._input_nodes.setdefault(n)
            n.users.setdefault(self)
            return n

        self._args = map_arg(args, used)
        self._kwargs = map_arg(kwargs, used)

    @property
    def next(self) -> Node:
        """The node that is executed after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node that is executed before this one."""
        return self._prev

    @property
    def args(self) -> tuple[Argument, ...]:
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, without duplicates."""
        return list(self._input_nodes)

    @property
    def stack_trace(self) -> str | None:
        """The call site in the traced program, if the tracer recorded it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Moves ``x`` in front of this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Moves ``x`` behind this node."""
        self._next.prepend(x)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces the positional argument at ``idx``."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Inserts a positional argument before ``idx``."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replaces the keyword argument ``key``."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replaces ``old_input`` by ``new_input`` in the arguments of this node."""

        def swapped(n: Node) -> Node:
            return new_input if n is old_input else n

        self._tell_replaced(old_input, new_input, self)
        self._set_arguments(map_arg(self._args, swapped), map_arg(self._kwargs, swapped))

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Replaces this node by ``replace_with`` in its users' arguments and returns these users.

        Only users for which ``delete_user_cb`` is true are changed and returned.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with "
                    "already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def _tell_replaced(self, old: Node, new: Node, user: Node) -> None:
        for hook in getattr(self.graph.owning_module, "_replace_hooks", ()) or ():
            hook(old=old, new=new.name, user=user)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Returns whether the call has side effects, so that it must stay."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            if self.target in _side_effects or self.target is setattr or self.target is operator.setitem:
                return True
            if getattr(self.target, "__name__", "") in _IN_PLACE_OPERATORS and self.target is getattr(
                operator, self.target.__name__, None
            ):
                return True
            draws = impure_random and getattr(self.target, "__name__", "") in _RANDOM
            return draws and _get_qualified_name(self.target).startswith(_root().__name__)
        if self.op == "call_method":
            return False
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = owner.get_submodule(self.target)
            return getattr(module, "_is_impure", False)
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """Returns the arguments by parameter names as an ArgsKwargsPair; None if the signature is
        unknown.
        """
        from .operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)

    def _pretty_print_target(self, target: object) -> str:
        if isinstance(target, str):
            return target
        if hasattr(target, "__module__"):
            name = getattr(target, "__name__", None)
            if name is None:
                return _get_qualified_name(target)
            if target.__module__ in ("builtins", "math", "operator", "_operator"):
                return f"{target.__module__.removeprefix('_')}.{name}"
        return _get_qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """Returns the line of this node in a printed graph; if lists are passed, they collect
        placeholders and the return type instead.
        """
        typed = f"{_type_repr(self.type)} " if self.type else ""
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(self.target + (f" : {typed.strip()}" if typed else ""))
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            text = f"placeholder[target={self.target}]{default}"
        elif self.op == "get_attr":
            text = f"get_attr[target={self._pretty_print_target(self.target)}]"
        elif self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            returned = self.args[0]
            return f"return {returned}"
        else:
            text = (
                f"{self.op}[target={self._pretty_print_target(self.target)}]"
                f"(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"
            )
        return f"%{self.name} : {typed}[num_users={len(self.users)}] = {text}"

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def __lt__(self, other: Node) -> bool:
        """Returns whether this node precedes ``other`` in its graph."""
        for n in self.graph.nodes:
            if n is self:
                return n is not other
            if n is other:
                return False
        return False

    def __gt__(self, other: Node) -> bool:
        return self is not other and not self < other


_IN_PLACE_OPERATORS = frozenset(
    "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor".split()
)
_RANDOM = frozenset(
    """alpha_dropout bernoulli dropout dropout1d dropout2d dropout3d feature_alpha_dropout gumbel_softmax
    multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm rrelu
    seed manual_seed set_rng_state""".split()
)
