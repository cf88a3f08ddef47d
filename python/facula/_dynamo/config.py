"""Settings of PyTorch's tracer: they are kept and change nothing."""

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
    """The ``patch`` of a module of settings: in a block, or a function that it decorates, some are others."""

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
        given = name if isinstance(name, dict) else {} if name is None else {name: value}
        return changed(given | changes)

    return patch


patch = patch_of(sys.modules[__name__])
