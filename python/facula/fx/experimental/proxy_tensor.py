"""``make_fx``: records the operators that one run of a function computes as a graph.

>>> def f(x, w):
...     return facula.nn.functional.linear(x, w).relu()
>>> print(make_fx(f)(facula.ones(2, 3), facula.ones(4, 3)).code.strip())
def forward(self, x_1, w_1):
    t = facula.ops.aten.t.default(w_1);  w_1 = None
    mm = facula.ops.aten.mm.default(x_1, t);  x_1 = t = None
    relu = facula.ops.aten.relu.default(mm);  mm = None
    return relu
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from ... import _C
from ..._ops import OpOverload
from ...nn.modules.module import Module
from ...overrides import TorchFunctionMode
from ...utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from ...utils._pytree import tree_leaves, tree_map, tree_structure
from ..graph import Graph, _PyTreeCodeGen, _PyTreeInfo
from ..graph_module import GraphModule

__all__ = ["get_isolated_graphmodule", "make_fx"]

Tensor = _C.Tensor
_READS = frozenset("item tolist numpy __bool__ __float__ __int__ __index__ __array__".split())


class _Reads(TorchFunctionMode):
    """Refuses to read elements of tensors that depend on the inputs, because they would become constants."""

    def __init__(self, calls: _Calls) -> None:
        self.calls = calls

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS and args and self.calls.depends(args[0]):
            raise RuntimeError(
                f"It appears that you're trying to get value out of a tracing tensor with {name} - erroring "
                "out! It's likely that this is caused by data-dependent control flow or similar."
            )
        return func(*args, **(kwargs or {}))


class _Calls(TorchDispatchMode):
    """Records the calls of operators."""

    def __init__(self, decompositions: dict[Any, Callable]) -> None:
        super().__init__()
        self.graph, self.root, self.decompositions = Graph(), Module(), decompositions
        self.nodes: dict[int, Any] = {}
        self.alive: list[Tensor] = []  # keeps the tensors alive, so that their ids stay unique
        self.inputs: set[Any] = set()
        self.fixed: set[Any] = set()  # nodes that do not depend on inputs

    def depends(self, t: Any) -> bool:
        node = self.nodes.get(id(t))
        return node is not None and node not in self.fixed

    def bind(self, t: Tensor, node: Any) -> None:
        self.nodes[id(t)] = node
        self.alive.append(t)

    def input(self, t: Tensor, name: str) -> None:
        self.bind(t, self.graph.placeholder(name))

    def node_of(self, x: Any) -> Any:
        """Returns an argument's node; a tensor from elsewhere becomes an attribute of the root."""
        if not isinstance(x, Tensor):
            return x
        if id(x) not in self.nodes:
            kind = (
                "_param_constant"
                if getattr(x, "_is_param", False) or type(x) is not Tensor
                else "_tensor_constant"
            )
            number = 0
            while hasattr(self.root, f"{kind}{number}"):
                number += 1
            if kind == "_param_constant":
                setattr(self.root, f"{kind}{number}", x)
            else:
                self.root.register_buffer(f"{kind}{number}", x)
            self.bind(x, self.graph.get_attr(f"{kind}{number}"))
            self.fixed.add(self.nodes[id(x)])
        return self.nodes[id(x)]

    def result(self, value: Any, node: Any) -> None:
        if isinstance(value, Tensor):
            self.bind(value, node)
        elif isinstance(value, (tuple, list)):
            for k, v in enumerate(value):
                if any(isinstance(t, Tensor) for t in tree_leaves(v)):
                    item = self.graph.call_function(operator.getitem, (node, k))
                    if node in self.fixed:
                        self.fixed.add(item)
                    self.result(v, item)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        decomposed = self.decompositions.get(func)
        if decomposed is not None:
            with self:
                result = decomposed(*args, **kwargs)
            if result is not NotImplemented:
                return result
        node_args, node_kwargs = tree_map(self.node_of, (args, kwargs))
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        fixed = not any(self.depends(t) for t in operands)
        value = func(*args, **kwargs)
        node = self.graph.call_function(func, tuple(node_args), node_kwargs)
        if fixed:
            self.fixed.add(node)
        self.result(value, node)
        return value


def get_proxy_mode() -> Any:
    """The mode in which ``make_fx`` runs a function, or None."""
    return next((m for m in _get_current_dispatch_mode_stack() if isinstance(m, _Calls)), None)


def _names(f: Callable, args: tuple) -> list[str]:
    """Returns a name for each positional argument."""
    target = f.forward if isinstance(f, Module) else f
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if isinstance(f, Module) or len(plain) < len(args):
        plain = [f"arg{k}" for k in range(len(args))]
    return plain[: len(args)]


def make_fx(
    f: Callable,
    decomposition_table: dict[Any, Callable] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    _allow_fake_constant: bool = False,
    _error_on_data_dependent_ops: bool = True,
    **options: Any,
) -> Callable[..., GraphModule]:
    """Returns a function that runs ``f`` once and returns its graph of operators of ``facula.ops``,
    including those of the gradients that ``f`` computes. Sizes and numbers are constants of the graph;
    elements of tensors cannot be read.

    ``decomposition_table`` maps operators to functions that are recorded in their place. With
    ``tracing_mode="fake"``, writes of ``f`` to its arguments go to copies.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertionError(f"Unexpected tracing mode: {tracing_mode}")
    if tracing_mode == "symbolic":
        raise NotImplementedError(
            "make_fx: graphs have fixed sizes; tracing_mode='symbolic' is not supported"
        )
    if pre_dispatch:
        raise NotImplementedError(
            "make_fx: graphs are of what is computed below autograd; pre_dispatch is not supported"
        )

    def traced(*args: Any) -> GraphModule:
        calls = _Calls(dict(decomposition_table or {}))
        traced_args: list[Any] = []
        names = _names(f, args)
        for name, value in zip(names, args, strict=True):
            if value is None or isinstance(value, (int, float, complex, bool, str)):
                raise NotImplementedError(
                    f"make_fx: the argument {name} is {value!r}: expected tensors, or containers of them"
                )
            traced_args.append(value if tracing_mode == "real" else tree_map(_copy, value))
            for k, x in enumerate(filter(_is_tensor, tree_leaves(traced_args[-1])), 1):
                calls.input(x, f"{name}_{k}")
        with _Reads(calls), calls:
            result = f(*traced_args)
        nodes = tree_map(calls.node_of, result)
        if any(not isinstance(x, Tensor) for x in args):  # containers, which the graph flattens
            calls.graph._codegen = _PyTreeCodeGen(
                _PyTreeInfo(names, tree_structure(traced_args), tree_structure(result))
            )
            nodes = tree_leaves(nodes)
        calls.graph.output(nodes)
        return GraphModule(calls.root, calls.graph, getattr(f, "__name__", type(f).__name__))

    return traced


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _copy(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if _is_tensor(x) else x


def get_isolated_graphmodule(
    func: Callable, args: tuple, kwargs: dict[str, Any], tracing_mode: str = "real", **options: Any
) -> GraphModule:
    """Returns the graph of a call, whose inputs are the call's tensors in order."""
    leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]

    def wrapped(*tensors: Tensor) -> Any:
        it = iter(tensors)
        a, k = tree_map(lambda x: next(it) if isinstance(x, Tensor) else x, (args, kwargs))
        return func(*a, **k)

    return make_fx(wrapped, tracing_mode=tracing_mode)(*leaves)
