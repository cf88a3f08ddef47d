"""Communication hooks for DistributedDataParallel."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from . import debugging_hooks as debugging
from . import default_hooks as default
from . import post_localSGD_hook as post_localSGD_hook
from . import powerSGD_hook as powerSGD
from . import quantization_hooks as quantization

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


def _plain(hook: Any, model: Any, state: Any) -> None:
    model.register_comm_hook(state, hook)


def _with_rank(hook: Any, model: Any, state: Any, rank: int) -> None:
    model.register_comm_hook(powerSGD.PowerSGDState(state, matrix_approximation_rank=rank), hook)


class DDPCommHookType(Enum):
    """The hooks by name; each value registers its hook with (model=, state=)."""

    ALLREDUCE = partial(_plain, default.allreduce_hook)
    FP16_COMPRESS = partial(_plain, default.fp16_compress_hook)
    BF16_COMPRESS = partial(_plain, default.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = partial(_plain, quantization.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = partial(_plain, quantization.quantization_perchannel_hook)
    POWER_SGD = partial(_with_rank, powerSGD.powerSGD_hook, rank=1)
    POWER_SGD_RANK2 = partial(_with_rank, powerSGD.powerSGD_hook, rank=2)
    BATCHED_POWER_SGD = partial(_with_rank, powerSGD.batched_powerSGD_hook, rank=1)
    BATCHED_POWER_SGD_RANK2 = partial(_with_rank, powerSGD.batched_powerSGD_hook, rank=2)
    NOOP = partial(_plain, debugging.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Registers a hook for a model; ``state`` is what the hook takes, or a group."""
    comm_hook_type.value(model=model, state=state)
