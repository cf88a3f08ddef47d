"""Optimizers whose step is one operator over lists."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .. import _C
from ..program import counted
from .optimizer import GroupOptimizer, check_implementation, parameters_by_layout

Tensor = _C.Tensor
_f = _C.functions


def single(x: Any) -> Any:
    """Rounds to float32, as a state_dict stores it."""
    return x.float().double() if isinstance(x, Tensor) else ctypes.c_float(x).value


def _number(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else _C.tensor(x, dtype=_C.float32)


class ListOptimizer(GroupOptimizer):
    """An optimizer whose step is one operator over lists of parameters, gradients and each kind of state.

    Parameters whose counters and rates have equal values are updated together, which nearly always are
    all of them: they share the tensors that hold these numbers, so that a step writes only one. A
    state_dict has one for each parameter.
    """

    _traceable = True

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        super().__init__(params, defaults)
        check_implementation(type(self).__name__, self.defaults)

    def _kinds(self, group: dict[str, Any]) -> dict[str, bool]:
        """Returns the kinds of state that are tensors, in the operator's order, and whether each is in
        use.
        """
        raise NotImplementedError

    def _initial(self, kind: str, p: Tensor, group: dict[str, Any]) -> Tensor:
        return _f.zeros_like(p)

    def _first(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Returns the state before the first step."""
        tensors = {kind: self._initial(kind, p, group) for kind, used in self._kinds(group).items() if used}
        return {**self._numbers, **tensors}

    def _state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if not (state := self.state[p]):
            outside = self._outside_of_trace(group)
            state.update(_C.outside_of_trace(lambda: self._import_state(self._first(p, outside))))
        return state

    def _update(self, group: dict[str, Any], numbers: dict[str, float], *lists: list[Tensor]) -> None:
        """Calls the operator on parameters, gradients and a list for each kind of state.

        "step" in ``numbers`` is already incremented; changes of ``numbers`` apply from the next step on.
        """
        raise NotImplementedError

    def _step_group(self, group: dict[str, Any]) -> None:
        kinds = self._kinds(group)
        takes_sparse = hasattr(self, "_update_sparse")
        dense, grads, sparse = parameters_by_layout(group, type(self).__name__, takes_sparse)
        for p in sparse:
            state = self._state(p, group)
            for name in self._numbers:
                _C.outside_of_trace(self._share, [state], name)
            numbers = self._counted([state])
            tensors = [state[kind] for kind, used in kinds.items() if used]
            self._update_sparse(group, numbers, p, *tensors)  # type: ignore[attr-defined]
            self._count([state], numbers)
        for params, gradients, states in self._alike(dense, grads, [self._state(p, group) for p in dense]):
            lists = [params, gradients]
            for kind, used in kinds.items():
                lists.append([s[kind] for s in states] if used and kind in states[0] else [])
            numbers = self._counted(states)
            if any(map(Tensor.is_complex, params)):
                self._update_parts(group, numbers, lists)
            else:
                self._update(group, numbers, *lists)
            self._count(states, numbers)

    def _alike(self, *lists: list[Any]) -> list[tuple[list[Any], ...]]:
        """Groups parameters, gradients and states by equal numbers."""
        params, _, states = lists
        if not states:
            return []
        apart = [self._apart(p) for p in params] if self._apart else None
        alike = apart is None
        for name in self._numbers:
            cell = states[0][name]
            if not isinstance(cell, Tensor) or not all([s[name] is cell for s in states]):
                _C.outside_of_trace(self._share, states, name, apart)
                alike = False
        if alike:
            return [lists]  # type: ignore[list-item]
        columns = [[id(s[name]) for s in states] for name in self._numbers]
        if apart:
            columns.append(apart)
        keys: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns))
        groups: dict[Any, tuple[list[Any], ...]] = {}
        for key, *row in zip(keys, *lists):
            for items, item in zip(groups.setdefault(key, ([], [], [])), row):
                items.append(item)
        return list(groups.values())

    @staticmethod
    def _share(states: list[dict[str, Any]], name: str, apart: list[Any] | None = None) -> None:
        """Makes states with equal numbers, and equal items of ``apart``, share one tensor."""
        cells: dict[Any, Tensor] = {}
        for k, state in enumerate(states):
            if any(state[name] is cell for cell in counted()):
                continue
            key = float(state[name]), apart and apart[k]
            if key not in cells:
                cell = _number(state[name])
                cells[key] = cell.clone() if any(cell is other for other in cells.values()) else cell
            state[name] = cells[key]

    def _counted(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the numbers of this step, as floats or, in a traced function, as tensors."""
        counts = {name: states[0][name] for name in self._numbers}
        if _C.is_tracing():
            counts = {name: cell.double() for name, cell in counts.items()}
        else:
            counts = {name: float(x) for name, x in counts.items()}
        counts["step"] = counts["step"] + 1
        return counts

    def _count(self, states: list[dict[str, Any]], numbers: dict[str, Any]) -> None:
        for name, x in numbers.items():
            cell = states[0][name]
            every = len(states) == len(self.state)
            if every or sum(s.get(name) is cell for s in self.state.values()) <= len(states):
                if _C.is_tracing():
                    counted().append(cell)
                cell.copy_(x) if isinstance(x, Tensor) else cell.fill_(x)
                continue
            if _C.is_tracing():
                raise NotImplementedError(
                    f"{type(self).__name__}: a step of some of the parameters whose steps are counted "
                    "together is traced\n"
                    "  hint: give parameters that get no gradient in each step an optimizer of their own"
                )
            cell = _number(x)  # the other states keep the former tensor
            for state in states:
                state[name] = cell

    def _update_parts(
        self, group: dict[str, Any], numbers: dict[str, float], lists: list[list[Tensor]]
    ) -> None:
        """Calls _update with complex numbers as pairs, whose parts are updated independently."""
        params, grads, *states = lists
        # A lazily conjugated tensor has no real view, so it is copied.
        values = [p.resolve_conj() for p in params]
        lists_of_views = [values, [g.resolve_conj() for g in grads], *states]
        self._update(
            group,
            numbers,
            *([_f.view_as_real(t) if t.is_complex() else t for t in tensors] for tensors in lists_of_views),
        )
        for p, value in zip(params, values):
            if value is not p:
                p.copy_(value)

    # Properties of a parameter that keep it out of a joint call.
    _apart: Callable[[Tensor], tuple] | None = None

    def _export_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._import_state(state)

    def _import_state(self, state: dict[str, Any]) -> dict[str, Any]:
        return {k: _number(float(v)) if k in self._numbers else v for k, v in state.items()}
