"""Collects which objects optimizers read while a function is captured.

``compile`` runs the methods of optimizers on the real objects while their operators are recorded. They
report what they read by ``program.assume_items`` and ``program.operand``; the capture makes guards of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C, program
from ..optim.optimizer import Optimizer


class Observer:
    """Collects what the methods of optimizers read in one captured segment."""

    repeats_calls_alone = False  # the capture interprets step hooks

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []  # an object and a key, or None for all of its items
        self.counted: list[Any] = []  # step counters that the segment has changed
        self.checks: list[tuple] = []

    @staticmethod
    def accepts(x: Any, method: str) -> bool:
        """Whether this method of ``x`` tells all that it reads. A step with hooks does not."""
        if not isinstance(x, Optimizer) or not f"{type(x).__module__}.".startswith(
            f"{_C.package_name()}.optim."
        ):
            return False
        return method != "step" or not any(x._all_step_hooks())

    def begin(self) -> None:
        program._traces.append(self)  # type: ignore[arg-type]

    def end(self) -> None:
        program._traces.pop()

    def take(self) -> list[tuple[Any, Any]]:
        seen, self.seen = self.seen, []
        return seen

    # ---- what functions of this package call (program.py)

    def assume(self, what: str, read: Callable[[], Any]) -> None:
        raise NotImplementedError(f"{what} in a compiled function")

    def assume_item(self, what: str, of: Any, key: Any) -> None:
        self.seen.append((of, key))

    def assume_all(self, what: str, of: Any) -> None:
        self.seen.append((of, None))

    def operand(self, what: str, key: Any, read: Callable[[], float]) -> Any:
        optimizer, group, option = key
        options = optimizer.param_groups[group]
        if isinstance(options[option], tuple):
            return tuple(_C.captured_number(options, option, k, False) for k in range(len(options[option])))
        return _C.captured_number(options, option, -1, option != "lr")

    def changes(self, options: dict[str, Any], key: str) -> bool:
        value = options[key]
        places = range(len(value)) if isinstance(value, tuple) else (-1,)
        return any(_C.changes_between_captures(options, key, k) for k in places)

    def check_unchanged(self, what: str, whose: Any) -> None:
        pass

    def defer(self, whose: Any, effect: Callable[[], Any]) -> bool:
        return False
