"""PassManager: runs passes in an order that satisfies constraints, until nothing changes or a number of
times.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from ...graph_module import GraphModule
from .pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn: Callable) -> Callable:
    """Wraps a function that changes a module in place so that it returns a PassResult."""

    @wraps(fn)
    def wrapped(gm: GraphModule) -> PassResult:
        result = fn(gm)
        return (
            result if isinstance(result, PassResult) else PassResult(gm if result is None else result, True)
        )

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def this_before_that_pass_constraint(this: Callable, that: Callable) -> Callable:
    """Returns the constraint that ``this`` precedes ``that``."""
    return lambda a, b: a != that or b != this


class PassManager:
    """Runs passes, functions of a module that return a PassResult or None (nothing changed), ``steps`` times.

    >>> from facula.fx.passes.infra.pass_manager import PassManager
    >>> def to_tanh(gm):
    ...     for n in gm.graph.nodes:
    ...         if n.target is facula.relu:
    ...             n.target = facula.tanh
    ...     return facula.fx.passes.infra.pass_base.PassResult(gm, True)
    >>> gm = facula.fx.symbolic_trace(lambda x: facula.relu(x))
    >>> PassManager([to_tanh])(gm).graph_module(facula.zeros(1))
    tensor([0.])
    """

    def __init__(
        self,
        passes: list[Callable] | None = None,
        constraints: list[Callable] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes, self.constraints = list(passes or []), list(constraints or [])
        self.steps = steps or 1
        self._validated = not self.constraints
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Callable) -> None:
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Callable) -> None:
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Raises RuntimeError if the order of the passes violates a constraint."""
        for constraint in self.constraints:
            for k, before in enumerate(self.passes):
                for after in self.passes[k + 1 :]:
                    if not constraint(before, after):
                        raise RuntimeError(
                            f"pass schedule constraint violated. Expected {before} before {after} but "
                            f"found {before} "
                            f"at index {k} and {after} at index {self.passes.index(after)} in pass list."
                        )
        self._validated = True

    def solve_constraints(self) -> None:
        """Sorts the passes so that they satisfy the constraints."""
        order: list[Callable] = []
        rest = list(self.passes)
        while rest:
            first = [p for p in rest if all(c(p, q) for c in self.constraints for q in rest if q is not p)]
            if not first:
                raise RuntimeError("the constraints of the passes contradict each other")
            order.append(first[0])
            rest.remove(first[0])
        self.passes, self._validated = order, True

    def add_checks(self, check: Callable) -> None:
        """Sets a function that checks the module, with the parameter ``module``, after passes."""
        parameters = list(inspect.signature(check).parameters.values())
        if len(parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.check = check  # type: ignore[method-assign]

    def check(self, module: Any) -> None:
        """Checks the module after passes; ``add_checks`` replaces it."""

    def __call__(self, module: Any) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        overall = False
        for _ in range(self.steps):
            modified = False
            for k, fn in enumerate(self.passes):
                name = getattr(fn, "__name__", type(fn).__name__)
                try:
                    result = fn(module)
                except Exception as e:
                    done = [getattr(p, "__name__", type(p).__name__) for p in self.passes[:k]]
                    raise Exception(f"An error occurred when running the '{name}' pass after: {done}") from e
                if result is None:
                    continue
                if not isinstance(result, PassResult):
                    raise TypeError(
                        f"The result of the pass {name} should be type PassResult. Please wrap it with "
                        "pass_result_wrapper()"
                    )
                module, modified = result.graph_module, modified or result.modified
                if isinstance(module, GraphModule):
                    module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            overall = overall or modified
            if not modified:
                break
        return PassResult(module, overall)
