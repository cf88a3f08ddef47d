"""Observers in an annotated graph."""

from __future__ import annotations

import dataclasses
from typing import Any

from .... import _C
from ....fx import GraphModule, Node
from ..fake_quantize import FixedQParamsFakeQuantize
from ..observer import FixedQParamsObserver, ObserverBase, _PartialWrapper
from ..quantize import is_activation_post_process
from ..quantizer.quantizer import (
    Q_ANNOTATION_KEY,
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
    SharedQuantizationSpec,
)
from .export_utils import PreparedGraphModule

__all__ = ["DerivedObserver", "prepare"]

_FIELDS = ("dtype", "is_dynamic", "quant_min", "quant_max", "qscheme", "ch_axis", "scale", "zero_point")


class DerivedObserver(ObserverBase):
    """Computes scale and zero point from other observers, by the function of a DerivedQuantizationSpec."""

    def __init__(self, spec: DerivedQuantizationSpec, observers: list[Any]) -> None:
        super().__init__(spec.dtype)
        self.quant_min, self.quant_max = spec.quant_min, spec.quant_max
        self.qscheme, self.ch_axis = spec.qscheme, spec.ch_axis
        self.obs_or_fqs, self.derive_qparams_fn = observers, spec.derive_qparams_fn

    def calculate_qparams(self, **options: Any) -> Any:
        return self.derive_qparams_fn(self.obs_or_fqs)


def module_of(model: GraphModule, node: Any) -> Any:
    """Returns the module that a node calls, or None."""
    is_call = isinstance(node, Node) and node.op == "call_module"
    return model.get_submodule(str(node.target)) if is_call else None


def is_observer(model: GraphModule, node: Any) -> bool:
    """Returns whether a node is the call of an observer or of fake quantisation."""
    module = module_of(model, node)
    return module is not None and is_activation_post_process(module)


class _Groups:
    """The values and edges that share an observer, as disjoint sets with a representative each."""

    def __init__(self, specs: dict[EdgeOrNode, Any]) -> None:
        self.specs = specs
        self.parent: dict[EdgeOrNode, EdgeOrNode] = {k: k for k in specs}
        for key, spec in specs.items():
            if not isinstance(key, Node):
                self._share_implicitly(key, self._root_spec(spec))
            if isinstance(spec, SharedQuantizationSpec):
                self._unite(spec.edge_or_node, key)

    def root(self, key: EdgeOrNode) -> EdgeOrNode:
        if key not in self.parent:
            raise AssertionError(
                f"a SharedQuantizationSpec refers to {key}, which is not annotated itself\n"
                "  hint: it may refer to a node with an output_qspec, or to an edge (input, node) in the "
                "node's input_qspec_map"
            )
        while self.parent[key] != key:
            self.parent[key] = self.parent[self.parent[key]]
            key = self.parent[key]
        return key

    def _root_spec(self, spec: Any) -> Any:
        seen = set()
        while isinstance(spec, SharedQuantizationSpec):
            root = self.root(spec.edge_or_node)
            if root in seen:
                raise AssertionError(f"SharedQuantizationSpecs refer to each other in a circle: {root}")
            seen.add(root)
            spec = self.specs[root]
        return spec

    def _unite(self, parent: EdgeOrNode, child: EdgeOrNode) -> None:
        """Lets ``child`` have the observer of ``parent``."""
        root_parent, root_child = self.root(parent), self.root(child)
        spec = self.specs[root_parent]
        if isinstance(spec, SharedQuantizationSpec) and self.root(spec.edge_or_node) == root_child:
            self.parent[root_parent] = root_child  # the parent's own observer is the child's
        else:
            self.parent[root_child] = root_parent

    def _share_implicitly(self, edge: tuple[Node, Node], spec: Any) -> None:
        """Unites an edge with other edges of the same value, and with the value, if they are quantised
        alike.
        """
        source, user = edge
        if not user.meta[Q_ANNOTATION_KEY].allow_implicit_sharing:
            return
        for other in [*((source, u) for u in source.users if u is not user), source]:
            if other not in self.specs:
                continue
            theirs = self._root_spec(self.specs[other])
            if theirs is not None and spec is not None and _alike(theirs, spec):
                self._unite(other, edge)


def _alike(a: Any, b: Any) -> bool:
    missing = object()
    return all(getattr(a, f, missing) == getattr(b, f, missing) for f in _FIELDS)


