"""PyTorch's inner place of what concerns workers."""

from __future__ import annotations

import os
from typing import Any

from ..worker import WorkerInfo as WorkerInfo
from ..worker import get_worker_info as get_worker_info


def __getattr__(name: str) -> Any:
    if name == "_worker_info":
        return get_worker_info()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


class _IterableDatasetStopIteration:
    """A worker's message that its part of a stream has ended."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id


class _ResumeIteration:
    """The message with which workers begin another pass."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed


class ManagerWatchdog:
    """Tells a worker whether the process that began it still runs."""

    def __init__(self) -> None:
        self.manager_pid, self.manager_dead = os.getppid(), False

    def is_alive(self) -> bool:
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four words of 32 bits that seed NumPy's generator in a worker: those of NumPy's SeedSequence."""
    import numpy

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(word) for word in numpy.random.SeedSequence(entropy).generate_state(4)]
