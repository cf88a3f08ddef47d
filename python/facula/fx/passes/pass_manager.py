"""The older PassManager, whose passes return modules."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from .infra.pass_manager import this_before_that_pass_constraint as this_before_that_pass_constraint

__all__ = ["PassManager", "inplace_wrapper", "log_hook", "loop_pass", "these_before_those_pass_constraint"]

logger = logging.getLogger(__name__)


def inplace_wrapper(fn: Callable) -> Callable:
    """Wraps a function that changes a module in place so that it returns the module."""

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        fn(gm)
        return gm

    return wrapped


def log_hook(fn: Callable, level: int = logging.INFO) -> Callable:
    """Wraps a pass so that its result is logged."""

    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        result = fn(gm)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(base_pass: Callable, n_iter: int | None = None, predicate: Callable | None = None) -> Callable:
    """Returns a pass that repeats another one, ``n_iter`` times or while ``predicate(module)`` is true."""
    if (n_iter is None) == (predicate is None):
        raise AssertionError("Exactly one of `n_iter` or `predicate` must be specified.")

    @wraps(base_pass)
    def repeated(source: Any) -> Any:
        count = 0
        while count < n_iter if n_iter is not None else predicate(source):  # type: ignore[misc]
            source = base_pass(source)
            count += 1
        return source

    return repeated


def these_before_those_pass_constraint(these: Callable, those: Callable) -> Callable:
    """Returns the constraint that ``these`` precede ``those``, which are functions that were wrapped."""
    return lambda a, b: getattr(a, "__wrapped__", a) != those or getattr(b, "__wrapped__", b) != these


class PassManager:
    """Runs passes, functions from a module to a module, in order."""

    def __init__(
        self, passes: list[Callable] | None = None, constraints: list[Callable] | None = None
    ) -> None:
        self.passes, self.constraints = list(passes or []), list(constraints or [])

    @classmethod
    def build_from_passlist(cls, passes: list[Callable]) -> PassManager:
        return cls(passes)

    def add_pass(self, _pass: Callable) -> None:
        self.passes.append(_pass)

    def add_constraint(self, constraint: Callable) -> None:
        self.constraints.append(constraint)

    def remove_pass(self, _passes: list[str]) -> None:
        self.passes = [p for p in self.passes if p.__name__ not in _passes]

    def replace_pass(self, _target: Callable, _replacement: Callable) -> None:
        self.passes = [_replacement if p.__name__ == _target.__name__ else p for p in self.passes]

    def validate(self) -> None:
        """Raises RuntimeError if the order of the passes violates a constraint."""
        for constraint in self.constraints:
            for k, before in enumerate(self.passes):
                for after in self.passes[k + 1 :]:
                    if not constraint(before, after):
                        raise RuntimeError(f"pass schedule constraint violated: {before} before {after}")

    def __call__(self, source: Any) -> Any:
        self.validate()
        out = source
        for p in self.passes:
            out = p(out)
        return out
