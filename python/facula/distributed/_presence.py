"""Presence: how processes that meet over a store learn that one of them has died or cannot be reached."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from ._stores import DistError, DistStoreError, Store

__all__ = ["PeerLostError", "Presence"]

# Seconds for which a process that serves the store lets the others, who look every 50 ms, learn of a loss.
MOST_WAIT = 0.12


class PeerLostError(DistError):
    """Another process has died, was stopped, or cannot be reached. ``number`` says which."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


class Presence:
    """The mark of one of ``count`` processes in a store, and a look at those of the others.

    The server of a TCPStore sets the mark of a process when its heartbeats end before ``leave``. Other stores
    have no server that could do so: processes that meet there notice at the timeout.
    """

    def __init__(self, store: Store, number: int, count: int, title: str, noun: str, event: str) -> None:
        self._store, self._number, self._marks = store, number, [f"gone/{k}" for k in range(count)]
        self._title, self._noun, self.event = title, noun, event
        store._apply("_hold", self._marks[number])

    def narrow(self, count: int) -> None:
        """Only the first ``count`` processes are of interest from now on."""
        self._marks = self._marks[: max(count, self._number + 1)]

    def leave(self) -> None:
        """The end of this process is of no interest any more."""
        self._store._apply("_drop", self._marks[self._number])

    def fail(self, error: BaseException) -> None:
        """Tells the others that this process gives up, and why."""
        reason = (str(error) or type(error).__name__).splitlines()[0]
        with contextlib.suppress(DistError):
            self._store.set(self._marks[self._number], f"failed ({reason})")
            self.leave()

    def lost(self) -> list[int]:
        """Returns which of the others are gone."""
        there = set(self._store._apply("_missing", *self._marks))
        return [k for k, mark in enumerate(self._marks) if mark not in there and k != self._number]

    def check(self) -> None:
        """Raises PeerLostError if one of the others is gone."""
        for k in self.lost():
            how = self._store._apply("_get", self._marks[k])
            self._tell()
            text = f"{self._title}: {self._noun} {k} {(how or b'died').decode()} before {self.event}"
            raise PeerLostError(text, k)

    def _tell(self) -> None:
        """Leaves, as this process is not the cause. A process that serves the store waits until the others
        know of the loss: they would take it for the cause if it ended before.
        """
        self.leave()
        store = getattr(self._store, "_underlying_non_prefix_store", self._store)
        self._store.set(f"told/{self._number}", "1")
        end = time.monotonic() + MOST_WAIT
        while getattr(store, "_server", None) is not None and time.monotonic() < end:
            lost = [self._number, *self.lost()]
            others = [f"told/{k}" for k in range(len(self._marks)) if k not in lost]
            if not others or self._store.check(others):
                return
            time.sleep(0.005)

    def gather(self, keys: list[str], check: Callable[[], None] | None = None) -> list[bytes]:
        """Returns the values of the keys when all are set; raises PeerLostError, or DistStoreError after the
        timeout of the store. ``check`` is called while it waits, in place of this object's.
        """
        store, limit = self._store, self._store.timeout.total_seconds()
        end, pause = time.monotonic() + limit, 0.001
        while missing := store._apply("_missing", *keys):
            (check or self.check)()
            if time.monotonic() > end:
                raise DistStoreError(
                    f"wait timeout after {round(limit * 1000)}ms, keys: {', '.join(missing)}"
                )
            store._pause(pause)
            pause = min(2 * pause, 0.05)
        return [store.get(key) for key in keys]
