"""SyncBatchNorm over several processes: statistics of the batches of all ranks."""

from __future__ import annotations

from .. import _C
from ..nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from ._groups import get_world_size, is_initialized
from .nn.functional import all_reduce

Tensor = _C.Tensor


def _forward(self: SyncBatchNorm, input: Tensor) -> Tensor:
    """Normalises with the mean and variance of all ranks. Ranks may have batches of different sizes.

    The mean is reduced first and the squared deviations from it second, so that no digits cancel.
    """
    of_batch = self.training or self.running_mean is None
    if not of_batch or not is_initialized() or get_world_size(self.process_group) == 1:
        return _BatchNorm.forward(self, input)
    self._check_input_dim(input)
    dims = [0, *range(2, input.dim())]
    shape = [1, -1] + [1] * (input.dim() - 2)
    x = input.float() if input.dtype in (_C.float16, _C.bfloat16) else input
    count = _C.tensor([float(input.numel() // input.size(1))], dtype=x.dtype)
    totals = all_reduce(_C.functions.cat([x.sum(dims), count]), group=self.process_group)
    count = totals[-1:].detach()
    mean = totals[:-1] / count
    centered = x - mean.reshape(shape)
    variance = all_reduce(centered.square().sum(dims), group=self.process_group) / count
    if self.training and self.track_running_stats:
        _update(self, mean.detach(), variance.detach() * (count / (count - 1)))
    y = centered * (variance + self.eps).rsqrt().reshape(shape)
    if self.weight is not None:
        y = y * self.weight.reshape(shape)
    if self.bias is not None:
        y = y + self.bias.reshape(shape)
    return y.to(input.dtype)


def _update(module: SyncBatchNorm, mean: Tensor, variance: Tensor) -> None:
    momentum = module.momentum
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1.0 / float(module.num_batches_tracked)
    for running, value in ((module.running_mean, mean), (module.running_var, variance)):
        if running is not None:
            running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)


def install() -> None:
    """Gives SyncBatchNorm its forward pass over processes. A program of one process never imports it."""
    SyncBatchNorm.forward = _forward  # type: ignore[method-assign]
