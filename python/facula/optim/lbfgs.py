"""L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _C
from ._traced_lbfgs import TracedLBFGS
from .optimizer import check_options, rate

Tensor = _C.Tensor


class _Point(NamedTuple):
    """A point of the line search: distance, loss, gradient, and slope along the line."""

    t: float
    loss: float
    gradient: Tensor
    slope: float


def _cubic_minimum(a: _Point, b: _Point, low: float | None = None, high: float | None = None) -> float:
    """Returns the minimum, within bounds, of the cubic through two points with their slopes.

    Source: Nocedal and Wright, "Numerical Optimization", 2006, equation 3.59.
    """
    if low is None or high is None:
        low, high = min(a.t, b.t), max(a.t, b.t)
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t) if a.t != b.t else float("nan")
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = square**0.5
    bend = b.slope - a.slope + 2 * d2
    if bend == 0:  # a straight line is least at a bound
        return high if b.slope < 0 else low
    least = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / bend)
    return min(max(least, low), high)


def _strong_wolfe(
    at: Callable[[float], _Point], start: _Point, t: float, widest: float, tolerance: float, most: int
) -> tuple[_Point, int]:
    """Returns a step from ``start`` that satisfies the strong Wolfe conditions, and the number of loss
    evaluations: one, and at most ``most`` further ones. ``widest`` is the largest element of the direction.
    Nocedal and Wright, algorithms 3.5 and 3.6.
    """
    enough, flatter = 1e-4, 0.9

    def too_high(p: _Point, than: _Point) -> bool:
        return p.loss > start.loss + enough * p.t * start.slope or p.loss >= than.loss

    def flat(p: _Point) -> bool:
        return abs(p.slope) <= -flatter * start.slope

    previous, point = start, at(t)
    count, tries = 1, 0
    ends: list[_Point] = []
    while tries < most:
        if point.loss > start.loss + enough * point.t * start.slope or (
            tries > 0 and point.loss >= previous.loss
        ):
            ends = [previous, point]
            break
        if flat(point):
            return point, count
        if point.slope >= 0:
            ends = [previous, point]
            break
        farther = _cubic_minimum(previous, point, point.t + 0.01 * (point.t - previous.t), point.t * 10)
        previous, point = point, at(farther)
        count, tries = count + 1, tries + 1
    if not ends:
        ends = [start, point]
    low, high = (ends[0], ends[1]) if ends[0].loss <= ends[1].loss else (ends[1], ends[0])
    stuck = False
    while tries < most and abs(high.t - low.t) * widest >= tolerance:
        t = _cubic_minimum(low, high)
        left, right = min(low.t, high.t), max(low.t, high.t)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # near an end: moved inwards if this happens twice in a row
            if stuck or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = at(t)
        count, tries = count + 1, tries + 1
        if too_high(point, low):
            high = point
            low, high = (low, high) if low.loss <= high.loss else (high, low)
            continue
        if flat(point):
            return point, count
        if point.slope * (high.t - low.t) >= 0:
            high = low
        low = point
    return low, count


class LBFGS(TracedLBFGS):
    """Steps along a quasi-Newton direction from the last ``history_size`` changes of the gradient.

    A step evaluates the closure up to ``max_eval`` times (default 1.25 ``max_iter``); the closure must
    clear gradients, compute the loss and call backward. A line search needs at least two evaluations. Only
    one parameter group is supported.

    Source: Liu and Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization", 1989.
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_options(lr=(lr, rate(lr) >= 0))
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _state_shape(self, kind: str) -> Any:
        """The shape of a tensor of its state: some are numbers, the others vectors of all parameters."""
        return () if kind in ("H_diag", "ro", "al", "t", "prev_loss") else self._gradient().shape

    def _gradient(self) -> Tensor:
        """Returns the gradients of all parameters as one real vector."""
        parts = [_C.functions.zeros_like(p) if p.grad is None else p.grad for p in self._params]
        return _C.functions.cat(
            [(_C.functions.view_as_real(g) if g.is_complex() else g).reshape(-1) for g in parts]
        )

    def _move(self, t: float, direction: Tensor) -> None:
        at = 0
        for p in self._params:
            real = _C.functions.view_as_real(p) if p.is_complex() else p
            real.add_(direction[at : at + real.numel()].view(real.shape), alpha=t)
            at += real.numel()

    def step(self, closure: Callable[[], Any]) -> Any:
        """Minimises ``closure()``; returns the loss of the first evaluation."""
        with _C.GradMode(False):
            return self._minimise(lambda: self._loss_of(closure))

    def _minimise(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        lr, tolerance = rate(group["lr"]), group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, g, evaluations = float(first), self._gradient(), 1
        state["func_evals"] += 1
        if g.abs().max() <= group["tolerance_grad"]:
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, g, group["history_size"])
            t = min(1.0, 1.0 / float(g.abs().sum())) * lr if state["n_iter"] == 1 else lr
            previous = loss
            state.update(d=d, t=t, prev_flat_grad=g.clone(), prev_loss=loss)
            slope = float(g.dot(d))
            if slope > -tolerance:
                break
            spent = 0
            if search:
                most = min(25, group["max_eval"] - evaluations - 1)
                start = _Point(0.0, loss, g, slope)
                t, loss, g, spent = self._search(closure, start, t, d, tolerance, most)
                state["t"] = t
            else:
                self._move(t, d)
                if iteration != group["max_iter"] and evaluations < group["max_eval"]:
                    loss, g, spent = float(closure()), self._gradient(), 1
            evaluations += spent
            state["func_evals"] += spent
            if (
                evaluations >= group["max_eval"]
                or g.abs().max() <= group["tolerance_grad"]
                or (d * t).abs().max() <= tolerance
                or abs(loss - previous) < tolerance
            ):
                break
        return first

    def _search(
        self, closure: Callable[[], Any], start: _Point, t: float, d: Tensor, tolerance: float, most: int
    ) -> tuple[float, float, Tensor, int]:
        """Moves the parameters to the result of the line search."""
        places = [p.clone() for p in self._params]

        def at(t: float) -> _Point:
            self._move(t, d)
            loss, g = float(closure()), self._gradient()
            for p, place in zip(self._params, places):
                p.copy_(place)
            return _Point(t, loss, g, float(g.dot(d)))

        best, count = _strong_wolfe(at, start, t, float(d.abs().max()), tolerance, most)
        self._move(best.t, d)
        return best.t, best.loss, best.gradient, count

    @staticmethod
    def _direction(state: dict[str, Any], g: Tensor, history: int) -> Tensor:
        """Stores the last change and returns the descent direction of the approximate inverse Hessian
        (two-loop recursion).
        """
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return g.neg()
        changes, steps, inverse = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = g - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = y.dot(s)
        if curvature > 1e-10:
            if len(changes) == history:
                for series in (changes, steps, inverse):
                    series.pop(0)
            changes.append(y)
            steps.append(s)
            inverse.append(1.0 / curvature)
            state["H_diag"] = curvature / y.dot(y)
        weights = state.setdefault("al", [None] * history)  # part of the state in PyTorch's files
        q = g.neg()
        for k in reversed(range(len(changes))):
            weights[k] = steps[k].dot(q) * inverse[k]
            q = q - changes[k] * weights[k]
        d = q * state["H_diag"]
        for k in range(len(changes)):
            d = d + steps[k] * (weights[k] - changes[k].dot(d) * inverse[k])
        return d
