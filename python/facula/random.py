"""The default generator of random numbers, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from . import manual_seed
from ._C import default_generator
from ._queries import get_rng_state, initial_seed, seed, set_rng_state

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


@contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Restores the default generator's state after the ``with`` block.

    >>> with facula.random.fork_rng():
    ...     x = facula.rand(3)
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)


def thread_safe_generator() -> Any:
    """Returns the generator of the worker in which a sampler runs; None in the main process."""
    from ._torch_names import thread_safe_generator as of_worker

    return of_worker()
