"""Tracer: runs a module's forward, or a function, on proxies, and records a Graph."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any

from .. import _C
from .._classes import ScriptObject as ScriptObject
from .._tensor import _make_overridable
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from ..utils import _pytree as pytree
from ._compatibility import compatibility as compatibility
from .graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from .graph_module import GraphModule
from .node import Argument, base_types
from .proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

_orig_module_getattr = _C.ModuleBase.__getattr__
_orig_module_call = _C.ModuleBase.__call__
_tracing = 0
_wrapped_functions: dict[tuple[int, str], dict] = {}  # (id of globals, name): the globals
_wrapped_methods: list[tuple[type, str]] = []
_proxyable_classes: dict[type, None] = {}


class PHBase:
    """Stands for an input in ``concrete_args``: a leaf that remains an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class ProxyableClassMeta(type):
    """The metaclass of classes whose construction from proxies becomes a node of the graph."""

    def __init__(cls, name: str, bases: tuple, attrs: dict) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance = cls.__new__(cls)
        if not is_fx_tracing():
            cls.__init__(instance, *args, **kwargs)
            return instance
        tracers = {p.tracer for p in _proxies((args, kwargs))}
        if not tracers:
            cls.__init__(instance, *args, **kwargs)
            return instance
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {tracers} in the arguments of {cls}")
        return tracers.pop().create_proxy("call_function", cls, args, kwargs)


def is_fx_tracing() -> bool:
    """Returns whether a Tracer is running a program."""
    return _tracing > 0


def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def _proxies(tree: Any) -> list[Proxy]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Proxy)]


class _Patcher:
    """Replaces attributes and dictionary entries until the ``with`` block ends.

    Tracers of other packages use it under PyTorch's names. A name may always be replaced again.
    """

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.seen: set[int] = set()

    def patch(self, where: dict, name: str, value: Any, deduplicate: bool = True) -> None:
        if name in where:
            old = where[name]
            self.undo.append(lambda: where.__setitem__(name, old))
        else:
            self.undo.append(lambda: where.pop(name, None))
        where[name] = value

    def patch_method(self, where: Any, name: str, value: Any, deduplicate: bool = True) -> None:
        if name in vars(where):
            old = vars(where)[name]
            self.undo.append(lambda: setattr(where, name, old))
        else:
            self.undo.append(lambda: delattr(where, name))
        setattr(where, name, value)

    def visit_once(self, where: dict) -> bool:
        first = id(where) not in self.seen
        self.seen.add(id(where))
        return first

    def __enter__(self) -> _Patcher:
        _make_overridable(_C.Tensor)  # methods of plain tensors with proxies among their arguments
        return self

    def __exit__(self, *exc: object) -> None:
        while self.undo:
            self.undo.pop()()
        _restore_modules()


def _restore_modules() -> None:
    """Restores the fast call and attribute lookup of module classes, which patching disables."""
    classes = [Module]
    for c in classes:
        classes += type.__subclasses__(c)
        vars(_C.ModuleBase)["__init_subclass__"].__get__(None, c)()


