"""Display options of tensors, and a context manager that changes them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import _C
from ._composed import set_printoptions

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]


class _Options:
    """The current options, as attributes."""

    def __getattr__(self, name: str) -> Any:
        options = get_printoptions()
        if name not in options:
            raise AttributeError(f"no print option {name!r}; there are {', '.join(options)}")
        return options[name]

    def __setattr__(self, name: str, value: Any) -> None:
        set_printoptions(**{name: value})

    def __repr__(self) -> str:
        return f"PrinterOptions({', '.join(f'{k}={v}' for k, v in get_printoptions().items())})"


PRINT_OPTS = _Options()


def get_printoptions() -> dict[str, Any]:
    """Returns the options by name."""
    return dict(_C.get_print_options())


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Changes options until the end of a ``with`` block."""
    outer = get_printoptions()
    try:
        set_printoptions(**options)
        yield
    finally:
        set_printoptions(**outer)


def _tensor_str(self: Any, indent: int) -> str:
    """The elements as text, without ``tensor(...)`` and suffixes; lines begin with ``indent`` spaces."""
    plain = self.detach().resolve_conj().resolve_neg()
    text = repr(plain.to_dense() if plain.layout is not _C.strided else plain).removeprefix("tensor(")
    depth = 0
    for end, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if depth == 0 and c in "],)":
            text = text[: end + (c == "]")]
            break
    return text.replace("\n" + " " * len("tensor("), "\n" + " " * indent)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    return repr(self)
