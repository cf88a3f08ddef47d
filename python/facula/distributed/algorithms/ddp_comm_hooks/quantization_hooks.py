"""Communication hooks that send gradients in 8 bits, with a scale and a zero point for each rank (or for each
part of a bucket).
"""

from __future__ import annotations

from typing import Any

from .... import _C
from ... import _collectives as collective
from ..._futures import DeferredFuture
from ..._groups import _get_default_group
from ..._reducer import GradBucket
from .powerSGD_hook import _Started

__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]

Tensor = _C.Tensor


def _quantized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns bytes for each row of a matrix, and [scale, zero point] of each row."""
    low = rows.amin(1, keepdim=True).clamp(max=0.0)
    high = rows.amax(1, keepdim=True).clamp(min=0.0)
    scale = ((high - low) / 255).clamp(min=_C.finfo_of(_C.float32)["eps"])
    zero = (-low / scale).round().clamp(0, 255)
    codes = ((rows / scale).round() + zero).clamp(0, 255).to(_C.uint8)
    return codes, _C.functions.cat([scale, zero], 1)


def _mean_of_quantized(process_group: Any, bucket: GradBucket, width: int | None) -> Any:
    group = process_group if process_group is not None else _get_default_group()
    buffer, size = bucket.buffer(), group.size()
    n = buffer.numel()
    width = n if width is None else width
    rows = _C.functions.zeros(max(1, -(-n // width)) * width, dtype=buffer.dtype)
    rows[:n] = buffer
    codes, facts = _quantized(rows.view(-1, width))
    all_codes = [_C.functions.empty_like(codes) for _ in range(size)]
    all_facts = [_C.functions.empty_like(facts) for _ in range(size)]

    def finish() -> Tensor:
        collective.all_gather(all_facts, facts, group)
        collective.all_gather(all_codes, codes, group)
        total = _C.functions.zeros_like(rows).view(-1, width)
        for code, fact in zip(all_codes, all_facts):
            total += (code.to(buffer.dtype) - fact[:, 1:]) * fact[:, :1]
        buffer.copy_((total / size).reshape(-1)[:n])
        return buffer

    return DeferredFuture(finish, _Started())


def quantization_pertensor_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The mean of gradients that are quantized with one scale for a bucket."""
    return _mean_of_quantized(process_group, bucket, None)


def quantization_perchannel_hook(process_group: Any, bucket: GradBucket, bucket_size: int = 512) -> Any:
    """The mean of gradients that are quantized with one scale for each ``bucket_size`` elements."""
    return _mean_of_quantized(process_group, bucket, bucket_size)
