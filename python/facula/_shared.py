"""Tensors in memory that processes share: an unnamed file, or one that the program named.

Forked processes see the same bytes; other processes receive the file's descriptor when a tensor is
pickled for them.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from typing import Any

from . import _C

Tensor = _C.Tensor


def reach(sizes: Any, strides: Any) -> int:
    """Returns the number of elements between the first and the last of this geometry; 0 if it has none."""
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0


class _Block(mmap.mmap):
    """The memory of a file, which is freed with the last tensor that uses it."""

    address: int
    descriptor: int | None = None  # of an unnamed file: sent to other processes
    taken: int = 0  # bytes assigned to tensors
    owner: int = 0  # the process that may assign bytes


_blocks: weakref.WeakSet[_Block] = weakref.WeakSet()
_lock = threading.Lock()
_small: weakref.ref[_Block] | None = None  # block for small tensors: descriptors are scarce
_SMALL, _TOGETHER = 1 << 20, 4 << 20


def _registered(block: _Block, descriptor: int | None = None) -> _Block:
    block.address = _C.frombuffer(block, dtype=_C.uint8).data_ptr()
    if descriptor is not None:
        block.descriptor = descriptor
        weakref.finalize(block, os.close, descriptor)
    _blocks.add(block)
    return block


def _new_block(nbytes: int) -> _Block:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("facula")
    else:
        with tempfile.TemporaryFile() as named:
            file = os.dup(named.fileno())
    try:
        os.ftruncate(file, nbytes)
        return _registered(_Block(file, nbytes), file)
    except (OSError, OverflowError):
        os.close(file)
        raise


def _place(nbytes: int) -> tuple[_Block, int]:
    """Returns a block with that many free bytes, and their position. A forked process uses new blocks."""
    global _small
    if nbytes >= _SMALL:
        return _new_block(nbytes), 0
    with _lock:
        block = _small() if _small is not None else None
        if block is None or block.owner != os.getpid() or block.taken + nbytes > len(block):
            block = _new_block(_TOGETHER)
            block.owner, _small = os.getpid(), weakref.ref(block)
        start = block.taken
        block.taken += -(-nbytes // 64) * 64
        return block, start


def _block_of(t: Tensor) -> _Block | None:
    at = t.data_ptr()
    return next((b for b in list(_blocks) if b.address <= at < b.address + len(b)), None)


def is_shared(t: Tensor) -> bool:
    """Returns whether the tensor is in memory that processes share."""
    return t.numel() == 0 or _block_of(t) is not None


def share_memory_(t: Tensor) -> Tensor:
    """Moves the elements to shared memory; existing views keep the old memory."""
    if is_shared(t):
        return t
    strides = t.stride()
    # copies its entire range of memory, with gaps and shared elements
    count = reach(t.shape, strides)
    nbytes = count * t.element_size()
    try:
        block, start = _place(nbytes)
    except (OSError, OverflowError):
        raise RuntimeError(f"share_memory_: not enough memory: tried to map {nbytes} bytes") from None
    flat = _C.frombuffer(block, dtype=t.dtype, count=count, offset=start)
    with _C.GradMode(False):
        flat.copy_(t.as_strided((count,), (1,), t.storage_offset()))
        t.data = flat.as_strided(t.shape, strides, 0)
    return t


def map_file(filename: str, shared: bool, nbytes: int) -> Tensor:
    """Returns the first bytes of a file as uint8; changes are written to it if it is shared, else they
    stay here.
    """
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
        return _C.frombuffer(_registered(_Block(file, nbytes)), dtype=_C.uint8)
    finally:
        os.close(file)


# ---- tensors for other processes


def _for_child(block: _Block) -> Any:
    """Returns the object by which another process gets the block's file. A process that is being started
    receives a descriptor once, by its number: until then no other file may get that number, so the
    descriptor is duplicated and kept open.
    """
    from multiprocessing import context, reduction

    starting = context.get_spawning_popen()
    if starting is None:
        return reduction.DupFd(block.descriptor)
    sent = starting.__dict__.setdefault("_facula_sent", {})
    if block.descriptor not in sent:
        sent[block.descriptor] = reduction.DupFd(block.descriptor), block
    return sent[block.descriptor][0]


def _alone(t: Tensor) -> bool:
    """Returns whether its memory has no other user and no other elements."""
    info = t._storage_info()
    return info is not None and info[1] == t.numel() * t.element_size() and info[2] == 1


def reduced_for_process(t: Tensor) -> Any:
    """Reduces a tensor for ``multiprocessing``: to the location of its memory, which both processes use
    then.

    A tensor that is not shared moves to shared memory; if other tensors use its memory too, a copy is
    sent.
    """
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
            "support crossing process boundaries. If you just want to transfer the data, call detach() on "
            "the tensor before serializing (e.g., putting it on the queue)."
        )
    plain = t.layout is _C.strided and t.device.type == "cpu" and not t.is_conj() and not t.is_neg()
    if not plain or t.numel() == 0 or vars(t):
        return t.__reduce_ex__(2)
    if (block := _block_of(t)) is None:
        memory = share_memory_(t if _alone(t) else t.detach().clone())
        block = _block_of(memory)
    else:
        memory = t
    if block is None or block.descriptor is None:  # a file that the program named
        return t.__reduce_ex__(2)
    place = memory.data_ptr() - block.address, t.dtype, tuple(t.shape), memory.stride()
    return _received, (type(t), _for_child(block), len(block), *place, t.requires_grad)


def _received(
    kind: type, sent: Any, nbytes: int, start: int, dtype: Any, shape: Any, stride: Any, requires_grad: bool
) -> Tensor:
    """Rebuilds a tensor that another process sent, over the same memory as other tensors of its block."""
    file = sent.detach()
    of_file = os.fstat(file)
    candidates = (b for b in list(_blocks) if b.descriptor is not None)
    with _lock:
        block = next((b for b in candidates if os.path.samestat(os.fstat(b.descriptor), of_file)), None)
        if block is None:
            block = _registered(_Block(file, nbytes), file)
        elif block.descriptor != file:
            os.close(file)
    count = (nbytes - start) // dtype.itemsize
    flat = _C.frombuffer(block, dtype=dtype, count=count, offset=start)
    t = flat.as_strided(shape, stride)
    return t.requires_grad_(requires_grad) if kind is Tensor else kind(t, requires_grad)
