"""Optimizers whose step is one operator over lists."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .. import _C
from .optimizer import Optimizer, check_implementation, parameters_with_grad

Tensor = _C.Tensor
_f = _C.functions


def single(x: float) -> float:
    """The nearest number of 32 bits, as a state_dict holds."""
    return ctypes.c_float(x).value


def _real(t: Tensor) -> Tensor:
    """Complex numbers as pairs, each part of which moves for itself."""
    return _f.view_as_real(t) if t.is_complex() else t


def _resolved(t: Tensor) -> Tensor:
    """A copy of a conjugate, which has no real view."""
    return t.resolve_conj() if t.is_complex() else t


class ListOptimizer(Optimizer):
    """An optimizer whose step is one operator over lists of parameters, gradients and each kind of state.

    Parameters whose numbers are equal go together, which nearly always are all of them.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        check_implementation(type(self).__name__, self.defaults)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        """The kinds of state that are tensors, in the operator's order, and which of them are in use."""
        raise NotImplementedError

    def _initial(self, kind: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        return _f.zeros_like(p)

    def _first(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state before the first step."""
        tensors = {kind: self._initial(kind, p, group) for kind, used in self._kinds(group).items() if used}
        return {**self._numbers, **tensors}

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Tensor]) -> None:
        """The operator's call, of parameters, gradients and a list of each kind of state.

        "step" of ``numbers`` counts already; what is changed of them is so from the next step on.
        """
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = self._loss_of(closure)
        with _C.GradMode(False):
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        kinds = self._kinds(group)
        alike: dict[tuple, list[Tensor]] = {}
        for p in parameters_with_grad(group, type(self).__name__):
            state = self.state[p]
            if not state:
                state.update(self._first(p, group))
            state["step"] += 1
            key = (*(state[name] for name in self._numbers), *self._apart(p))
            alike.setdefault(key, []).append(p)
        for key, params in alike.items():
            numbers = dict(zip(self._numbers, key))
            states = [self.state[p] for p in params]
            lists = [
                [s[kind] for s in states] if used and kind in states[0] else []
                for kind, used in kinds.items()
            ]
            values = [_resolved(p) for p in params]
            lists = [values, [_resolved(p.grad) for p in params], *lists]
            self._update(group, numbers, *([_real(t) for t in tensors] for tensors in lists))
            for p, value, state in zip(params, values, states):
                if value is not p:
                    p.copy_(value)
                state.update({name: single(x) for name, x in numbers.items()})

    def _apart(self, p: Tensor) -> tuple:
        """What keeps parameters out of one call."""
        return ()

    def _export_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return {k: _C.tensor(v, dtype=_C.float32) if k in self._numbers else v for k, v in state.items()}

    def _import_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return {k: float(v) if k in self._numbers else v for k, v in state.items()}
