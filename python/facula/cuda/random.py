"""Random number generators of GPUs: there are none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def manual_seed(seed: int) -> None:
    """Has no effect: there is no generator."""


def manual_seed_all(seed: int) -> None:
    """Has no effect: there is no generator."""


def seed() -> None:
    """Has no effect: there is no generator."""


def seed_all() -> None:
    """Has no effect: there is no generator."""


def get_rng_state(device: Any = "cuda") -> _C.Tensor:
    raise AssertionError("Facula not compiled with CUDA enabled")


def get_rng_state_all() -> list[_C.Tensor]:
    """Returns the state of each GPU's generator: an empty list."""
    return []


def set_rng_state(new_state: _C.Tensor, device: Any = "cuda") -> None:
    """Has no effect: PyTorch stores the state until CUDA starts, which does not happen here."""


def set_rng_state_all(new_states: Iterable[_C.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
