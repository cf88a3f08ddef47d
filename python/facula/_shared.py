"""Tensors in memory that child processes share."""

from __future__ import annotations

import mmap
import weakref

from . import _C

Tensor = _C.Tensor


class _Block(mmap.mmap):
    """Anonymous memory; a forked process sees the same bytes. Freed with the last tensor that looks at it."""

    address: int


_blocks: weakref.WeakSet[_Block] = weakref.WeakSet()


def is_shared(t: Tensor) -> bool:
    """Does the tensor lie in memory that child processes share?"""
    at = t.data_ptr()
    return t.numel() == 0 or any(b.address <= at < b.address + len(b) for b in _blocks)


def share_memory_(t: Tensor) -> Tensor:
    """Moves the elements to shared memory; views made before keep the old one."""
    if is_shared(t):
        return t
    order = sorted(range(t.dim()), key=lambda d: -t.stride(d))
    block = _Block(-1, t.numel() * t.element_size())
    flat = _C.frombuffer(block, dtype=t.dtype)
    block.address = flat.data_ptr()
    _blocks.add(block)
    shared = flat.view([t.shape[d] for d in order]).permute(sorted(range(t.dim()), key=order.__getitem__))
    with _C.GradMode(False):
        shared.copy_(t)
        t.data = shared
    return t
