"""Containers as trees: utils._pytree."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from importlib import import_module

Pair = namedtuple("Pair", "a b")


class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b


@dataclasses.dataclass
class Data:
    x: object
    y: object


def text(tree):
    """As str, but for OrderedDict, which Python 3.12 and later write otherwise."""
    return str(tree).replace(str(tree["d"]), str(dict(tree["d"])))


def probe(torch, P):
    p = import_module(f"{torch.__name__}.utils._pytree")
    for_each = [1, (2, 3)], Pair(4, None), OrderedDict(x=5), defaultdict(list, y=6), deque([7], maxlen=3)
    tree = dict(zip("badce", for_each))
    if Box not in p.SUPPORTED_NODES:
        p.register_pytree_node(Box, lambda c: ([c.a], c.b), lambda items, b: Box(*items, b))
        p.register_dataclass(Data)

    @P
    def structures():
        leaves, spec = p.tree_flatten(tree)
        again = p.tree_unflatten([[x] for x in leaves], spec)
        shown = spec.num_leaves, spec.num_nodes, spec.num_children, spec.type.__name__, spec.context
        return leaves, str(spec), shown, text(again), spec.unflatten(leaves) == tree

    @P
    def structures_compared():
        s = p.tree_structure(tree)
        others = [1, None, [], (), {}, [1, (2,)]]
        equal = s == p.tree_structure(tree), s != p.tree_structure([1]), s.is_leaf(), s.child(0).is_leaf()
        return equal, [str(p.tree_structure(o)) for o in others], [str(c) for c in s.children()]

    @P
    def maps():
        several = p.tree_map(lambda x, y: (x, y), [1, (2,)], [3, (4,)])
        ended = p.tree_map(lambda x: x, [1, [2]], is_leaf=lambda x: isinstance(x, list) and len(x) == 1)
        only = (
            p.tree_map_only(int, lambda x: -x, [1, "a"]),
            p.tree_map_only((int, str), lambda x: x * 2, [1, "a", 2.0]),
        )
        t = [torch.ones(1)]
        p.tree_map_(lambda x: x.add_(1), t)
        p.tree_map_only_(torch.Tensor, lambda x: x.mul_(3), t)
        return several, ended, only, t

    @P
    def questions():
        numbers = [1, "a", 4]
        return (
            p.tree_any(lambda x: x == 4, [1, 4]),
            p.tree_all(lambda x: x > 0, [1, 4]),
            p.tree_any_only(int, lambda x: x > 3, numbers),
            p.tree_all_only(int, lambda x: x > 3, numbers),
            list(p.tree_iter([1, (2,)])),
            [p.tree_is_leaf(x) for x in (3, [3], None)],
            [p.is_namedtuple(x) for x in (Pair(1, 2), (1,), Pair)],
            p.is_structseq(torch.ones(1).max(0)),
        )

    @P
    def paths():
        found = p.tree_leaves_with_path(tree)
        mapped = p.tree_map_with_path(lambda k, x: p.keystr(k) + str(x), tree)
        at = p.key_get([1, {"a": 2}], (p.SequenceKey(1), p.MappingKey("a")))
        return [(p.keystr(k), x) for k, x in found], text(mapped), at, str(found[0][0])

    @P
    def registered():
        data = Data(1, [2])
        shown = str(p.tree_structure([Box(1, 2)])), str(p.tree_structure(data))
        return (
            shown,
            p.tree_leaves(Box([1, 2], 5)),
            str(p.tree_map(lambda v: v + 1, data)),
            [p.keystr(k) for k, _ in p.tree_leaves_with_path(data)],
        )

    @P
    def broadcast():
        s = p.tree_structure([1, (2, 3)])
        return [p._broadcast_to_and_flatten(x, s) for x in (1, [1, 2], [1], [1, (2, 4)])]

    @P
    def up_to():
        return p.tree_structure(tree).flatten_up_to(tree), p.tree_structure([1, 1]).flatten_up_to(
            [[1, 2], {}]
        )

    @P
    def text():
        s = p.tree_structure([1, (2, {"a": 3})])
        return p.treespec_dumps(s), p.treespec_loads(p.treespec_dumps(s)) == s, p.treespec_pprint(s)

    @P
    def too_few_leaves():
        p.tree_unflatten([1], p.tree_structure([1, 2]))

    @P
    def other_lengths():
        p.tree_map(lambda x, y: x, [1, 2], [1])

    @P
    def other_types():
        p.tree_map(lambda x, y: x, [1, 2], (1, 2))

    @P
    def no_structure():
        p.tree_unflatten([1], 3)

    @P
    def registered_twice():
        p.register_pytree_node(Box, None, None)

    @P
    def no_dataclass():
        p.register_dataclass(int)