class Tracer(TracerBase):
    """Runs a program on proxies. Subclasses decide which modules are called as leaves
    (``is_leaf_module``), and how attributes (``getattr``) and arguments (``create_arg``) are converted.

    >>> class M(facula.nn.Module):
    ...     def forward(self, x):
    ...         return facula.relu(x) + 1
    >>> print(facula.fx.Tracer().trace(M()))
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=facula.relu](args = (%x,), kwargs = {})
        %add : [num_users=1] = call_function[target=operator.add](args = (%relu, 1), kwargs = {})
        return add
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable, ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids = {
            id(value)
            for name, value in chain.from_iterable(m.__dict__.items() for m in autowrap_modules)
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack: collections.OrderedDict[str, Any] = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    def get_fresh_qualname(self, prefix: str) -> str:
        """Returns a name that the root does not have: the prefix and a number."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_node(
        self, kind: str, target: Any, args: tuple, kwargs: dict, name: Any = None, type_expr: Any = None
    ) -> Any:
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        return node

    def create_arg(self, a: Any) -> Argument:
        if isinstance(a, Parameter):
            for name, p in self.root.named_parameters():
                if a is p:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, _C.Tensor):
            for name, b in self.root.named_buffers():
                if a is b:
                    return self.create_node("get_attr", name, (), {})
            path = self.tensor_attrs.get(a)
            if path is None:  # a tensor that does not depend on inputs
                path = self.tensor_attrs[a] = self.get_fresh_qualname("_tensor_constant")
                setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Module):
            for name, m in self.root.named_modules():
                if a is m:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
        if type(a) in _proxyable_classes:
            path = self.get_fresh_qualname(f"_{type(a).__name__}_constant_")
            setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Returns whether a call of the module is a node: true for those of facula.nn, except Sequential."""
        from ..nn import Sequential

        home = type(m).__module__.replace("torch.", "facula.", 1)
        return home.startswith(("facula.nn", "facula.ao.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Returns a submodule's path in the root. Raises NameError if it has none."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, m in self.root.named_modules():
            if m is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        """Records a call of a submodule: as a node if it is a leaf, else by tracing ``forward``."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            calls = self.num_calls.get(path, 0)
            self.num_calls[path] = calls + 1
            key = f"{scope.module_path}@{calls}" if calls else scope.module_path
            self.module_stack[key] = (path, type(m))
            try:
                if self.is_leaf_module(m, path):
                    return self.create_proxy("call_module", path, args, kwargs)
                return forward(*args, **kwargs)
            finally:
                self.module_stack.popitem(last=True)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Returns the traced value of a module's attribute: parameters become proxies."""
        if isinstance(attr_val, Parameter):
            return self._proxy_of(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, _C.Tensor):
            return self._proxy_of(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _parameter_proxy(self, node: Any, name: str, param: Any) -> ParameterProxy:
        return ParameterProxy(self, node, name, param)

    def _proxy_of(self, value: Any, members: Any, cache: dict[str, Any]) -> Any:
        for name, member in members:
            if member is value:
                if name not in cache:
                    factory = None
                    if self.param_shapes_constant:
                        factory = partial(self._parameter_proxy, name=name, param=value)
                    cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
                return cache[name]
        return value

    def create_args_for_root(
        self, root_fn: Callable, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """Returns the function, and the proxies to call it with."""
        f = inspect.unwrap(root_fn)
        code = f.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = iter(code.co_varnames)
        args: list[Any] = []
        skipped = 0
        if is_module:
            if count == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            skipped = 1
            next(names)
            args.append(self.root)
        signature = inspect.signature(f)
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != count - skipped:
                raise RuntimeError(
                    f"Tracing expected {count - skipped} arguments but got {len(concrete_args)} concrete "
                    "arguments"
                )
            concrete_args = dict(zip(list(code.co_varnames)[skipped:count], concrete_args))
        inputs = [next(names) for _ in range(skipped, count)]
        args += [self._placeholder(n, concrete_args, signature, f) for n in inputs]
        if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            if code.co_flags & inspect.CO_VARARGS:
                args.append(self._placeholder("*" + next(names), concrete_args, signature, f))
            if code.co_flags & inspect.CO_VARKEYWORDS:
                args.append(self._placeholder("**" + next(names), concrete_args, signature, f))
            root_fn = _with_plain_parameters(f, len(args))
        leaves, spec = pytree.tree_flatten(tuple(args))
        if not any(pytree._children(a) is not None for a in args):
            return root_fn, args
        self.graph._codegen = codegen = _PyTreeCodeGen(
            _PyTreeInfo(list(code.co_varnames[:count]), None, None)
        )
        caller_args = args[skipped:]

        def flat(*flat_args: Any) -> Any:
            out = root_fn(*pytree.tree_unflatten(list(flat_args), spec))
            out_leaves, out_spec = pytree.tree_flatten(out)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out_leaves

        codegen.pytree_info = codegen.pytree_info._replace(in_spec=pytree.tree_structure(caller_args))
        return flat, leaves

    def _placeholder(
        self, name: str, concrete: dict | None, signature: inspect.Signature, f: Callable
    ) -> Any:
        plain = name.lstrip("*")
        parameter = signature.parameters[plain]
        default = () if name != plain or parameter.default is parameter.empty else (parameter.default,)
        if concrete is None or name not in concrete:
            said = getattr(f, "__annotations__", {}).get(plain) if name == plain else None
            return self.create_proxy("placeholder", name, default, {}, type_expr=_annotation(said, f))
        number = 0

        def leaf(x: Any) -> Any:
            nonlocal number
            number += 1
            out = self.create_proxy("placeholder", f"{name}_{number}", default, {})
            if isinstance(x, PHBase):
                return out
            said = "has been specialized to have value"
            if x is None:
                text = f"{name} {said} None but got another value"
                self.create_proxy("call_function", _assert_is_none, (out, text), {})
            elif type(x) is bool or type(x) in base_types and not isinstance(x, _C.Tensor):
                from .._composed import _assert

                text = f"{name} {said} {x} but got another value"
                self.create_proxy("call_function", _assert, (out == x, text), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized "
                    "function. It is up to the user to make sure that your inputs match the inputs you "
                    "specialized the function with.",
                    stacklevel=2,
                )
            return x

        return pytree.tree_map(leaf, concrete[name])

    def trace(self, root: Module | Callable, concrete_args: Any = None) -> Graph:
        """Returns the graph of a module's forward or of a function; ``concrete_args`` fixes arguments by
        name.
        """
        global _tracing
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in {type(root)}"
                )
            fn = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {m: name for name, m in root.named_modules()}
        else:
            self.root, fn = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs: dict[Any, str] = {}
        for path, m in self.root.named_modules():
            for name, value in m.__dict__.items():
                if isinstance(value, _C.Tensor):
                    self.tensor_attrs.setdefault(value, f"{path}.{name}" if path else name)
        if not isinstance(fn, FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        cache: dict[str, Any] = {}

        def module_getattr(mod: Module, name: str) -> Any:
            return self.getattr(name, _orig_module_getattr(mod, name), cache)

        def module_call(mod: Module, /, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return _orig_module_call(mod, *args, **kwargs)

            code = getattr(type(mod), "forward", None)
            _autowrap_check(patcher, getattr(code, "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(mod, forward, args, kwargs)

        fn_globals = fn.__globals__
        _tracing += 1
        try:
            traced, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            with _Patcher() as patcher:
                patcher.patch_method(Module, "__getattr__", module_getattr)
                patcher.patch_method(Module, "__call__", module_call)
                _patch_wrapped_functions(patcher)
                _autowrap_check(patcher, fn_globals, self._autowrap_function_ids)
                for module in self._autowrap_search:
                    _autowrap_check(patcher, module.__dict__, self._autowrap_function_ids)
                result = self.create_arg(traced(*args))
                said = _annotation(getattr(fn, "__annotations__", {}).get("return"), fn)
                self.create_node("output", "output", (result,), {}, None, said)
            self.submodule_paths = None
        finally:
            _tracing -= 1
        return self.graph

    def __deepcopy__(self, memo: dict) -> Tracer:
        import copy

        copied = Tracer.__new__(type(self))
        for k, v in self.__dict__.items():
            keep = k == "_autowrap_search" or isinstance(v, ModuleType)
            copied.__dict__[k] = copy.copy(v) if keep else copy.deepcopy(v, memo)
        return copied


def _annotation(said: Any, f: Callable) -> Any:
    """Returns an annotation as a value; None for text that cannot be evaluated, and for Any in our
    functions.
    """
    if said in (Any, "Any") and (f.__module__ or "").startswith(("facula.", "torch.")):
        return None
    if isinstance(said, str):
        try:
            return eval(said, getattr(f, "__globals__", {}))
        except Exception:
            return None
    return said


def _with_plain_parameters(f: Any, count: int) -> Callable:
    """Returns the function with its ``*args``, ``**kwargs`` and keyword-only parameters as plain ones."""
    code = f.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(co_argcount=count, co_kwonlyargcount=0, co_flags=flags)
    plain_function = FunctionType(plain, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    plain_function.__kwdefaults__ = None
    return plain_function


def _recorded_if_proxies(f: Callable) -> Callable:
    """Wraps ``f``: a call with proxies among its arguments becomes a node."""

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxies = _proxies((args, kwargs))
        if not proxies:
            return f(*args, **kwargs)
        result = proxies[0].tracer.create_proxy("call_function", f, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return wrapped


def _recorded_method(cls: type, name: str) -> Callable:
    f = getattr(cls, name)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxies = _proxies((args, kwargs))
        if not proxies:
            return f(*args, **kwargs)
        return proxies[0].tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), where in _wrapped_functions.items():
        f = where.get(name, getattr(builtins, name, None))
        if f is not None:
            patcher.patch(where, name, _recorded_if_proxies(f))
    for cls, name in _wrapped_methods:
        patcher.patch_method(cls, name, _recorded_method(cls, name))


def _autowrap_check(patcher: _Patcher, where: dict, function_ids: set[int]) -> None:
    """Replaces the functions among the names of a module whose calls with proxies become nodes."""
    if where is not None and patcher.visit_once(where):
        for name, value in list(where.items()):
            if not name.startswith("_") and callable(value) and id(value) in function_ids:
                patcher.patch(where, name, _recorded_if_proxies(value))


def wrap(fn_or_name: Any) -> Any:
    """Marks a function, or a name in the calling module: its calls in traced programs become nodes
    instead of being traced. To be called at the top level of a module; returns its argument, hence a
    decorator.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if name is None:
        raise AssertionError(f"fn_or_name must be a str or have __name__, got {fn_or_name}")
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    if caller is None:
        raise AssertionError("frame.f_back is None, cannot access calling frame")
    if caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_functions[id(caller.f_globals), name] = caller.f_globals
    return fn_or_name


def symbolic_trace(root: Module | Callable, concrete_args: Any = None) -> GraphModule:
    """Returns a module that computes the same as ``root``, a module or function, with its program as
    ``.graph``.

    The program consists of the calls of one run on proxies: control flow may depend on ``concrete_args``
    and on modules, not on values of tensors.

    >>> def power(x, n):
    ...     for _ in range(n):
    ...         x = x * x
    ...     return x
    >>> traced = facula.fx.symbolic_trace(power, concrete_args={"n": 2})
    >>> [n.name for n in traced.graph.nodes]
    ['x', 'n_1', 'eq', '_assert', 'mul', 'mul_1', 'output']
    >>> traced(facula.tensor(3.0), 2)
    tensor(81.)
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = root.__class__.__name__ if isinstance(root, Module) else getattr(root, "__name__", "function")
    return GraphModule(tracer.root, graph, name)
