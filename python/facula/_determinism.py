"""The determinism switches. Results have the same bits for any number of threads, whatever they say: they
only control the contents of ``empty``, and are stored.
"""

from __future__ import annotations

from . import _C

_PRECISIONS = ("highest", "high", "medium")
_precision = "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Sets how exact products of float32 matrices are on processors with a matrix unit for bfloat16
    (Intel AMX). Other processors compute in float32, whatever it says.

    ``"highest"``: errors as of a chain of float32 additions; ``"high"``: about 2^-16 of ``|a| @ |b|``;
    ``"medium"``: bfloat16's.
    """
    global _precision
    if precision in _PRECISIONS:
        _precision = precision
        _C.set_matmul_precision(_PRECISIONS.index(precision))
        return
    import warnings

    warnings.warn(
        f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
        "setFloat32MatmulPrecision call has no effect.",
        UserWarning,
        stacklevel=2,
    )


def get_float32_matmul_precision() -> str:
    """Returns the value from set_float32_matmul_precision."""
    return _precision


_state = {"enabled": False, "warn_only": False, "fill": True}


def _apply() -> None:
    _C.set_fill_uninitialized(_state["enabled"] and _state["fill"])


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Requests deterministic operators, which all are; new tensors without a value are filled from then
    on.
    """
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms: mode must be bool, not {type(mode).__name__}")
    _state.update(enabled=mode, warn_only=bool(warn_only))
    _apply()


def are_deterministic_algorithms_enabled() -> bool:
    return _state["enabled"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return _state["warn_only"]


def set_deterministic(d: bool) -> None:
    """The former name of ``use_deterministic_algorithms``."""
    use_deterministic_algorithms(d)


def is_deterministic() -> bool:
    """The former name of ``are_deterministic_algorithms_enabled``."""
    return _state["enabled"]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Sets 0 or "default", 1 or "warn", 2 or "error"."""
    names = ("default", "warn", "error")
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in names:
            raise RuntimeError(f"debug_mode must be one of {', '.join(names)}, but got {debug_mode}")
        debug_mode = names.index(debug_mode)
    if not 0 <= debug_mode <= 2:
        raise RuntimeError(f"debug_mode must be 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    return 0 if not _state["enabled"] else 1 if _state["warn_only"] else 2
