"""Containers as trees: flattening into leaves, and rebuilding containers from other leaves."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from .._C import Size


class NodeDef(NamedTuple):
    """Flattens a container, ``x -> (items, context)``, and rebuilds it, ``(items, context) -> x``;
    ``flatten_with_keys_fn`` returns its items with keys.
    """

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


# ---- keys of paths


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A position in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """An attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


def keystr(kp: Iterable[Any]) -> str:
    """Returns a path in Python's notation."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """Returns the value at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# ---- kinds of containers


def is_namedtuple_class(cls: Any) -> bool:
    """Returns whether ``cls`` is a class as ``namedtuple`` creates."""
    fields = getattr(cls, "_fields", None)
    is_tuple = isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple)
    return is_tuple and all(isinstance(f, str) for f in fields or ())


def is_namedtuple(obj: Any) -> bool:
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Returns whether ``cls`` is a class of results with named fields."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


def is_structseq(obj: Any) -> bool:
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    return is_structseq_class(type(obj))


PyTree = Any
Context = Any
FlattenFunc = Callable[[Any], tuple[list[Any], Context]]
UnflattenFunc = Callable[[Iterable[Any], Context], Any]
FlattenWithKeysFunc = Callable[[Any], tuple[list[tuple[Any, Any]], Context]]
KeyPath = tuple[Any, ...]


def _list_flatten(d: list[Any]) -> tuple[list[Any], Context]:
    return d, None


def _list_unflatten(values: Iterable[Any], context: Context) -> list[Any]:
    return list(values)


def _tuple_flatten(d: tuple[Any, ...]) -> tuple[list[Any], Context]:
    return list(d), None


def _tuple_unflatten(values: Iterable[Any], context: Context) -> tuple[Any, ...]:
    return tuple(values)


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Context]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Context) -> Any:
    return context(*values)


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _ordereddict_flatten(d: OrderedDict[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _ordereddict_unflatten(values: Iterable[Any], context: Context) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(d: defaultdict[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), [d.default_factory, list(d)]


def _defaultdict_unflatten(values: Iterable[Any], context: Context) -> defaultdict[Any, Any]:
    default_factory, keys = context
    return defaultdict(default_factory, zip(keys, values, strict=True))


def _deque_flatten(d: deque[Any]) -> tuple[list[Any], Context]:
    return list(d), d.maxlen


def _deque_unflatten(values: Iterable[Any], context: Context) -> deque[Any]:
    return deque(values, maxlen=context)


def _size_flatten(d: Size) -> tuple[list[Any], Context]:
    return list(d), None


def _sequence_keys(flatten: FlattenFunc) -> FlattenWithKeysFunc:
    def with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Context]:
        values, context = flatten(d)
        return [(SequenceKey(k), v) for k, v in enumerate(values)], context

    return with_keys


def _mapping_keys(flatten: FlattenFunc) -> FlattenWithKeysFunc:
    def with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Context]:
        values, context = flatten(d)
        return [(MappingKey(k), v) for k, v in zip(d, values, strict=True)], context

    return with_keys


def _namedtuple_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Context]:
    return [(GetAttrKey(n), getattr(d, n)) for n in d._fields], type(d)


_list_flatten_with_keys = _sequence_keys(_list_flatten)
_tuple_flatten_with_keys = _sequence_keys(_tuple_flatten)
_deque_flatten_with_keys = _sequence_keys(_deque_flatten)
_dict_flatten_with_keys = _mapping_keys(_dict_flatten)
_ordereddict_flatten_with_keys = _mapping_keys(_ordereddict_flatten)
_defaultdict_flatten_with_keys = _mapping_keys(_defaultdict_flatten)

