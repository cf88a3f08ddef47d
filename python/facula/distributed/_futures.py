"""Futures of collectives. Functions that ``then`` attaches run on the thread that waits for their results,
so that
collectives inside of them are called in the same order on all ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..futures import Future

__all__ = ["DeferredFuture"]


class DeferredFuture(Future):
    """A value that the first thread that waits for it computes.

    ``source`` tells whether what it depends on is complete, and calls a function when it is.
    """

    def __init__(self, compute: Callable[[], Any], source: Any) -> None:
        super().__init__()
        self._compute, self._source = compute, source
        self._computing = threading.RLock()

    def _settle(self) -> None:
        with self._computing:
            if self._done:
                return
            try:
                value = self._compute()
            except BaseException as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def done(self) -> bool:
        return self._done or bool(self._source.is_completed())

    def wait(self) -> Any:
        self._settle()
        return super().value()

    def value(self) -> Any:
        if not self._done and self._source.is_completed():
            self._settle()
        return super().value()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        def compute() -> Any:
            self._settle()
            return callback(self)

        return DeferredFuture(compute, self._source)

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        super().add_done_callback(callback)
        if not self._done:
            self._source._when_done(self._settle)
