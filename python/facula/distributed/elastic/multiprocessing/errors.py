"""Errors of processes that a launcher started, written to the file in TORCHELASTIC_ERROR_FILE."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["record"]


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """Wraps the function: an exception is written to the launcher's file before it propagates."""

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code in (0, None):
                raise
            _write(end)
            raise
        except Exception as error:
            _write(error)
            raise

    return recorded


def _write(error: BaseException) -> None:
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        facts = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        text = f"{type(error).__name__}: {error}"
        with open(path, "w") as file:
            json.dump({"message": {"message": text, "extraInfo": facts}}, file)