SUPPORTED_NODES: dict[Any, NodeDef] = {
    node.type: node
    for node in (
        NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
        NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
        NodeDef(namedtuple, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys),
        NodeDef(OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys),
        NodeDef(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
        NodeDef(deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
    )
}
_MAPPINGS = (dict, OrderedDict, defaultdict)
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
# The leaves of a Size need not remain numbers: it becomes a tuple, as in PyTorch.
SUPPORTED_NODES[Size] = NodeDef(Size, _size_flatten, _tuple_unflatten, _sequence_keys(_size_flatten))


def register_pytree_node(
    cls: Any,
    flatten_fn: Callable,
    unflatten_fn: Callable,
    *,
    flatten_with_keys_fn: Callable | None = None,
    **names: Any,
) -> None:
    """Registers a class as a container of trees. ``names``, which PyTorch uses for saved programs, are
    accepted and ignored.

    Raises ValueError if the class is registered already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node. ")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: Any,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Registers a dataclass as a container of its fields; fields that are None are not leaves."""
    if field_names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError(
                f"field_names must be specified with a list of all fields used to initialize {cls}, as it "
                "is not a dataclass."
            )
        field_names = [f.name for f in dataclasses.fields(cls) if f.init]
    names = [n for n in field_names if n not in (drop_field_names or ())]

    def parts(x: Any) -> tuple[list[Any], Any]:
        there = [n for n in names if getattr(x, n) is not None]
        absent = [n for n in names if getattr(x, n) is None]
        return [getattr(x, n) for n in there], [there, absent]

    def with_keys(x: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = parts(x)
        return [(GetAttrKey(n), v) for n, v in zip(context[0], values)], context

    def make(values: Any, context: Any) -> Any:
        return cls(**dict(zip(context[0], values)), **dict.fromkeys(context[1]))

    register_pytree_node(cls, parts, make, flatten_with_keys_fn=with_keys)


def _get_node_type(tree: Any) -> Any:
    """The key of a container in SUPPORTED_NODES: ``namedtuple`` for every class of named tuples."""
    return namedtuple if is_namedtuple_class(type(tree)) else type(tree)


def _node_type(x: Any) -> Any:
    """The type by which a container is taken apart; None for a leaf."""
    kind = type(x)
    if kind in SUPPORTED_NODES or is_structseq_class(kind):
        return kind
    return namedtuple if is_namedtuple_class(kind) else None


def _taken_apart(x: Any, kind: Any) -> tuple[list[Any], Any]:
    if kind not in SUPPORTED_NODES:  # a result with names
        return list(x), None
    items, context = SUPPORTED_NODES[kind].flatten_fn(x)
    return list(items), context


def _rebuilt(kind: Any, items: list[Any], context: Any) -> Any:
    return SUPPORTED_NODES[kind].unflatten_fn(items, context) if kind in SUPPORTED_NODES else kind(items)


def _keys(x: Any, kind: Any, count: int) -> list[Any]:
    """The keys of a container's items."""
    if kind not in SUPPORTED_NODES:
        return [SequenceKey(k) for k in range(count)]
    with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. ")
    return [k for k, _ in with_keys(x)[0]]


def _children(x: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """Returns a container's items and a function that rebuilds it from others; None for a leaf."""
    kind = _node_type(x)
    if kind is None:
        return None
    items, context = _taken_apart(x, kind)
    return items, lambda others: _rebuilt(kind, others, context)


# ---- structures


class TreeSpec:
    """The structure of a tree: a container's type, context and items; a leaf's type is None.

    >>> from facula.utils._pytree import tree_structure
    >>> tree_structure({"a": [1, 2]})
    TreeSpec(dict, ['a'], [TreeSpec(list, None, [*,
        *])])
    """

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self._context, self._children = type, context, list(children_specs)
        self.num_children = len(self._children)
        self.num_nodes = 1 + sum(c.num_nodes for c in self._children)
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in self._children)

    @property
    def context(self) -> Any:
        return self._context

    @property
    def children_specs(self) -> list[TreeSpec]:
        return self._children

    def children(self) -> list[TreeSpec]:
        """The structures of the items."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        return self._children[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Returns a tree of this structure with these leaves."""
        leaf_list = list(leaves)
        if len(leaf_list) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaf_list)} but the spec refers to a "
                f"pytree that holds {self.num_leaves} items ({self})."
            )
        rest = iter(leaf_list)
        return self._filled(rest)

    def _filled(self, rest: Iterator[Any]) -> Any:
        if self.type is None:
            return next(rest)
        return _rebuilt(self.type, [c._filled(rest) for c in self._children], self._context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Returns the subtrees at the positions of this structure's leaves."""
        if self.type is None:
            return [tree]
        kind = _node_type(tree)
        if kind is not self.type and not (kind in _MAPPINGS and self.type in _MAPPINGS):
            shown = kind if kind is not None else type(tree)
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {shown!r}.")
        items, _ = _taken_apart(tree, kind)
        if len(items) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(items)}.")
        if kind in _MAPPINGS:
            keys = self._context[1] if self.type is defaultdict else self._context
            if set(keys) != set(tree):
                raise ValueError(f"Node keys mismatch; expected {list(keys)}, but got {list(tree)}.")
            items = [tree[k] for k in keys]
        return [leaf for item, c in zip(items, self._children) for leaf in c.flatten_up_to(item)]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.type is other.type
            and self._context == other._context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        return hash((self.type, str(self._context), self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        if self.type is None:
            return "*"
        items = f",\n{' ' * (indent + 2)}".join(c._text(indent + 2) for c in self._children)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{items}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """Returns the structure of a tree."""
    kind = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if kind is None:
        return _LEAF
    items, context = _taken_apart(tree, kind)
    return TreeSpec(kind, context, [tree_structure(i, is_leaf) for i in items])


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Returns the leaves and the structure, which ``tree_unflatten`` takes."""
    return tree_leaves(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Returns a tree of this structure with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Iterates over the leaves from left to right."""
    children = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if children is None:
        yield tree
    else:
        for item in children[0]:
            yield from tree_iter(item, is_leaf)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Returns the leaves from left to right."""
    if is_leaf is not None:
        return list(tree_iter(tree, is_leaf))
    children = _children(tree)
    return [tree] if children is None else [leaf for item in children[0] for leaf in tree_leaves(item)]


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _node_type(tree) is None


def tree_map(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies ``func`` to each leaf, or to the corresponding leaves of several trees.

    >>> from facula.utils._pytree import tree_map
    >>> tree_map(lambda x: x + 1, {"a": [1, 2], "b": (3,)})
    {'a': [2, 3], 'b': (4,)}
    """
    if rests:
        leaves, spec = tree_flatten(tree, is_leaf)
        return spec.unflatten(map(func, leaves, *(spec.flatten_up_to(r) for r in rests)))
    children = None if is_leaf is not None and is_leaf(tree) else _children(tree)
    if children is None:
        return func(tree)
    return children[1]([tree_map(func, item, is_leaf=is_leaf) for item in children[0]])


def tree_map_(func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Calls ``func`` on the leaves and returns the tree unchanged."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for corresponding in zip(leaves, *(spec.flatten_up_to(r) for r in rests)):
        func(*corresponding)
    return tree


def _is(kind: Any) -> Callable[[Any], bool]:
    """Converts a type, a tuple of types or a predicate to a predicate."""
    if isinstance(kind, (type, tuple)) or not callable(kind):
        return lambda x: isinstance(x, kind)
    return kind


def tree_map_only(kind: Any, func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies ``func`` to the leaves of a type; others are unchanged."""
    wanted = _is(kind)
    return tree_map(lambda x: func(x) if wanted(x) else x, tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Calls ``func`` on the leaves of a type and returns the tree unchanged."""
    wanted = _is(kind)
    return tree_map_(lambda x: func(x) if wanted(x) else x, tree, is_leaf=is_leaf)


def tree_any(pred: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Returns whether the condition holds for any leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all(pred: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Returns whether the condition holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any_only(kind: Any, pred: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Returns whether the condition holds for any leaf of a type."""
    wanted = _is(kind)
    return any(pred(x) for x in tree_iter(tree, is_leaf) if wanted(x))


def tree_all_only(kind: Any, pred: Callable, tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Returns whether the condition holds for every leaf of a type."""
    wanted = _is(kind)
    return all(pred(x) for x in tree_iter(tree, is_leaf) if wanted(x))


# ---- paths


def _with_path(tree: Any, is_leaf: Callable[[Any], bool] | None, path: tuple) -> Iterator[tuple[tuple, Any]]:
    kind = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if kind is None:
        yield path, tree
        return
    items, _ = _taken_apart(tree, kind)
    for key, item in zip(_keys(tree, kind, len(items)), items):
        yield from _with_path(item, is_leaf, (*path, key))


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple, Any]]:
    """Returns the leaves with their paths."""
    return list(_with_path(tree, is_leaf, ()))


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple, Any]], TreeSpec]:
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable, tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Like ``tree_map``, with ``func(path, leaf, ...)``."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(func(*pair, *others) for pair, *others in zip(pairs, *columns))


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any] | None:
    """Repeats the leaves of a tree that is a prefix of a structure; None if it does not match."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    items, context = _taken_apart(tree, kind)
    if len(items) != treespec.num_children or context != treespec.context:
        return None
    parts = [_broadcast_to_and_flatten(i, c, is_leaf) for i, c in zip(items, treespec.children_specs)]
    return None if any(p is None for p in parts) else [x for p in parts for x in p or ()]


# ---- structures as text


def _described(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type not in (list, tuple, dict, OrderedDict, deque):
        raise NotImplementedError(f"Serializing {spec.type} in pytree is not supported")
    home = f"{spec.type.__module__}.{spec.type.__name__}"
    children = [_described(c) for c in spec.children_specs]
    return {"type": home, "context": json.dumps(spec.context), "children_spec": children}


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """Serializes the structure as JSON; containers are lists, tuples and dicts."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got {type(treespec)}.")
    return json.dumps([1, _described(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """Restores a structure that ``treespec_dumps`` wrote."""
    version, described = json.loads(serialized)
    if version != 1:
        raise ValueError(f"Unknown protocol {version}. Available protocols: 1")

    def restored(d: dict[str, Any]) -> TreeSpec:
        if d["type"] is None:
            return _LEAF
        home, _, name = d["type"].rpartition(".")
        if home not in ("builtins", "collections") or name not in (
            "list", "tuple", "dict", "OrderedDict", "deque"
        ):  # fmt: skip
            raise NotImplementedError(f"{d['type']} is not a container that is read")
        kind = getattr(importlib.import_module(home), name)
        return TreeSpec(kind, json.loads(d["context"]), [restored(c) for c in d["children_spec"]])

    return restored(described)


class _Star:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """Formats the structure as a tree with a star for each leaf."""
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))
