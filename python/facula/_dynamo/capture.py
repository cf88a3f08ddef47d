"""``compile(backend=function)``: collects the calls of a program in graphs and passes them to the
backend.

A call of the compiled function runs its Python once, on this call's arguments. Functions of tensors are
not computed but recorded as nodes of a graph, and return tensors without elements. The graph is complete
when elements are needed (by ``if``, ``item()``, ``print``, ``backward()``), at a function that cannot be
recorded, when gradient modes change, and at the end. The backend then converts it to a function, which
runs on the real tensors, and the tensors that the program still holds become its results. So Python's
side effects happen once and in order. The backend is called once for equal graphs. After memory is shared
with NumPy, the rest of the call is computed directly.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from .. import _C
from ..autograd.function import leaving
from ..nn.parameter import Parameter
from ..overrides import TorchFunctionMode
from ..utils import swap_tensors
from ..utils._pytree import tree_leaves, tree_map

Tensor = _C.Tensor

# Attributes of tensors without elements, which are not recorded.
_FACTS = frozenset(
    """
    dim ndimension size stride numel nelement is_contiguous is_floating_point is_complex is_signed
    element_size storage_offset __len__ is_same_size is_tensor is_conj is_neg result_type broadcast_shapes
    is_inference dtype shape ndim layout itemsize nbytes requires_grad is_leaf is_sparse is_sparse_csr
    is_quantized is_nested is_mkldnn output_nr retains_grad name names
    """.split()
)
_VIEWS = frozenset("T mT H mH real imag".split())  # attributes that are tensors
# Functions without tensor arguments that can be recorded.
_FACTORIES = frozenset(
    """
    arange empty eye full linspace logspace ones rand randint randn randperm range tril_indices
    triu_indices zeros
    """.split()
)
# Functions that read elements, or that run nodes, which must happen once.
_READS = frozenset(
    "item tolist numpy backward grad __bool__ __float__ __int__ __index__ __array__ __repr__".split()
)
# Functions that share memory with objects that are not tensors and may be written unnoticed.
_SHARE = frozenset(
    "numpy __array__ __dlpack__ data_ptr storage untyped_storage from_numpy frombuffer from_dlpack".split()
)
_OPERATORS: dict[str, Callable] = {"__getitem__": operator.getitem, "__setitem__": operator.setitem}
_RESULTS = "a backend of compile must give a function whose results are those of the graph, as a tuple"


class _NotNoted(Exception):
    """Raised if a call has to be computed immediately."""


def _modes() -> tuple:
    """Returns the modes that a call depends on besides its arguments."""
    g = _C.default_generator
    return (
        _C.is_grad_enabled(),
        _C.is_inference_mode_enabled(),
        _C.autocast_state(),
        g.initial_seed(),
        g.offset,
    )


def _stand_in(t: Tensor) -> Tensor:
    """Returns a tensor with the same metadata, without elements."""
    if (
        type(t) not in (Tensor, Parameter)
        or t.layout is not _C.strided
        or not t.is_cpu
        or _C.batch_of(t) is not None
    ):
        raise _NotNoted
    stand_in = _C.functions.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    if t.requires_grad:
        stand_in.requires_grad_()
        if not t.is_leaf:
            with _C.GradMode(True):
                stand_in = stand_in.clone(memory_format=_C.preserve_format)
    return stand_in


def _on_meta(x: Any) -> Any:
    named = (
        isinstance(x, _C.device) and x.type == "cpu" or isinstance(x, str) and x.partition(":")[0] == "cpu"
    )
    return _C.device("meta") if named else x


def _is_meta(x: Any) -> bool:
    return str(x) == "meta" if isinstance(x, (str, _C.device)) else isinstance(x, Tensor) and x.is_meta


class _Segment:
    """The calls recorded since elements were last needed."""

    def __init__(self, names: dict[int, str]) -> None:
        from ..fx import Graph

        self.graph, self.names, self.modes = Graph(), names, _modes()
        self.generator = _C.default_generator.get_state()
        self.inputs: list[Tensor] = []
        self.nodes: dict[int, Any] = {}  # by the id of a tensor that the program holds
        # tensors that the program received; kept alive, so that their ids stay unique
        self.received: list[Tensor] = []
        self.stands: dict[int, Tensor] = {}  # the stand-in of an input
        self.owners: dict[int, Tensor] = {}  # the input of a stand-in
        self.last: Any = None  # the last placeholder

    def meta_of(self, x: Any) -> Any:
        """Returns an argument for the call without elements."""
        if not isinstance(x, Tensor):
            return _on_meta(x)
        if id(x) in self.nodes:
            return self.stands.get(id(x), x)
        stand = _stand_in(x)
        first = self.graph._root.next if self.last is None else self.last.next
        with self.graph.inserting_before(first):
            name = self.names.get(id(x), f"L_tensor_{len(self.inputs)}_")
            self.last = self.graph.create_node("placeholder", name, type_expr=type(x))
        self.inputs.append(x)
        self.stands[id(x)], self.owners[id(stand)] = stand, x
        self.nodes[id(x)] = self.last
        return stand

    def node_of(self, x: Any) -> Any:
        return self.nodes[id(x)] if isinstance(x, Tensor) else x

    def result(self, value: Any, node: Any) -> Any:
        """Returns the program's value for a result of a recorded call."""
        if isinstance(value, Tensor):
            mine = self.owners.get(id(value), value)
            if id(mine) not in self.nodes:
                self.received.append(mine)
            self.nodes[id(mine)] = node
            return mine
        if isinstance(value, (tuple, list)):
            items = []
            for k, v in enumerate(value):
                one = self.graph.call_function(operator.getitem, (node, k)) if _has_tensors(v) else None
                items.append(self.result(v, one))
            return type(value)(items)
        return value

    def living(self) -> list[tuple[Tensor, Any]]:
        """Returns the results that the program still holds, and their nodes."""
        living = []
        while self.received:
            t = self.received.pop()
            if sys.getrefcount(t) > 2:  # more references than this variable and the call's
                living.append((t, self.nodes[id(t)]))
        return living[::-1]


