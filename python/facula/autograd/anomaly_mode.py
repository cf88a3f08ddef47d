"""Anomaly detection: an error in backward, or a NaN that it produces, is reported with the line of the
forward call.
"""

from __future__ import annotations

from .. import _C

is_anomaly_enabled = _C.is_anomaly_enabled
is_anomaly_check_nan_enabled = _C.is_anomaly_check_nan_enabled


class set_detect_anomaly:
    """Switches anomaly detection immediately; as a context manager, until the end of the block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (_C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled())
        _C.set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _C.set_anomaly(*self._before)


class detect_anomaly:
    """Enables anomaly detection within a ``with`` block. Slow: for debugging."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan

    def __enter__(self) -> None:
        self._before = (_C.is_anomaly_enabled(), _C.is_anomaly_check_nan_enabled())
        _C.set_anomaly(True, self._check_nan)

    def __exit__(self, *exc: object) -> None:
        _C.set_anomaly(*self._before)
