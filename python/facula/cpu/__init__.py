"""What PyTorch keeps under ``torch.cpu``."""

import functools
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import amp as amp


# Names of Linux for what PyTorch calls otherwise, and those that are the same.
_FLAGS = {
    "clflush": "clflush", "clflushopt": "clflushopt", "clwb": "clwb", "sha": "sha_ni", "aes": "aes",
    "lzcnt": "abm", "popcnt": "popcnt", "bmi": "bmi1", "bmi2": "bmi2", "fma3": "fma", "fma4": "fma4",
    "f16c": "f16c", "sse": "sse", "sse2": "sse2", "sse3": "pni", "ssse3": "ssse3", "sse4_1": "sse4_1",
    "sse4_2": "sse4_2", "sse4a": "sse4a", "avx": "avx", "avx2": "avx2", "avx_vnni": "avx_vnni",
    "avx512_f": "avx512f", "avx512_cd": "avx512cd", "avx512_dq": "avx512dq", "avx512_bw": "avx512bw",
    "avx512_vl": "avx512vl", "avx512_ifma": "avx512ifma", "avx512_vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512_vbmi2", "avx512_bitalg": "avx512_bitalg",
    "avx512_vpopcntdq": "avx512_vpopcntdq", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16", "avx512_vp2intersect": "avx512_vp2intersect",
    "avx512_4vnniw": "avx512_4vnniw", "avx512_4fmaps": "avx512_4fmaps", "amx_bf16": "amx_bf16",
    "amx_tile": "amx_tile", "amx_int8": "amx_int8", "amx_fp16": "amx_fp16",
}  # fmt: skip


@functools.cache
def get_capabilities() -> Mapping[str, Any]:
    """What the processor can do, as the system says: ``avx2``, ``avx512_f``, ... and what it is
    (``architecture``, ``cpu_name``, ``num_logical_cores``).

    >>> facula.cpu.get_capabilities()["num_logical_cores"] >= 1
    True
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    lines = [line.partition(":") for line in text.splitlines()]
    facts = {key.strip(): value.strip() for key, _, value in reversed(lines)}
    flags = set(facts.get("flags", "").split())
    found: dict[str, Any] = {name: flag in flags for name, flag in _FLAGS.items()} if flags else {}
    found["architecture"] = platform.machine()
    found["cpu_name"] = facts.get("model name", platform.processor())
    found["num_logical_cores"] = os.cpu_count() or 1
    return MappingProxyType(found)


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


class StreamContext(AbstractContextManager[None]):
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
