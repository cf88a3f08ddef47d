"""What libraries ask PyTorch's tracer."""

from __future__ import annotations

from collections import Counter, defaultdict

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)  # how often it did what: nothing is counted


def is_compile_supported(device_type: str) -> bool:
    return device_type == "cpu"
