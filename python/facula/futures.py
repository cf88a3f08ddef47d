"""Futures: results that become available later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an exception, that one thread sets once; others wait for it, or register callbacks.

    >>> f = facula.futures.Future()
    >>> g = f.then(lambda done: done.value() + 1)
    >>> f.set_result(2)
    >>> g.wait()
    3
    """

    def __init__(self, *, devices: list | None = None) -> None:
        self._lock = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable] = []

    def done(self) -> bool:
        """Returns whether the result is set."""
        return self._done

    def wait(self) -> T:
        """Waits until the result is set; returns the value or raises the exception."""
        with self._lock:
            self._lock.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """Returns the value, which must have been set, or raises the exception."""
        if not self._done:
            raise RuntimeError("Future.value(): the future is not done; wait() for it")
        if self._error is not None:
            raise self._error
        return self._value

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again.  Note that a Future can "
                    "only be "
                    "marked completed once."
                )
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._lock.notify_all()
        for f in callbacks:
            f(self)

    def set_result(self, result: T) -> None:
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._set(None, result)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Calls ``callback(self)`` when the result is set, or now; an exception of the callback is logged
        only.
        """

        def guarded(future: Future[T]) -> None:
            try:
                callback(future)
            except Exception:
                import traceback

                traceback.print_exc()

        self._when_done(guarded)

    def _when_done(self, callback: Callable) -> None:
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Returns a future for the result of ``callback(self)``, which is called when this one is done."""
        following: Future[S] = Future()

        def run(future: Future[T]) -> None:
            try:
                value = callback(future)
            except BaseException as e:
                following.set_exception(e)
            else:
                following.set_result(value)

        self._when_done(run)
        return following


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """Returns a future of the list, which is done when all are."""
    result: Future[list[Future]] = Future()
    left, lock = len(futures), threading.Lock()
    if not futures:
        result.set_result([])

    def one(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            result.set_result(futures)

    for f in futures:
        f._when_done(one)
    return result


def wait_all(futures: list[Future]) -> list:
    """Returns the values of all; raises the first exception."""
    return [f.wait() for f in collect_all(futures).wait()]
