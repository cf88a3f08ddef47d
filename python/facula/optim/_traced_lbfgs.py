"""LBFGS in traced functions: its loops are regions of the graph (:mod:`facula._higher_order_ops`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from .. import _C
from .._higher_order_ops import cond, while_loop
from .optimizer import Optimizer, rate

Tensor = _C.Tensor
_f = _C.functions
# The key of a state that programs read and write; such a state has no other.
PROGRAM = "program"


class _Point(NamedTuple):
    """A point of the line search, as in eager, of tensors."""

    t: Tensor
    loss: Tensor
    gradient: Tensor
    slope: Tensor


def _chosen(flag: Tensor, a: Any, b: Any) -> Any:
    return _Point(*(_f.where(flag, x, y) for x, y in zip(a, b)))


class _State:
    """The state in tensors of fixed sizes. Changes of the parameters and of the gradient are rows of two
    matrices: number k of all that were stored is row k modulo the history.
    """

    def __init__(self, state: dict[str, Any], like: Tensor, history: int) -> None:
        def number(key: str, dtype: Any) -> Tensor:
            return _C.tensor(float(state.get(key, 0)), dtype=_C.float64).to(dtype)

        def row(key: str) -> Tensor:
            return state[key].clone() if key in state else _f.zeros_like(like)

        self.n_iter, self.func_evals = number("n_iter", _C.int64), number("func_evals", _C.int64)
        self.t, self.prev_loss = number("t", _C.float64), number("prev_loss", _C.float64)
        self.d, self.prev_flat_grad = row("d"), row("prev_flat_grad")
        self.stored = _f.zeros((), dtype=_C.int64)
        self.old_dirs, self.old_stps = (_f.zeros((history, like.numel()), dtype=like.dtype) for _ in "ys")
        self.ro, self.H_diag = _f.zeros(history, dtype=like.dtype), _f.ones((), dtype=like.dtype)
        self.set(state)

    def set(self, state: dict[str, Any]) -> None:
        """Takes over a state of eager steps."""
        for key in ("n_iter", "func_evals", "t", "prev_loss", "H_diag"):
            if key in state:
                getattr(self, key).fill_(float(state[key]))
        for key in ("d", "prev_flat_grad"):
            if key in state:
                getattr(self, key).copy_(state[key])
        self.stored.fill_(len(state.get("ro", ())))
        for key in ("old_dirs", "old_stps", "ro"):
            for k, x in enumerate(state.get(key, ())):
                getattr(self, key)[k] = x

    def get(self) -> dict[str, Any]:
        """Returns the state as eager steps have it."""
        n_iter, stored, history = int(self.n_iter), int(self.stored), len(self.ro)
        state: dict[str, Any] = {"func_evals": int(self.func_evals), "n_iter": n_iter}
        if not n_iter:
            return state
        state.update(
            d=self.d.clone(), t=float(self.t), prev_flat_grad=self.prev_flat_grad.clone(),
            prev_loss=float(self.prev_loss), H_diag=self.H_diag.clone() if stored else 1,
        )  # fmt: skip
        rows = [k % history for k in range(max(0, stored - history), stored)]
        for key in ("old_dirs", "old_stps", "ro"):
            state[key] = [getattr(self, key)[k].clone() for k in rows]
        if n_iter > 1:
            state["al"] = [None] * history
        return state


def _with_own_state(step: Callable) -> Callable:
    @wraps(step)
    def f(self: TracedLBFGS, *args: Any, **kwargs: Any) -> Any:
        state = self.state.get(self._params[0], {}) if not _C.is_tracing() else {}
        shared = state.pop(PROGRAM, None)
        if shared is None:
            return step(self, *args, **kwargs)
        state.update(shared.get())
        try:
            return step(self, *args, **kwargs)
        finally:
            with _C.GradMode(False):
                shared.set(state)
            state.clear()
            state[PROGRAM] = shared

    return f


class TracedLBFGS(Optimizer):
    """The steps of LBFGS in a traced function. The closure is called once in the function, and again in its
    loops, which write the parameters, their gradients and the state.
    """

    # LBFGS defines them: the parameters, their gradients as one vector, a step along a direction.
    _params: list[Tensor]
    _gradient: Callable[[], Tensor]
    _move: Callable[[Any, Tensor], None]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_own_state(cls.__dict__["step"])  # type: ignore[method-assign]

    _traceable_in_programs = True

    def _export_state(self, state: Any) -> Any:
        return state[PROGRAM].get() if PROGRAM in state else super()._export_state(state)

    def _step_traced(self, step: Callable, args: Any, kwargs: Any) -> Any:
        return super()._step_traced(type(self)._traced_step, args, kwargs)

    def _traced_step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        with _C.GradMode(False):
            return self._minimise_traced(lambda: self._loss_of(closure), group)

    def _traced_state(self, like: Tensor, history: int) -> _State:
        state = self.state[self._params[0]]
        if PROGRAM not in state:
            shared = _C.outside_of_trace(
                _State, state, _C.outside_of_trace(_f.zeros, like.shape, dtype=like.dtype), history
            )
            state.clear()
            state[PROGRAM] = shared
        return state[PROGRAM]

    def _evaluated(self, closure: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Returns the loss and the gradient; the gradients of the parameters remain the same tensors."""
        held = [p.grad for p in self._params]
        loss = closure()
        for p, grad in zip(self._params, held):
            if p.grad is not grad:
                if p.grad is None or grad is None:
                    raise RuntimeError("LBFGS: the closure gives gradients to other parameters than before")
                grad.copy_(p.grad)
                p.grad = grad
        return loss.detach().reshape(()).double(), self._gradient()

    def _minimise_traced(self, closure: Callable[[], Any], group: dict[str, Any]) -> Any:
        first = closure()
        if not isinstance(first, Tensor):
            raise RuntimeError("LBFGS: the closure of a traced step returns no tensor")
        for p in self._params:
            if p.grad is not None and _C.is_traced(p.grad):
                p.grad = p.grad.clone()  # the loops write it, so it shares no memory
        loss, g = first.detach().reshape(()).double(), self._gradient()
        state = self._traced_state(g, group["history_size"])
        state.func_evals.add_(1)
        lr = _f.mul(_f.ones((), dtype=_C.float64), rate(group["lr"]))

        def body(iteration: Tensor, evaluations: Tensor, loss: Tensor, g: Tensor, _: Tensor) -> tuple:
            return self._iterate(closure, group, state, lr, iteration, evaluations, loss, g)

        counts = _f.zeros((), dtype=_C.int64), _f.ones((), dtype=_C.int64)
        goes = (g.abs().max() > group["tolerance_grad"]) & (group["max_iter"] > 0)
        while_loop(lambda *x: x[-1], body, (*counts, loss, g, goes))
        return first

    def _iterate(
        self, closure: Callable, group: dict[str, Any], state: _State, lr: Tensor,
        iteration: Tensor, evaluations: Tensor, loss: Tensor, g: Tensor,
    ) -> tuple:  # fmt: skip
        tolerance, most = group["tolerance_change"], group["max_eval"]
        iteration = iteration + 1
        state.n_iter.add_(1)
        is_first = state.n_iter == 1
        d = self._traced_direction(state, g, is_first)
        t = _f.where(is_first, (1.0 / g.abs().sum().double()).clamp(max=1.0), 1.0) * lr
        state.d.copy_(d)
        state.t.copy_(t)
        state.prev_flat_grad.copy_(g)
        state.prev_loss.copy_(loss)
        previous, slope = loss, g.dot(d).double()

        def goes_on(loss: Tensor, g: Tensor) -> tuple:
            if group["line_search_fn"]:
                limit = (most - evaluations - 1).clamp(max=25)
                start = _Point(_f.zeros_like(loss), loss, g, slope)
                point, spent = self._search_traced(closure, start, t, d, tolerance, limit)
                state.t.copy_(point.t)
                return point.t, point.loss, point.gradient, spent
            self._move(t, d)
            evaluates = (iteration != group["max_iter"]) & (evaluations < most)
            loss, g = cond(
                evaluates,
                lambda *_: self._evaluated(closure),
                lambda *x: tuple(y.clone() for y in x),
                (loss, g),
            )
            return t.clone(), loss, g, evaluates.long()

        def stops(loss: Tensor, g: Tensor) -> tuple:
            return t.clone(), loss.clone(), g.clone(), _f.zeros((), dtype=_C.int64)

        descends = ~(slope > -tolerance)
        t, loss, g, spent = cond(descends, goes_on, stops, (loss, g))
        evaluations = evaluations + spent
        state.func_evals.add_(spent)
        ends = (
            (evaluations >= most)
            | (g.abs().max() <= group["tolerance_grad"])
            | ((d * t).abs().max() <= tolerance)
            | ((loss - previous).abs() < tolerance)
            | (iteration >= group["max_iter"])
        )
        return iteration, evaluations, loss, g, descends & ~ends

    @staticmethod
    def _traced_direction(state: _State, g: Tensor, is_first: Tensor) -> Tensor:
        """Stores the last change and returns the descent direction (LBFGS._direction)."""
        history = len(state.ro)
        y, s = g - state.prev_flat_grad, state.d * state.t
        curvature = y.dot(s)
        stores = (curvature > 1e-10) & ~is_first
        stored = _f.where(is_first, 0, state.stored)
        place = (stored % history).reshape(1)
        for rows, new in ((state.old_dirs, y), (state.old_stps, s), (state.ro, 1.0 / curvature)):
            old = rows.index_select(0, place)
            rows.index_copy_(0, place, _f.where(stores, new.reshape(old.shape), old))
        state.H_diag.copy_(_f.where(stores, curvature / y.dot(y), _f.where(is_first, 1, state.H_diag)))
        state.stored.copy_(stored + stores.long())

        def at(rows: Tensor, k: Tensor) -> Tensor:
            return rows.index_select(0, (k % history).reshape(1)).squeeze(0)

        def backwards(k: Tensor, q: Tensor, weights: Tensor) -> tuple:
            k = k - 1
            weight = at(state.old_stps, k).dot(q) * at(state.ro, k)
            q = q - at(state.old_dirs, k) * weight
            return k, q, weights.index_copy(0, (k % history).reshape(1), weight.reshape(1))

        def forwards(k: Tensor, d: Tensor) -> tuple:
            d = d + at(state.old_stps, k) * (at(weights, k) - at(state.old_dirs, k).dot(d) * at(state.ro, k))
            return k + 1, d

        end = state.stored.clone()
        begin = (end - history).clamp(min=0)
        weights = _f.zeros(history, dtype=g.dtype)
        _, q, weights = while_loop(lambda k, *_: k > begin, backwards, (end, g.neg(), weights))
        return while_loop(lambda k, _: k < end, forwards, (begin, q * state.H_diag))[1]

    def _search_traced(
        self, closure: Callable, start: _Point, t: Tensor, d: Tensor, tolerance: float, most: Tensor
    ) -> tuple[_Point, Tensor]:
        """Moves the parameters to the result of the line search (_strong_wolfe); returns it and the number of
        evaluations.
        """
        places = [p.clone() for p in self._params]

        def at(t: Tensor) -> _Point:
            self._move(t, d)
            loss, g = self._evaluated(closure)
            for p, place in zip(self._params, places):
                p.copy_(place)
            return _Point(t.clone(), loss, g, g.dot(d).double())

        point, tries = _bracketed(at, start, t, d.abs().max().double(), tolerance, most)
        self._move(point.t, d)
        return point, tries + 1


