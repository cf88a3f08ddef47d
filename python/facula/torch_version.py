"""A version that compares with texts and tuples, by the rules of PEP 440."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

_FORM = re.compile(
    r"v?(\d+(?:\.\d+)*)[-_.]?(?:(a|b|rc|alpha|beta|c)[-_.]?(\d*))?(?:[-_.]?post(\d*))?(?:[-_.]?dev(\d*))?"
    r"(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)


def _key(text: str) -> tuple | None:
    """Returns the sort key of a version; None if the text is not a version."""
    match = _FORM.fullmatch(text.strip())
    if not match:
        return None
    release, stage, number, post, dev, local = match.groups()
    numbers = [int(n) for n in release.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    if stage:
        pre: tuple = (
            {"alpha": "a", "beta": "b", "c": "rc"}.get(stage.lower(), stage.lower()),
            int(number or 0),
        )
    else:
        pre = ("", 0) if dev is not None and post is None else ("z", 0)
    parts = re.split(r"[-_.]", local.lower()) if local else []
    there = tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts)
    after = -1 if post is None else int(post or 0)
    before = float("inf") if dev is None else int(dev or 0)
    return tuple(numbers), pre, after, before, bool(local), there


class TorchVersion(str):
    """``TorchVersion("2.1") >= (1, 8)``; compared with texts that are not versions, it is a text.

    >>> facula.torch_version.TorchVersion("2.10.0+cpu") > "2.9"
    True
    """

    def _compared(self, other: Any, name: str) -> Any:
        if isinstance(other, (tuple, list)):
            other = ".".join(map(str, other))
        if not isinstance(other, str):
            return NotImplemented
        mine, its = _key(str(self)), _key(other)
        if mine is None or its is None:
            return getattr(str, name)(self, other)
        return getattr(tuple, name)(mine, its)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "__lt__")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "__le__")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, "__gt__")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, "__ge__")

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "__eq__")

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "__ne__")

    __hash__ = str.__hash__
