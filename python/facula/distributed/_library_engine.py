"""The base of engines in shared libraries (MPI, NCCL): a thread that executes operations in order.

An engine has the methods of ``facula._C.Group`` that a ProcessGroup calls, so that all checks and layouts are
those of the group.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["LibraryEngine", "ThreadWork", "opened"]


def opened(variable: str, names: Sequence[str]) -> ctypes.CDLL | None:
    """Opens the shared library that the environment variable names, or the first of ``names`` that exists."""
    return _first_of((os.environ[variable],) if os.environ.get(variable) else tuple(names))


@functools.cache
def _first_of(names: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


class ThreadWork:
    """An operation of an engine, with the methods of ``facula._C.GroupWork``."""

    def __init__(self) -> None:
        self._done, self._lock = threading.Event(), threading.Lock()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._source, self._nanoseconds = -1, 0

    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        return self._done.wait(min(seconds, 1e6))

    def error(self) -> BaseException | None:
        return self._error

    def source(self) -> int:
        return self._source

    def duration_ns(self) -> int:
        return self._nanoseconds

    def then(self, f: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_done():
                self._callbacks.append(f)
                return
        f()

    def perform(self, f: Callable[[], int | None]) -> None:
        began = time.monotonic_ns()
        try:
            source = f()
            self._source = -1 if source is None else source
        except Exception as error:
            self._error = error
        self._nanoseconds = time.monotonic_ns() - began
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class LibraryEngine:
    """Executes the operations of one group on one thread. Subclasses define ``_collective``, ``_message``."""

    name = ""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._sequence, self._reason, self._left = 0, "", False
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_execute, args=(self._queue,), daemon=True).start()

    def _collective(
        self, kind: Any, inputs: list[Any], outputs: list[Any], reduction: int, root: int
    ) -> None:
        raise NotImplementedError

    def _message(self, is_send: bool, tensor: Any, peer: int, tag: int) -> int:
        raise NotImplementedError

    def _submit(self, f: Callable[[], int | None]) -> ThreadWork:
        if self._reason or self._left:
            raise RuntimeError(self._reason or f"{self.name}: the group was destroyed")
        work = ThreadWork()
        self._queue.put((work, f))
        return work

    def collective(
        self,
        kind: int,
        inputs: list[Any],
        outputs: list[Any],
        reduction: int,
        root: int,
        timeout: float,
        wait: bool,
    ) -> ThreadWork | None:
        from ._process_group import Kind

        self._sequence += 1
        work = self._submit(lambda: self._collective(Kind(kind), inputs, outputs, reduction, root))
        if not wait:
            return work
        if not work.wait(timeout):
            self.abort(f"{self.name}: Timed out waiting {round(timeout * 1000)}ms for {Kind(kind).name}")
            raise RuntimeError(self._reason)
        if work.error() is not None:
            raise work.error()  # type: ignore[misc]
        return None

    def all_reduce(self, tensor: Any, reduction: int, timeout: float) -> bool:
        return False  # collective() does it

    def message(self, is_send: bool, tensor: Any, peer: int, tag: int, timeout: float) -> ThreadWork:
        return self._submit(lambda: self._message(is_send, tensor, peer, tag))

    def sequence(self) -> int:
        return self._sequence

    def abort(self, reason: str) -> None:
        self._reason = self._reason or reason

    def leave(self) -> None:
        if not self._left:
            self._left = True
            done = ThreadWork()
            self._queue.put((done, self._free))
            done.wait(60)
            self._queue.put(None)

    def _free(self) -> None:
        """Releases what the library holds for the group."""


def _execute(tasks: queue.SimpleQueue[Any]) -> None:
    while (task := tasks.get()) is not None:
        work, f = task
        work.perform(f)
