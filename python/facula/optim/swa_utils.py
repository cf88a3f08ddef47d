"""Averages of models: stochastic weight averaging and exponential moving averages.

Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from ..nn.modules.batchnorm import _BatchNorm
from ..nn.modules.module import Module
from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Tensor = _C.Tensor


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns a function that computes decay * average + (1 - decay) * value for one tensor."""
    _check_decay(decay)
    return lambda average, value, count: decay * average + (1 - decay) * value


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Returns a function that computes the mean of all values so far for one tensor."""
    return lambda average, value, count: average + (value - average) / (count + 1)


def _of_all(one: Callable[[Tensor, Tensor, Any], Tensor]) -> Callable[[list, list, Any], None]:
    def update(averages: list[Tensor], values: list[Tensor], count: Any) -> None:
        with _C.GradMode(False):
            for average, value in zip(averages, values):
                average.copy_(one(average, value, count))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list, list, Any], None]:
    """Returns get_ema_avg_fn for lists, in place."""
    return _of_all(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable[[list, list, Any], None]:
    """Returns get_swa_avg_fn for lists, in place."""
    return _of_all(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model whose parameters are an average of those that update_parameters() has seen.

    ``avg_fn(average, value, count)`` returns a new average of one tensor, ``multi_avg_fn`` changes lists
    in place; by default it is the mean. ``use_buffers`` averages buffers too; otherwise they are copied
    from the last model.

    >>> model = nn.Linear(2, 1)
    >>> average = facula.optim.swa_utils.AveragedModel(model)
    >>> average.update_parameters(model)
    >>> average.n_averaged
    tensor(1)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[list, list, Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _tensors(self, model: Module) -> list[Tensor]:
        buffers = model.buffers() if self.use_buffers else ()
        return [t.detach() for t in (*model.parameters(), *buffers)]

    def update_parameters(self, model: Module) -> None:
        """Includes a model's parameters in the average."""
        averages, values = self._tensors(self.module), self._tensors(model)
        update = self.multi_avg_fn or _of_all(self.avg_fn or get_swa_avg_fn())
        if self.n_averaged == 0:
            update = _of_all(lambda average, value, count: value)
        update(averages, values, self.n_averaged)
        if not self.use_buffers:
            for ours, theirs in zip(self.module.buffers(), model.buffers()):
                ours.detach().copy_(theirs.detach())
        self.n_averaged += 1


def _start_norms(model: Module) -> list[Any]:
    """Resets the batch norms, which then weight every batch equally; returns them with their previous
    momenta.
    """
    norms = [(m, m.momentum) for m in model.modules() if isinstance(m, _BatchNorm)]
    for norm, _ in norms:
        norm.reset_running_stats()
        norm.momentum = None
    return norms


def _end_norms(norms: list[Any]) -> None:
    for norm, momentum in norms:
        norm.momentum = momentum


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of all batch norms by one pass over ``loader``.

    Its batches are tensors, or lists whose first item is the model's input.
    """
    norms, training = _start_norms(model), model.training
    if not norms:
        return
    with _C.GradMode(False):
        model.train()
        for batch in loader:
            x = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(x if device is None else x.to(device))
    _end_norms(norms)
    model.train(training)


class SWALR(LRScheduler):
    """Moves each group's rate to ``swa_lr`` within ``anneal_epochs``, and keeps it there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                "swa_lr must have the same length as optimizer.param_groups: "
                f"swa_lr has {len(rates)}, optimizer.param_groups has {len(groups)}"
            )
        for rate, group in zip(rates, groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs, self._anneal_strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """Returns the completed fraction of the annealing after ``step`` steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def _rates(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._part(step - 1), self._part(step)
        rates = []
        for group in self.optimizer.param_groups:
            to = group["swa_lr"]
            start = to if before == 1 else (group["lr"] - before * to) / (1 - before)
            rates.append(to * now + start * (1 - now))
        return rates