def _has_tensors(x: Any) -> bool:
    return any(isinstance(t, Tensor) for t in tree_leaves(x))


def _called(func: Callable, args: tuple) -> tuple[str, Any]:
    """Returns the kind and target of a call's node."""
    name = getattr(func, "__name__", "")
    if name in _OPERATORS:
        return "call_function", _OPERATORS[name]
    methods = (types.MethodDescriptorType, types.WrapperDescriptorType)
    of_tensor = isinstance(func, methods) or vars(Tensor).get(name) is func
    return (
        ("call_method", name)
        if of_tensor and args and isinstance(args[0], Tensor)
        else ("call_function", func)
    )


class Capture(TorchFunctionMode):
    """Records the operator calls during one call of a compiled function."""

    def __init__(self, compiled: Compiled, names: dict[int, str]) -> None:
        self.compiled, self.names = compiled, names
        self.segment = _Segment(names)
        self.met_meta = False  # whether the program used the device meta itself
        self.over = False  # whether recording has ended

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        self.over = self.over or name in _SHARE or any(hasattr(a, "__array_interface__") for a in args)
        # inside of a level, tensors have other meanings
        if self.over or _C.forward_level() or _C.vmap_level():
            self.flush()
            return func(*args, **kwargs)
        if name in ("__get__", "__set__"):
            return self._attribute(func, name, args, kwargs)
        if self.segment.modes != _modes():
            self.flush()
        try:
            if name in _FACTS:
                return func(*tree_map(self._fact_of, args), **tree_map(self._fact_of, kwargs))
            return self._note(func, name, args, kwargs)
        except _NotNoted:
            self.flush()
            self.met_meta |= any(_is_meta(x) for x in tree_leaves((args, kwargs)))
            return func(*args, **kwargs)

    def _fact_of(self, x: Any) -> Any:
        return self.segment.stands.get(id(x), x) if isinstance(x, Tensor) else x

    def _attribute(self, func: Any, kind: str, args: tuple, kwargs: dict) -> Any:
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if kind == "__get__" and args and self._is_deferred(args[0]):
            if attribute == "device":
                return _C.device("cpu")
            if attribute in ("is_meta", "is_cpu", "is_cuda"):
                return attribute == "is_cpu"
        if kind == "__get__" and attribute in _FACTS:
            return func(*map(self._fact_of, args), **kwargs)
        if kind == "__get__" and attribute in _VIEWS:
            if self.segment.modes != _modes():
                self.flush()
            try:
                return self._note(getattr, attribute, (args[0], attribute), {})
            except _NotNoted:
                pass
        elif kind == "__get__" and attribute in ("device", "is_meta", "is_cpu", "is_cuda"):
            return func(*args, **kwargs)
        self.flush()
        return func(*args, **kwargs)

    def _is_deferred(self, x: Any) -> bool:
        return id(x) in self.segment.nodes and id(x) not in self.segment.stands

    def _note(self, func: Callable, name: str, args: tuple, kwargs: dict) -> Any:
        segment = self.segment
        if name in _READS or not _has_tensors((args, kwargs)) and name not in _FACTORIES:
            raise _NotNoted
        if any(type(x) is _C.Generator for x in tree_leaves((args, kwargs))):
            raise _NotNoted
        meta_args, meta_kwargs = tree_map(segment.meta_of, (args, kwargs))
        if name in _FACTORIES and not _has_tensors((args, kwargs)):
            if _on_meta(kwargs.get("device") or "cpu") is kwargs.get("device"):
                raise _NotNoted
            meta_kwargs["device"] = "meta"
        try:
            value = meta_args[0] if name == "cpu" else func(*meta_args, **meta_kwargs)
        except Exception:  # needs elements, or is an error: the real call will tell
            raise _NotNoted from None
        if not _has_tensors(value) and not (value is None and name in ("__setitem__",)):
            raise _NotNoted
        for t in tree_leaves(value):
            if (
                isinstance(t, Tensor)
                and (type(t) is not Tensor or not t.is_meta)
                and id(t) not in segment.owners
            ):
                raise _NotNoted
        node_args, node_kwargs = tree_map(segment.node_of, (args, kwargs))
        kind, target = _called(func, args)
        node = segment.graph.create_node(kind, target, tuple(node_args), node_kwargs)
        return segment.result(value, node)

    def flush(self) -> None:
        """Runs the recorded calls; the tensors that the program holds get their elements."""
        segment, self.segment = self.segment, _Segment(self.names)
        noted = any(n.op != "placeholder" for n in segment.graph.nodes)
        living = segment.living()
        if not noted:
            return
        segment.graph.output(tuple(node for _, node in living))
        with _C.DisableTorchFunction():
            results = self.compiled.run(segment)
            if len(results) != len(living):
                raise RuntimeError(f"{_RESULTS}: {len(living)} of them, got {len(results)}")
            for (t, _), real in zip(living, results):
                if not isinstance(real, Tensor):
                    raise RuntimeError(f"{_RESULTS}: expected a Tensor, got {type(real).__name__}")
                swap_tensors(t, real)
        self.segment = _Segment(self.names)


