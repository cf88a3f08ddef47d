"""Options for computing losses of linear layers in chunks of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["LinearCrossEntropyOptions"]


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Makes :func:`linear_cross_entropy` process the rows in chunks, so that not all logits exist at
    once.

    ``batch_chunk_size`` is the number of rows of a chunk; without it ``chunking_method`` decides:
    "aspect_ratio[:k]" makes the logits of a chunk about k times as large as the input. Sums are float32
    or wider, whatever ``acc_policy`` and ``acc_dtype`` say; gradients may be computed repeatedly
    (``allow_retain_graph``).
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        n, method = self.batch_chunk_size, self.chunking_method
        if n is not None and (not isinstance(n, int) or n <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {n}")
        if method is not None and method != "auto" and not re.fullmatch(r"aspect_ratio(:\d+)?", method):
            raise ValueError(f"invalid chunking_method: {method!r}")
        if self.acc_policy not in ("accurate", "balanced", "compact", "auto"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")

    def rows(self, n: int, features: int, classes: int) -> int:
        """Returns the number of rows of a chunk, of n."""
        if self.batch_chunk_size is not None:
            return min(self.batch_chunk_size, max(n, 1))
        if self.chunking_method is None:
            return max(n, 1)
        times = int(self.chunking_method.partition(":")[2] or 2)
        wanted = -(-n * features * times // max(classes, 1))
        return min(max(1 << max(wanted - 1, 0).bit_length(), 1), max(n, 1))
