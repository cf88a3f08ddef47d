"""Schedules of learning rates. Call ``step()`` after each optimizer step or epoch, depending on the
schedule.

Every schedule sets ``lr`` of its optimizer's groups from the current ``lr`` or from ``initial_lr``, the
rate at the beginning.
"""

from __future__ import annotations

import functools
import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _C
from ..program import defer, refuse
from .optimizer import Optimizer

Tensor = _C.Tensor

__all__ = [
    "LRScheduler",
    "LambdaLR",
    "MultiplicativeLR",
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "LinearLR",
    "ConstantLR",
    "PolynomialLR",
    "SequentialLR",
    "ChainedScheduler",
    "CyclicLR",
    "OneCycleLR",
    "ReduceLROnPlateau",
]


def _for_groups(value: Any, optimizer: Optimizer, name: str) -> list:
    """Returns one value for each group."""
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise ValueError(
            f"expected {len(optimizer.param_groups)} values for {name}, one for each parameter group, got "
            f"{len(value)}"
        )
    return list(value)


def set_rate(group: dict[str, Any], lr: Any) -> None:
    """Sets a group's rate; a tensor is updated in place, because programs read it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def copy_of(lr: Any) -> Any:
    return lr.clone() if isinstance(lr, Tensor) else lr


def _deferred(step: Callable) -> Callable:
    """Makes the program of a traced function call the step behind its own work: it computes with numbers."""

    @functools.wraps(step)
    def f(self: Any, *args: Any, **kwargs: Any) -> None:
        if _C.is_tracing() and not getattr(self, "_is_initial", False):
            if any(isinstance(x, Tensor) for x in (*args, *kwargs.values())):
                refuse(
                    "reads_elements",
                    f"{type(self).__name__}.step",
                    "reads an element of a tensor, which is not computed yet",
                    "call it outside of the traced function",
                )
            if defer(self.optimizer, lambda: f(self, *args, **kwargs)):
                return
        step(self, *args, **kwargs)

    return f


class LRScheduler:
    """Base: subclasses define ``get_lr``, which returns the rates of all groups at ``last_epoch``."""

    _get_lr_called_within_step = False
    _is_initial = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _deferred(cls.__dict__["step"])  # type: ignore[method-assign]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copy_of(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{k}] when resuming scheduler with "
                    "last_epoch >= 0; load the optimizer's state_dict first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._step_count = 0
        self._warned = False
        optimizer._opt_called = False
        # A resumed schedule keeps the rates that the previous one set.
        self._is_initial = True
        self._get_lr_called_within_step = False
        self.step()
        self._is_initial = False

    def get_lr(self) -> list[float]:
        """Returns the next rates, for a step. Subclasses define this; those of this module define
        ``_rates``.
        """
        if not self._get_lr_called_within_step:
            import warnings

            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=2,
            )
        return self._rates()

    def _rates(self) -> list[float]:
        raise NotImplementedError(f"{type(self).__name__} must define get_lr()")

    def _next(self) -> list[float]:
        """Calls get_lr for a step; a call by the user warns instead, since it may change the schedule's
        state.
        """
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _current(self) -> list[float]:
        return [copy_of(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """Returns the rates that the last step set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Advances by one, or to ``epoch``."""
        self._step_count += 1
        if self._step_count == 2 and not self.optimizer._opt_called and not self._warned:
            import warnings

            self._warned = True
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them "
                "in the opposite order; "
                "otherwise the first value of the learning rate schedule is skipped.",
                UserWarning,
                stacklevel=2,
            )
        if epoch is None:
            self.last_epoch += 1
            rates = self._next()
        else:
            self.last_epoch = epoch
            closed_form = getattr(self, "_get_closed_form_lr", None)
            rates = closed_form() if closed_form else self._next()
        for group, lr in zip(self.optimizer.param_groups, rates):
            set_rate(group, lr)
        self._last_lr = self._current()

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_warned")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)


LRScheduler.step = _deferred(LRScheduler.step)  # type: ignore[method-assign]
_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """Sets initial_lr * lr_lambda(epoch)."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas: list[Callable[[int], float]] = _for_groups(lr_lambda, optimizer, "lr_lambda")
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]

    def state_dict(self) -> dict[str, Any]:
        """Excludes functions; the attributes of callable objects are included."""
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else f.__dict__.copy() for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("lr_lambdas")
        super().load_state_dict(state)
        for f, attributes in zip(self.lr_lambdas, saved):
            if attributes is not None:
                f.__dict__.update(attributes)


