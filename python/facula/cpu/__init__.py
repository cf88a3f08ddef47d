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
