"""Optimization of TorchScript modules for phones. Facula has no TorchScript: the names that programs import
are here, and the functions raise when they are called.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from .. import _C

__all__ = ["LintCode", "generate_mobile_module_lints", "optimize_for_mobile"]


class LintCode(Enum):
    """The findings of a check of a module for phones."""

    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"mobile_optimizer.{name}: there are no TorchScript modules, and no runtime of phones reads "
        f"Facula's\n"
        f"  hint: {_C.package_name()}.save(module.state_dict(), file) writes the weights in PyTorch's format"
    )


def optimize_for_mobile(
    script_module: Any,
    optimization_blocklist: set[Any] | None = None,
    preserved_methods: list[Any] | None = None,
    backend: str = "CPU",
) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("optimize_for_mobile")


def generate_mobile_module_lints(script_module: Any) -> NoReturn:
    """Raises NotImplementedError."""
    _refuse("generate_mobile_module_lints")
