"""Watching worker processes by signals: workers are watched by their sockets, so there is nothing to set."""

from __future__ import annotations

from typing import Any


def _set_SIGCHLD_handler() -> None:
    """No handler is needed: a worker that ends closes its socket."""


def _set_worker_signal_handlers(*args: Any) -> None:
    """No handler is needed."""


def _set_worker_pids(loader: int, pids: tuple[int, ...]) -> None:
    """Nothing watches them."""


def _remove_worker_pids(loader: int) -> None:
    """Nothing watches them."""
