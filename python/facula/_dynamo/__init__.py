"""PyTorch's inner home of what :mod:`facula.compiler` gives: marks for functions that are compiled."""

from __future__ import annotations

from typing import Any

from .. import compiler as eval_frame  # noqa: F401
from . import config as config
from . import utils as utils
from ..compiler import OptimizedModule as OptimizedModule
from ..compiler import compile as compile
from ..compiler import disable as disable
from ..compiler import is_compiling as is_compiling
from ..compiler import reset as reset


def allow_in_graph(fn: Any) -> Any:
    return fn


def graph_break(msg: str = "") -> None:
    """Nothing to break."""


def mark_dynamic(t: Any, index: Any, *, hint_override: Any = None, min: Any = None, max: Any = None) -> None:
    """Every dimension may have another size at the next call."""


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Nothing to fix: see ``mark_dynamic``."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Nothing is compiled for an address."""


def optimize(backend: Any = "inductor", **options: Any) -> Any:
    """``compile`` as a decorator."""
    return lambda f: compile(f, backend=backend, **options)


def list_backends(*args: Any, **kwargs: Any) -> list[str]:
    return []


def explain(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Refused: calls are not divided into graphs here."""
    raise NotImplementedError(
        "_dynamo.explain: there are no graphs, and no breaks between them: it runs as in eager\n"
        "  hint: print(facula.program.trace(f, *args)) shows what a function calls"
    )
