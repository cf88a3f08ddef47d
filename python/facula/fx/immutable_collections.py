"""Immutable lists and dicts for a node's arguments, which are changed by assigning new ones."""

from __future__ import annotations

from typing import Any, NoReturn

from ..utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the "
        "kwargs or args of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to "
        "the node:\n\n    new_args = ...  # copy and mutate args\n    node.args = new_args"
    )


class immutable_list(list):
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse  # type: ignore[assignment]
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]
    __delitem__ = __ior__ = __setitem__ = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return immutable_dict, (list(self.items()),)


_pytree.register_pytree_node(
    immutable_list, lambda x: (list(x), None), lambda items, context: immutable_list(items)
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), tuple(x)),
    lambda items, keys: immutable_dict(zip(keys, items)),
)