class MultiplicativeLR(LambdaLR):
    """Multiplies by lr_lambda(epoch) at every step."""

    def _rates(self) -> list[float]:
        if self._is_initial:
            return self._current()
        return [lr * f(self.last_epoch) for lr, f in zip(self._current(), self.lr_lambdas)]


class StepLR(LRScheduler):
    """Multiplies by ``gamma`` every ``step_size`` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current()
        return [lr * self.gamma for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies by ``gamma`` at each of the milestones."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self.last_epoch not in self.milestones:
            return self._current()
        return [lr * self.gamma ** self.milestones[self.last_epoch] for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        milestones = sorted(m for m, count in self.milestones.items() for _ in range(count))
        passed = bisect_right(milestones, self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies by ``gamma`` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        return self._current() if self._is_initial else [lr * self.gamma for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` epochs, then up again.  Loshchilov
    and Hutter, 2016.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self._is_initial:
            return self._current()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (
            2 * self.T_max
        ) == 0:  # the previous rate was eta_min, so there is no ratio to it
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - self.eta_min) * rise for base, lr in zip(self.base_lrs, self._current())]
        ratio = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / (
            1 + math.cos(math.pi * (self.last_epoch - 1) / self.T_max)
        )
        return [ratio * (lr - self.eta_min) + self.eta_min for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        part = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_0`` epochs; each restart is ``T_mult``
    times longer.

    ``step(epoch)`` accepts fractions of epochs.  Loshchilov and Hutter, 2016.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min = T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        part = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self.T_cur, self.T_i = epoch, self.T_0
            if self.T_mult == 1:
                self.T_cur %= self.T_0
            while self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        self._step_count += 1
        self.last_epoch = math.floor(epoch)
        for group, lr in zip(self.optimizer.param_groups, self._next()):
            set_rate(group, lr)
        self._last_lr = self._current()


class LinearLR(LRScheduler):
    """A factor that changes linearly from ``start_factor`` to ``end_factor`` in ``total_iters`` epochs,
    then stays.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._current()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        factor = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return [lr * factor for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [
            base * (self.start_factor + (self.end_factor - self.start_factor) * done)
            for base in self.base_lrs
        ]


class ConstantLR(LRScheduler):
    """Multiplies by ``factor`` for the first ``total_iters`` epochs."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._current()]
        return (
            [lr / self.factor for lr in self._current()]
            if self.last_epoch == self.total_iters
            else self._current()
        )

    def _get_closed_form_lr(self) -> list[float]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Sets initial_lr * (1 - epoch / total_iters) ** power, then 0."""

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        left = (1.0 - self.last_epoch / self.total_iters) / (1.0 - (self.last_epoch - 1) / self.total_iters)
        return [lr * left**self.power for lr in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class _Several(LRScheduler):
    """Schedules of one optimizer."""

    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        for s, saved in zip(self._schedulers, state.pop("_schedulers")):
            s.load_state_dict(saved)
        self.__dict__.update(state)


class ChainedScheduler(_Several):
    """Several schedules at once: each multiplies the result of the ones before it."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler."
            )
        optimizer = optimizer or schedulers[0].optimizer
        for k, s in enumerate(schedulers):
            if isinstance(s, ReduceLROnPlateau):
                raise ValueError(
                    "ChainedScheduler does not support `ReduceLROnPlateau` scheduler as it requires "
                    "additional "
                    "kwargs to be specified when calling `step`, but got one at index "
                    f"{k} in the given schedulers sequence."
                )
            if s.optimizer is not optimizer:
                raise ValueError(
                    f"ChainedScheduler expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler "
                    f"{type(s).__name__} at index {k} has another one."
                )
        self._schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        for s in self._schedulers:
            s.step()
        self._last_lr = self._current()


class SequentialLR(_Several):
    """One schedule after the other; at each milestone the next one begins at its own epoch 0."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise ValueError(
                "SequentialLR expects at least one scheduler to be chained, but got no scheduler."
            )
        for k, s in enumerate(schedulers):
            if s.optimizer is not optimizer:
                raise ValueError(
                    f"SequentialLR expects all schedulers to belong to its optimizer, but scheduler {k} "
                    f"does not"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone less than schedulers, but got {len(schedulers)} "
                f"schedulers and "
                f"{len(milestones)} milestones"
            )
        self.optimizer = optimizer
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch = last_epoch + 1
        # The constructors of the schedules have stepped each of them once: restore the initial rates, and
        # step only the first one.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        for s in self._schedulers:
            s.last_epoch -= 1
            s._step_count -= 1
        self._schedulers[0].step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        if at > 0 and self._milestones[at - 1] == self.last_epoch:
            self._schedulers[at].step(0)
        else:
            self._schedulers[at].step()
        self._last_lr = self._schedulers[at].get_last_lr()


class _WithMomentum(LRScheduler):
    """Schedules that also set the momentum, or Adam's first beta."""

    use_beta1: bool

    def _begin_momentum(self, optimizer: Optimizer, low: Any, high: Any, fresh: bool) -> None:
        self.use_beta1 = "betas" in optimizer.defaults
        if not self.use_beta1 and "momentum" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        if fresh:
            lows = _for_groups(low, optimizer, "base_momentum")
            highs = _for_groups(high, optimizer, "max_momentum")
            for group, base, top in zip(optimizer.param_groups, lows, highs):
                self._set_momentum(group, top)
                group["max_momentum"], group["base_momentum"] = top, base

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Cycles from ``base_lr`` up to ``max_lr`` in ``step_size_up`` batches, and down again.

    ``mode``: "triangular"; "triangular2" halves the height every cycle; "exp_range" scales it by gamma **
    batch; or ``scale_fn`` of the cycle or batch (``scale_mode``).  Smith, 2015.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        base_lrs = _for_groups(base_lr, optimizer, "base_lr")
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, base_lrs):
                set_rate(group, lr)
        self.max_lrs = _for_groups(max_lr, optimizer, "max_lr")
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode, self.cycle_momentum = scale_mode, cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch == -1)
            self.base_momentums = [group["base_momentum"] for group in optimizer.param_groups]
            self.max_momentums = [group["max_momentum"] for group in optimizer.param_groups]
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 0.5 ** (x - 1) if self.mode == "triangular2" else self.gamma**x

    def _rates(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                top = group["max_momentum"]
                self._set_momentum(group, top - (top - group["base_momentum"]) * height)
        return [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Excludes the function; the attributes of a callable object are included."""
        state = super().state_dict()
        f = state.pop("_scale_fn_custom")
        keep = f is not None and not isinstance(f, types.FunctionType)
        state["_scale_fn_custom"] = f.__dict__.copy() if keep else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom")
        super().load_state_dict(state)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


class OneCycleLR(_WithMomentum):
    """From max_lr / div_factor up to ``max_lr``, then down to max_lr / (div_factor * final_div_factor);
    momentum moves in the opposite direction.

    Steps count batches. Source: Smith and Topin, "Super-Convergence", 2017.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
            for name, value in (("epochs", epochs), ("steps_per_epoch", steps_per_epoch)):
                if not isinstance(value, int) or value <= 0:
                    raise ValueError(f"Expected positive integer {name}, but got {value}")
            total_steps = epochs * steps_per_epoch
        elif not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.total_steps = total_steps
        peak = float(pct_start * total_steps) - 1
        ends = [(peak, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            ends.append(
                (
                    float(2 * pct_start * total_steps) - 2,
                    "max_lr",
                    "initial_lr",
                    "base_momentum",
                    "max_momentum",
                )
            )
            ends.append((total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"))
        else:
            ends.append((total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum"))
        keys = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        self._schedule_phases = [dict(zip(keys, end)) for end in ends]
        self._anneal_func_type = anneal_strategy
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, _for_groups(max_lr, optimizer, "max_lr")):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch == -1)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def _rates(self) -> list[float]:
        at = self.last_epoch
        if at > self.total_steps:
            raise ValueError(
                f"Tried to step {at} times. The specified number of total steps is {self.total_steps}"
            )
        begin = 0.0
        for phase in self._schedule_phases:
            if at <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        part = (at - begin) / (phase["end_step"] - begin) if phase["end_step"] != begin else 1.0
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                self._set_momentum(
                    group, self._anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], part)
                )
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Multiplies by ``factor`` when a metric, passed to ``step(metric)``, has not improved for more than
    ``patience`` epochs.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.optimizer = optimizer
        self.factor = factor
        min_lrs = _for_groups(min_lr, optimizer, "min_lr")
        self.default_min_lr, self.min_lrs = min_lrs[0], min_lrs
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.last_epoch = 0
        self._last_lr = self._current()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return sign * a < sign * best * (1 - sign * self.threshold)
        return sign * a < sign * best - self.threshold

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, low in zip(self.optimizer.param_groups, self.min_lrs):
                lr = max(group["lr"] * self.factor, low)
                if group["lr"] - lr > self.eps:
                    set_rate(group, lr)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._current()
