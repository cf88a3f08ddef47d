"""How modules convert and load parameters: by setting their data, by new ones, or by exchanging them."""

from __future__ import annotations

_overwrite = _swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether ``module.to(...)`` and the like make new parameters; who holds the old ones keeps them."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether ``module.to(...)`` and ``load_state_dict`` exchange what parameters are with new tensors
    (:func:`facula.utils.swap_tensors`), so that a parameter stays the same object whatever its type becomes.
    """
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    return _swap
