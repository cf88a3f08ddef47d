"""How modules convert and load parameters: by setting their data, by creating new ones, or by swapping
them.
"""

from __future__ import annotations

_overwrite = _swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Sets whether ``module.to(...)`` and similar calls create new parameters; holders of the old ones
    keep these.
    """
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Sets whether ``module.to(...)`` and ``load_state_dict`` swap the contents of parameters with new
    tensors (:func:`facula.utils.swap_tensors`), so that a parameter remains the same object when its type
    changes.
    """
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    return _swap