def _bracketed(
    at: Callable[[Tensor], _Point], start: _Point, t: Tensor, widest: Tensor, tolerance: float, most: Tensor
) -> tuple[_Point, Tensor]:
    """Returns the result of ``_strong_wolfe``, and the number of evaluations behind the first one."""
    enough, flatter = 1e-4, 0.9
    searching, bracketed, satisfied = 0, 1, 2

    def falls_short(p: _Point) -> Tensor:
        return p.loss > start.loss + enough * p.t * start.slope

    def is_flat(p: _Point) -> Tensor:
        return p.slope.abs() <= -flatter * start.slope

    def farther(tries: Tensor, status: Tensor, *points: Tensor) -> tuple:
        previous, point = _Point(*points[:4]), _Point(*points[4:])
        too_high = falls_short(point) | ((tries > 0) & (point.loss >= previous.loss))
        rises = _f.where(point.slope >= 0, bracketed, searching)
        status = _f.where(too_high, bracketed, _f.where(is_flat(point), satisfied, rises)) + 0 * status

        def next_point(*points: Tensor) -> tuple:
            a, b = _Point(*points[:4]), _Point(*points[4:])
            t = _cubic_minimum(a, b, b.t + 0.01 * (b.t - a.t), b.t * 10)
            return (*(x.clone() for x in b), *at(t))

        points = cond(
            status == searching, next_point, lambda *x: tuple(y.clone() for y in x), (*previous, *point)
        )
        return tries + (status == searching).long(), status, *points

    zero = _f.zeros((), dtype=_C.int64)
    tries, status, *points = while_loop(
        lambda tries, status, *_: (status == searching) & (tries < most),
        farther,
        (zero, zero.clone(), *(x.clone() for x in start), *at(t)),
    )
    previous, point = _Point(*points[:4]), _Point(*points[4:])
    previous = _chosen(status == searching, start, previous)
    ordered = previous.loss <= point.loss
    low, high = _chosen(ordered, previous, point), _chosen(ordered, point, previous)
    low = _chosen(status == satisfied, point, low)

    def narrower(tries: Tensor, stuck: Tensor, stops: Tensor, *points: Tensor) -> tuple:
        low, high = _Point(*points[:4]), _Point(*points[4:])
        t = _cubic_minimum(low, high, _f.minimum(low.t, high.t), _f.maximum(low.t, high.t))
        t, stuck = _inside(t, low.t, high.t, stuck)
        point = at(t)
        too_high = falls_short(point) | (point.loss >= low.loss)
        stops = ~too_high & is_flat(point)
        swaps = ~(low.loss <= point.loss)
        turns = point.slope * (high.t - low.t) >= 0
        lower = _chosen(too_high & ~swaps, low, point)
        upper = _chosen(too_high, _chosen(swaps, low, point), _chosen(turns & ~stops, low, high))
        return tries + 1, stuck, stops, *lower, *upper

    tries, _, _, *points = while_loop(
        lambda tries, stuck, stops, *p: ~stops & (tries < most) & ((p[4] - p[0]).abs() * widest >= tolerance),
        narrower,
        (tries, zero.bool(), status == satisfied, *low, *high),
    )
    return _Point(*points[:4]), tries


