"""Errors for the names of torchvision that the stand-in lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

HINT = "`pip install --no-deps torchvision` installs the real torchvision, which is then used and works"


def naming(module: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module of the stand-in."""

    def getattribute(name: str) -> NoReturn:
        raise AttributeError(
            f"module '{module}' has no attribute '{name}': "
            "Facula's stand-in for torchvision has only a part of it\n"
            f"  hint: {HINT}"
        )

    return getattribute


def no_weights(name: str, weights: Any) -> None:
    """Refuses weights that would be downloaded."""
    if weights not in (None, False):
        raise NotImplementedError(
            f"torchvision.models.{name}: Facula's stand-in for torchvision has no trained weights, "
            f"asked for {weights}\n"
            f"  hint: load a file of them by load_state_dict, whose names are the same; or: {HINT}"
        )
