"""Orders of work of any device: of the processor, whose calls are done when they return."""

from __future__ import annotations

import time
from typing import Any

from . import _C

__all__ = ["Event", "Stream"]


def _processor(device: Any, name: str) -> Any:
    found = _C.device("cpu" if device is None else device)
    if found.type != "cpu":
        raise RuntimeError(f"{name}: there is no device {found}")
    return found


class Stream:
    """An order of work; also a context manager, within which work belongs to it."""

    device_index, stream_id = -1, 0

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self.device = _processor(device, "Stream")

    def query(self) -> bool:
        """Is all work done?"""
        return True

    def synchronize(self) -> None:
        """Work is done."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is under way."""

    def wait_event(self, event: Any) -> None:
        """Events have happened."""

    def record_event(self, event: Any = None) -> Any:
        """An event of now."""
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
    """A point of a stream, with its time if ``enable_timing``."""

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
        """The point is now."""
        self._time = time.perf_counter()  # type: ignore[assignment]

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None:
        """It has been reached."""

    def synchronize(self) -> None:
        """It has been reached."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds to another event."""
        if not self._timed or not end_event._timed:
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1000

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"{name} device_type={self.device.type}, device_index=-1, event_flag=0, event_id=0"


for _class in (Stream, Event):
    _class.__module__ = __package__  # as PyTorch's