def _annotated(model: GraphModule) -> dict[EdgeOrNode, Any]:
    specs: dict[EdgeOrNode, Any] = {}
    for n in model.graph.nodes:
        annotation = n.meta.get(Q_ANNOTATION_KEY)
        if annotation is None:
            continue
        for source, spec in annotation.input_qspec_map.items():
            specs[source, n] = spec
        if annotation.output_qspec is not None:
            specs[n] = annotation.output_qspec
    return specs


def _observer_for(spec: Any, observers: dict[EdgeOrNode, Any], is_qat: bool) -> Any:
    if spec is None:
        return None
    if isinstance(spec, SharedQuantizationSpec):
        if spec.edge_or_node not in observers:
            raise AssertionError(
                f"a SharedQuantizationSpec refers to {spec.edge_or_node}, which has no observer"
            )
        return observers[spec.edge_or_node]
    if isinstance(spec, DerivedQuantizationSpec):
        missing = [k for k in spec.derived_from if observers.get(k) is None]
        if missing:
            raise AssertionError(f"a DerivedQuantizationSpec refers to {missing[0]}, which has no observer")
        return DerivedObserver(spec, [observers[k] for k in spec.derived_from])
    fields = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    fields = {k: v for k, v in fields.items() if v is not None}
    if isinstance(spec, FixedQParamsQuantizationSpec):
        constructor = FixedQParamsObserver.with_args(**fields)
        return FixedQParamsFakeQuantize(observer=constructor) if is_qat else constructor()
    if not isinstance(spec, QuantizationSpec):
        raise TypeError(f"expected a QuantizationSpec, got {type(spec).__name__}")
    constructor = fields.pop("observer_or_fake_quant_ctr")
    kind = constructor.p.func if isinstance(constructor, _PartialWrapper) else constructor
    if "PerChannel" not in kind.__name__:
        fields.pop("ch_axis", None)
    return constructor.with_args(**fields)()


class _Insertion:
    """Inserts observers for annotated edges and values."""

    def __init__(self, model: GraphModule, observers: dict[EdgeOrNode, Any]) -> None:
        self.model, self.observers = model, observers
        self.paths: dict[int, str] = {}
        self.count = 0

    def observe(self, n: Node, observer: Any) -> Node:
        """Inserts the call of an observer behind a node."""
        path = f"activation_post_process_{self.count}"
        self.count += 1
        observer.observed = n.name
        setattr(self.model, path, observer)
        with self.model.graph.inserting_after(n):
            call = self.model.graph.call_module(path, (n,))
        call.meta = {k: v for k, v in n.meta.items() if k != Q_ANNOTATION_KEY}
        return call

    def inputs(self, node: Node) -> None:
        def load(a: Any) -> Any:
            if isinstance(a, (list, tuple)):
                return type(a)(load(x) for x in a)
            return self._observed(a, node) if isinstance(a, Node) else a

        node.args = tuple(load(a) for a in node.args)
        hidden = [k for k, a in node.kwargs.items() if isinstance(a, Node) and (a, node) in self.observers]
        if hidden:
            raise AssertionError(f"{node}: the keyword argument {hidden[0]} cannot be annotated")

    def _observed(self, a: Node, node: Node) -> Node:
        original = a
        while is_observer(self.model, original):
            original = original.args[0]
        observer = self.observers.get((original, node))
        if observer is None or self.observers.get(original) is observer:
            return a
        for user in a.users:
            if module_of(self.model, user) is observer:
                return user
        return self.observe(a, observer)

    def output(self, node: Node) -> None:
        observer = self.observers.get(node)
        if observer is None or not isinstance(node.meta.get("val"), _C.Tensor):
            return
        users = list(node.users)
        call = self.observe(node, observer)
        for user in users:
            user.replace_input_with(node, call)


def prepare(model: GraphModule, is_qat: bool, callback: Any = None) -> GraphModule:
    """Returns a graph with the observers that the annotations ask for."""
    nodes = list(model.graph.nodes)
    specs = _annotated(model)
    groups = _Groups(specs)
    by_group: dict[EdgeOrNode, Any] = {}
    observers: dict[EdgeOrNode, Any] = {}
    for key, spec in specs.items():
        root = groups.root(key)
        if root not in by_group:
            by_group[root] = _observer_for(spec, observers, is_qat)
        observers[key] = by_group[root]
    if callback is not None:
        callback(model, observers)
    insertion = _Insertion(model, observers)
    for node in nodes:
        if Q_ANNOTATION_KEY in node.meta:
            insertion.inputs(node)
            insertion.output(node)
    model.graph.lint()
    return PreparedGraphModule.of(model)
