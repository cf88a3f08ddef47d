"""The contents of ``torch.cpu``."""

import functools
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import amp as amp


# Linux's names of features that PyTorch names differently, and of those with equal names.
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
    """Returns the processor's features as the system reports them: ``avx2``, ``avx512_f``, ... and facts
    about it (``architecture``, ``cpu_name``, ``num_logical_cores``).

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
    capabilities: dict[str, Any] = {name: flag in flags for name, flag in _FLAGS.items()} if flags else {}
    capabilities["architecture"] = platform.machine()
    capabilities["cpu_name"] = facts.get("model name", platform.processor())
    capabilities["num_logical_cores"] = os.cpu_count() or 1
    return MappingProxyType(capabilities)


def is_available() -> bool:
    """Returns True: there is always a processor."""
    return True


def device_count() -> int:
    """Returns 1: threads share one device."""
    return 1


def current_device() -> str:
    """Returns the name of the device."""
    return "cpu"


def synchronize(device: object = None) -> None:
    """Has no effect: calls are complete when they return."""


class Stream:
    """A queue of work: on the CPU, calls are complete when they return."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Has no effect: no work is pending."""

    def record_event(self, event: object = None) -> object:
        return event or Event()

    def wait_event(self, event: object) -> None:
        """Has no effect: events are complete."""


class Event:
    """A point in a stream, which is always complete."""

    def query(self) -> bool:
        return True

    def record(self, stream: object = None) -> None:
        """Has no effect."""

    def synchronize(self) -> None:
        """Has no effect: the event is complete."""

    def wait(self, stream: object = None) -> None:
        """Has no effect: the event is complete."""


class StreamContext(AbstractContextManager[None]):
    """Makes a stream current within the ``with`` block, which has no effect."""

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
    """Has no effect: there is one device."""