def _cubic_minimum(a: _Point, b: _Point, low: Tensor, high: Tensor) -> Tensor:
    """Returns the minimum, within bounds, of the cubic through two points (lbfgs._cubic_minimum)."""
    swaps = a.t > b.t
    (at, al, _, ag), (bt, bl, _, bg) = _chosen(swaps, b, a), _chosen(swaps, a, b)
    d1 = ag + bg - 3 * (al - bl) / _f.where(at == bt, float("nan"), at - bt)
    square = d1 * d1 - ag * bg
    d2 = square.sqrt()
    bend = bg - ag + 2 * d2
    least = bt - (bt - at) * ((bg + d2 - d1) / bend)
    least = _f.minimum(_f.maximum(least, low), high)
    least = _f.where(bend == 0, _f.where(bg < 0, high, low), least)
    return _f.where(square >= 0, least, (low + high) / 2)


def _inside(t: Tensor, a: Tensor, b: Tensor, stuck: Tensor) -> tuple[Tensor, Tensor]:
    """Moves a point near an end of an interval inwards if this happens twice in a row."""
    left, right = _f.minimum(a, b), _f.maximum(a, b)
    margin = 0.1 * (right - left)
    near = _f.minimum(right - t, t - left) < margin
    moves = near & (stuck | (t >= right) | (t <= left))
    moved = _f.where((t - right).abs() < (t - left).abs(), right - margin, left + margin)
    return _f.where(moves, moved, t), near & ~moves
