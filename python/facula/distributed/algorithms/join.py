"""Training with uneven inputs over processes. With one process there is nothing to join."""

from __future__ import annotations

from typing import Any

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    def main_hook(self) -> None:
        """Called while another process is still training."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called after all processes have joined."""


class Joinable:
    pass


class Join:
    """Has no effect: the only process never waits for another one."""

    def __init__(
        self, joinables: Any, enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        self.joinables = list(joinables)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        return None
