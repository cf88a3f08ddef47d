"""Events and statistics of running programs, which registered handlers receive.

>>> from datetime import timedelta
>>> handle = facula.monitor.register_event_handler(lambda event: print(event.name, event.data))
>>> losses = facula.monitor.Stat("loss", [facula.monitor.MEAN], timedelta(hours=1), max_samples=2)
>>> losses.add(1.0)
>>> losses.add(2.0)
torch.monitor.Stat {'loss.mean': 1.5}
>>> facula.monitor.unregister_event_handler(handle)
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

__all__ = [
    "Aggregation", "COUNT", "Event", "EventHandlerHandle", "MAX", "MEAN", "MIN", "STAT_EVENT", "SUM", "Stat",
    "TensorboardEventHandler", "VALUE", "data_value_t", "log_event", "register_event_handler",
    "unregister_event_handler",
]  # fmt: skip

STAT_EVENT = "torch.monitor.Stat"


class Aggregation(Enum):
    """The aggregation of a :class:`Stat` over the values of a window."""

    VALUE = 0  # the last value
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6

    def __str__(self) -> str:
        return f"Aggregation.{self.name}"

    def __int__(self) -> int:
        return self.value


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation


class data_value_t:
    """The types of values in an event's data: ``str``, ``float``, ``int`` or ``bool``."""

    def __init__(self) -> None:
        raise TypeError("data_value_t stands for str, float, int and bool, and is not constructed")


class Event:
    """An event: the name of its kind, its time, and data by name.

    >>> from datetime import datetime
    >>> facula.monitor.Event("epoch", datetime(2020, 1, 1), {"loss": 0.5}).data
    {'loss': 0.5}
    """

    def __init__(self, name: str, timestamp: datetime, data: Mapping[str, Any]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime):
            raise TypeError("Event: expected a str as name and a datetime as timestamp")
        for k, v in data.items():
            if not isinstance(k, str) or not isinstance(v, (str, float, int)):
                raise TypeError(f"Event: data holds str, float, int and bool by name, got {k!r}: {v!r}")
        self.name, self.timestamp, self.data = name, timestamp, dict(data)


class EventHandlerHandle:
    """The result of ``register_event_handler``, with which the handler can be unregistered."""

    def __init__(self, handler: Callable[[Event], None]) -> None:
        self._handler = handler


_lock = threading.Lock()
_handles: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    """Registers ``callback`` for every event that is logged; it runs on the thread that logs it."""
    if not callable(callback):
        raise TypeError(f"register_event_handler: expected a function, not {type(callback).__name__}")
    handle = EventHandlerHandle(callback)
    with _lock:
        _handles.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Unregisters the handler."""
    if not isinstance(handler, EventHandlerHandle):
        raise TypeError("unregister_event_handler: expected what register_event_handler gave")
    with _lock:
        if handler in _handles:
            _handles.remove(handler)


def log_event(event: Event) -> None:
    """Passes the event to all handlers."""
    if not isinstance(event, Event):
        raise TypeError(f"log_event: expected an Event, not {type(event).__name__}")
    with _lock:
        handles = list(_handles)
    for handle in handles:
        handle._handler(event)


class Stat:
    """Statistics of the values in a time window, logged as an event when the window closes: at the first
    value after its end, when it has ``max_samples`` values (further ones are dropped), and when the Stat
    is deleted.

    ``get()`` returns the statistics of the last closed window, ``count`` the number of values in the
    present one.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: timedelta,
        max_samples: int = sys.maxsize,
    ) -> None:
        if not all(isinstance(a, Aggregation) for a in aggregations):
            raise TypeError(f"Stat: expected a list of Aggregations, got {aggregations!r}")
        if not isinstance(window_size, timedelta):
            raise TypeError(f"Stat: expected a timedelta as window_size, not {type(window_size).__name__}")
        self._name, self._kinds, self._most = name, tuple(dict.fromkeys(aggregations)), int(max_samples)
        self._length = int(window_size / timedelta(milliseconds=1))
        if self._length <= 0:
            raise ValueError(f"Stat: window_size must be a millisecond or more, got {window_size}")
        self._lock = threading.Lock()
        self._values: list[float] = []
        self._last = self._aggregated([])
        self._window, self._taken = self._now(), 0

    def _now(self) -> int:
        import time

        return time.monotonic_ns() // 1_000_000 // self._length

    @property
    def name(self) -> str:
        return self._name

    @property
    def count(self) -> int:
        return len(self._values)

    def add(self, v: float) -> None:
        value = float(v)
        with self._lock:
            now = self._now()
            closed = full = None
            if now != self._window:
                closed = self._close()
                self._window, self._taken = now, 0
            if self._taken < self._most:
                self._values.append(value)
                self._taken += 1
                full = self._close() if self._taken == self._most else None
        for event in (closed, full):
            if event is not None:
                log_event(event)

    def get(self) -> dict[Aggregation, float]:
        return dict(self._last)

    def _aggregated(self, values: list[float]) -> dict[Aggregation, float]:
        facts = {
            VALUE: lambda: values[-1],
            MEAN: lambda: sum(values) / len(values),
            COUNT: lambda: float(len(values)),
            SUM: lambda: sum(values),
            MAX: lambda: max(values),
            MIN: lambda: min(values),
        }
        return {kind: facts[kind]() if values else 0.0 for kind in self._kinds}

    def _close(self) -> Event | None:
        """Closes the window. Returns the event of its values; None if there are none."""
        values, self._values = self._values, []
        if not values:
            return None
        self._last = self._aggregated(values)
        data = {f"{self._name}.{kind.name.lower()}": value for kind, value in self._last.items()}
        return Event(STAT_EVENT, datetime.now(), data)

    def __del__(self) -> None:
        if getattr(self, "_values", None):
            event = self._close()
            if event is not None:
                log_event(event)


class TensorboardEventHandler:
    """Writes the events of :class:`Stat` to a ``SummaryWriter``, as scalars."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for k, v in event.data.items():
                self._writer.add_scalar(k, v, walltime=event.timestamp.timestamp())
