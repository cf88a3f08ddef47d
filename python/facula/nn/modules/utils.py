"""Arguments for one, two or three dimensions, from a number or a sequence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Any:
    def parse(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single, _pair, _triple = _ntuple(1, "_single"), _ntuple(2, "_pair"), _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """Repeats each element n times, the last one first: converts (height, width) to the order of F.pad."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix from the keys that have it, and from those of the metadata, in place.

    >>> d = {"module.a": 1, "b": 2}
    >>> facula.nn.modules.utils.consume_prefix_in_state_dict_if_present(d, "module.")
    >>> d
    {'b': 2, 'a': 1}
    """
    for key in [k for k in state_dict if k.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)
