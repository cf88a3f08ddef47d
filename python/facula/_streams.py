"""Streams and events of any device, for the CPU, whose calls are complete when they return."""

from __future__ import annotations

import time
from typing import Any

from . import _C

__all__ = ["Event", "Stream"]


def _processor(device: Any, name: str) -> Any:
    target = _C.device("cpu" if device is None else device)
    if target.type != "cpu":
        raise RuntimeError(f"{name}: there is no device {target}")
    return target


class Stream:
    """A queue of work; also a context manager that makes it the current one."""

    device_index, stream_id = -1, 0

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = _processor(device, "Stream")

    def query(self) -> bool:
        """Returns True: all work is complete."""
        return True

    def synchronize(self) -> None:
        """Has no effect: all work is complete."""

    def wait_stream(self, stream: Any) -> None:
        """Has no effect: no work is pending."""

    def wait_event(self, event: Any) -> None:
        """Has no effect: events are complete."""

    def record_event(self, event: Any = None) -> Any:
        """Returns an event of the present moment."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"{name} device_type={self.device.type}, device_index=-1, stream_id=0"


class Event:
    """A point in a stream, with its time if ``enable_timing``."""

    event_id = 0

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = _processor(device, "Event")
        self._timed, self._time = enable_timing, None

    def record(self, stream: Any = None) -> None:
        """Records the present moment."""
        self._time = time.perf_counter()  # type: ignore[assignment]

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None:
        """Has no effect: the event is complete."""

    def synchronize(self) -> None:
        """Has no effect: the event is complete."""

    def elapsed_time(self, end_event: Any) -> float:
        """Returns the milliseconds to another event."""
        if not self._timed or not end_event._timed:
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1000

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"{name} device_type={self.device.type}, device_index=-1, event_flag=0, event_id=0"


for _class in (Stream, Event):
    _class.__module__ = __package__  # the same as PyTorch's
