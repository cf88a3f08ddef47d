"""The arguments of one call in tests of operators."""

from __future__ import annotations

from typing import Any


class SampleInput:
    """The first argument of a call, its other arguments, and a name."""

    def __init__(
        self, input: Any, *more: Any, args: tuple = (), kwargs: dict[str, Any] | None = None,
        name: str = "", **named: Any,
    ) -> None:  # fmt: skip
        self.input, self.args, self.kwargs = input, more or args, named or kwargs or {}
        self.name = name
        self.output_process_fn_grad = lambda x: x
        self.broadcasts_input = False

    def __repr__(self) -> str:
        return f"SampleInput(input={self.input!r}, args={self.args!r}, kwargs={self.kwargs!r})"
