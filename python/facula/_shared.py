"""Tensors in memory that child processes share."""

from __future__ import annotations

import mmap
import os
import weakref

from . import _C

Tensor = _C.Tensor


class _Block(mmap.mmap):
    """Anonymous memory, or that of a file; forked processes see the same bytes. Freed with the last tensor
    that looks at it."""

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
    nbytes = t.numel() * t.element_size()
    try:
        block = _Block(-1, nbytes)
    except (OSError, OverflowError):
        raise RuntimeError(f"share_memory_: not enough memory: tried to map {nbytes} bytes") from None
    flat = _C.frombuffer(block, dtype=t.dtype)
    block.address = flat.data_ptr()
    _blocks.add(block)
    shared = flat.view([t.shape[d] for d in order]).permute(sorted(range(t.dim()), key=order.__getitem__))
    with _C.GradMode(False):
        shared.copy_(t)
        t.data = shared
    return t


def map_file(filename: str, shared: bool, nbytes: int) -> Tensor:
    """The first bytes of a file as uint8; changes are written to it if it is shared, else they stay here."""
    if not isinstance(filename, str):
        raise TypeError(f"from_file: argument 'filename' must be str, not {type(filename).__name__}")
    if nbytes < 0:
        raise RuntimeError(f"from_file: unable to map {nbytes} bytes of file <{filename}>")
    try:
        file = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o666)
    except OSError as e:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"from_file: unable to open file <{filename}> in {mode} mode: {e.strerror} ({e.errno})"
        ) from None
    try:
        size = os.fstat(file).st_size
        if size < nbytes and not shared:
            raise RuntimeError(
                f"from_file: file <{filename}> size <{size}> is smaller than "
                f"the required mapping size <{nbytes}>"
            )
        if size < nbytes:
            os.truncate(file, nbytes)
        if not nbytes:
            return _C.functions.empty([0], dtype=_C.uint8)
        if not shared:
            return _C.frombuffer(mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY), dtype=_C.uint8)
        block = _Block(file, nbytes)
        elements = _C.frombuffer(block, dtype=_C.uint8)
        block.address = elements.data_ptr()
        _blocks.add(block)
        return elements
    finally:
        os.close(file)
