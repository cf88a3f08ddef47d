"""Settings of PyTorch's tracer: they are stored and have no effect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

cache_size_limit = recompile_limit = 8
capture_scalar_outputs = False
suppress_errors = False
verbose = False


def patch_of(settings: ModuleType) -> Any:
    """Returns the ``patch`` of a settings module: it changes settings within a block, or in a decorated
    function.
    """

    @contextmanager
    def changed(changes: dict[str, Any]) -> Iterator[None]:
        there = vars(settings)
        before = {k: there[k] for k in changes if k in there}
        there.update(changes)
        try:
            yield
        finally:
            for k in changes.keys() - before.keys():
                del there[k]
            there.update(before)

    def patch(
        name: str | dict[str, Any] | None = None, value: Any = None, **changes: Any
    ) -> AbstractContextManager:
        named = name if isinstance(name, dict) else {} if name is None else {name: value}
        return changed(named | changes)

    return patch


patch = patch_of(sys.modules[__name__])
