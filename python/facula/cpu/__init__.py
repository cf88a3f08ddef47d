"""What PyTorch keeps under ``torch.cpu``."""

from . import amp as amp


def is_available() -> bool:
    """There is always a processor."""
    return True


def device_count() -> int:
    """One: threads share it."""
    return 1


def current_device() -> str:
    """Its name."""
    return "cpu"


def synchronize(device: object = None) -> None:
    """Work on the processor is done when a call returns."""


class Stream:
    """An order of work: on the processor calls are done when they return."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Nothing is under way."""

    def record_event(self, event: object = None) -> object:
        return event or Event()

    def wait_event(self, event: object) -> None:
        """Events have happened."""


class Event:
    """A point of such an order: it has been reached."""

    def query(self) -> bool:
        return True

    def record(self, stream: object = None) -> None:
        """Done."""

    def synchronize(self) -> None:
        """Done."""

    def wait(self, stream: object = None) -> None:
        """Done."""


class StreamContext:
    """Within the ``with`` block work belongs to a stream, which changes nothing."""

    def __init__(self, stream: object) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


_current = Stream()


def stream(stream: object) -> StreamContext:
    return StreamContext(stream)


def current_stream(device: object = None) -> Stream:
    return _current


def is_initialized() -> bool:
    return True


def set_device(device: object) -> None:
    """There is one."""