class Compiled:
    """A function whose graphs a backend compiles."""

    def __init__(self, f: Callable, backend: Callable, name: str, options: dict | None) -> None:
        self.f, self.backend, self.name, self.options = f, backend, name, options
        self.compiled_graphs: dict[Any, Callable] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _capturing or _C.is_tracing() or _C.vmap_level() or _C.forward_level():
            # inside of another compiled function, its calls are recorded there
            return self.f(*args, **kwargs)
        capture = Capture(self, self._names(args, kwargs))
        _capturing.append(capture)
        leaving.append(capture.flush)
        try:
            with capture:
                result = self.f(*args, **kwargs)
        except BaseException:
            self._abandon(capture)
            raise
        finally:
            _capturing.pop()
            leaving.pop()
        capture.flush()
        for t in tree_leaves(result):
            if isinstance(t, Tensor) and t.is_meta and not capture.met_meta:
                raise RuntimeError(
                    "compile: the function made a tensor of others before they had elements, unseen"
                )
        return result

    @staticmethod
    def _abandon(capture: Capture) -> None:
        """Runs the recorded calls after an error, as the program would have; the caller sees the error
        itself.
        """
        import contextlib

        with contextlib.suppress(Exception):
            capture.flush()

    def _names(self, args: tuple, kwargs: dict) -> dict[int, str]:
        """Returns the names of tensors in graphs: the path of parameters and buffers, the name of
        arguments.
        """
        import inspect

        names: dict[int, str] = {}
        owner = getattr(self.f, "__self__", self.f)
        if hasattr(owner, "named_parameters"):
            for kind in ("parameters", "buffers"):
                for path, t in getattr(owner, "named_" + kind)():
                    *modules, last = path.split(".")
                    inner = "".join(f"modules_{m}_" for m in modules)
                    names[id(t)] = f"L_self_{inner}{kind}_{last}_"
        f = getattr(owner, "forward", self.f)
        try:
            arguments = inspect.signature(f).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):
            arguments = {f"args_{k}": a for k, a in enumerate(args)} | kwargs
        for name, value in arguments.items():
            leaves = [t for t in tree_leaves(value) if isinstance(t, Tensor)]
            for k, t in enumerate(leaves):
                names.setdefault(id(t), f"L_{name}_" if value is t else f"L_{name}_{k}_")
        return names

    def run(self, segment: _Segment) -> tuple:
        grad, inference, autocast, seed, offset = segment.modes
        g = _C.default_generator
        moved = (g.initial_seed(), g.offset) != (seed, offset)
        after = g.get_state() if moved else None
        outer = _modes()
        if moved:
            g.set_state(segment.generator)
        if inference != outer[1]:
            raise RuntimeError("compile: the calls that a backend gets cannot leave an inference mode")
        _C.set_grad_enabled(grad)
        _C.set_autocast(*autocast)
        try:
            outputs = self._compiled(segment)(*segment.inputs)
        finally:
            _C.set_grad_enabled(outer[0])
            _C.set_autocast(*outer[2])
            if after is not None:
                g.set_state(after)
        return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)

    def _compiled(self, segment: _Segment) -> Callable:
        from ..fx import GraphModule

        nodes = [(n.op, n.target, repr((n.args, n.kwargs))) for n in segment.graph.nodes]
        metadata = [(type(t), t.dtype, tuple(t.shape), t.stride(), t.requires_grad) for t in segment.inputs]
        key = tuple(nodes), tuple(metadata), segment.modes[:3]
        if key not in self.compiled_graphs:
            module = GraphModule({}, segment.graph)
            options = {} if self.options is None else {"options": self.options}
            compiled = self.backend(module, list(segment.inputs), **options)
            if not callable(compiled):
                raise TypeError(f"compile: the backend {self.name} gave {compiled!r}, which is no function")
            self.compiled_graphs[key] = compiled
        return self.compiled_graphs[key]


_capturing: list[Capture] = []
