"""Names that libraries import from PyTorch's tracer."""

from __future__ import annotations

from collections import Counter, defaultdict

# statistics of the tracer, which are always empty
counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: str) -> bool:
    return device_type == "cpu"
