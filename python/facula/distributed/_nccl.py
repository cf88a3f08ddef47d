"""The backend ``nccl``: collectives of NCCL, whose library is opened when a program asks for it.

FACULA_NCCL_LIBRARY names the library, otherwise ``libnccl.so.2``. Tensors are on a GPU. A library with the
symbol ``facula_nccl_host_memory`` takes those of the CPU: a double of NCCL for tests.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _C
from ._library_engine import LibraryEngine, opened

__all__ = ["NcclEngine", "is_available"]

_TYPES = {
    _C.int8: 0,
    _C.uint8: 1,
    _C.bool: 1,
    _C.int32: 2,
    _C.int64: 4,
    _C.float16: 6,
    _C.float32: 7,
    _C.float64: 8,
    _C.bfloat16: 9,
}
_REDUCTIONS = {0: 0, 1: 4, 2: 1, 3: 3, 4: 2}  # sum, avg, product, min, max


class _UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def _library() -> ctypes.CDLL | None:
    return opened("FACULA_NCCL_LIBRARY", ["libnccl.so.2"])


def is_available() -> bool:
    return _library() is not None


class NcclEngine(LibraryEngine):
    name = "nccl"

    def __init__(self, store: Any, rank: int, size: int) -> None:
        lib = _library()
        if lib is None:
            raise RuntimeError("the backend nccl needs libnccl.so.2, or FACULA_NCCL_LIBRARY")
        self._lib, self._communicator, identity = lib, ctypes.c_void_p(), _UniqueId()
        lib.ncclGetErrorString.restype = ctypes.c_char_p
        self._takes_host_memory = hasattr(lib, "facula_nccl_host_memory")
        if rank == 0:
            self._check("ncclGetUniqueId", lib.ncclGetUniqueId(ctypes.byref(identity)))
            store.set("nccl", bytes(identity))
        ctypes.memmove(ctypes.byref(identity), store.get("nccl"), ctypes.sizeof(identity))
        lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, _UniqueId, ctypes.c_int]
        status = lib.ncclCommInitRank(ctypes.byref(self._communicator), size, identity, rank)
        self._check("ncclCommInitRank", status)
        super().__init__(rank, size)

    def _check(self, function: str, status: int) -> None:
        if status:
            text = self._lib.ncclGetErrorString(status).decode()
            raise RuntimeError(f"{function} returned the error {status}: {text}")

    def _argument(self, tensor: Any) -> ctypes.c_void_p:
        if tensor.device.type != "cuda" and not self._takes_host_memory:
            raise RuntimeError(f"the backend nccl takes tensors on a GPU, not on {tensor.device}; use gloo")
        if tensor.dtype not in _TYPES:
            raise RuntimeError(f"the backend nccl has no type for tensors of {tensor.dtype}")
        return ctypes.c_void_p(tensor.data_ptr())

    def _call(self, function: str, tensors: list[Any], *numbers: int) -> None:
        """Calls a function of (addresses, count, dtype, numbers, communicator, stream). The first tensor has
        count and dtype.
        """
        addresses = [self._argument(t) for t in tensors]
        count, kind = ctypes.c_size_t(tensors[0].numel()), _TYPES[tensors[0].dtype]
        stream = ctypes.c_void_p(0)
        f = getattr(self._lib, function)
        self._check(function, f(*addresses, count, kind, *numbers, self._communicator, stream))

    def _reduction(self, number: int) -> int:
        if number not in _REDUCTIONS:
            raise RuntimeError("the backend nccl has the reductions sum, avg, product, min and max alone")
        return _REDUCTIONS[number]

    def _collective(
        self, kind: Any, inputs: list[Any], outputs: list[Any], reduction: int, root: int
    ) -> None:
        with _C.GradMode(False):
            getattr(self, f"_{kind.name}")(inputs, outputs, reduction, root)
        self._synchronize(inputs or outputs)

    def _synchronize(self, tensors: list[Any]) -> None:
        if tensors and tensors[0].device.type == "cuda":
            from .. import cuda

            cuda.synchronize(tensors[0].device)

    def _barrier(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        device = "cpu" if self._takes_host_memory else "cuda"
        token = _C.functions.zeros(1, device=device)
        self._call("ncclAllReduce", [token, token], 0)
        self._synchronize([token])

    def _broadcast(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        self._call("ncclBroadcast", [inputs[0], outputs[0]], root)

    def _all_reduce(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        for tensor, output in zip(inputs, outputs):
            self._call("ncclAllReduce", [tensor, output], self._reduction(reduction))

    def _reduce(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        room = outputs[0] if self.rank == root else _C.functions.empty_like(inputs[0])
        self._call("ncclReduce", [inputs[0], room], self._reduction(reduction), root)

    def _all_gather(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        if len(outputs) == 1:
            return self._call("ncclAllGather", [inputs[0], outputs[0]])
        return self._exchanged([(t, r) for r in range(self.size) for t in inputs], list(enumerate(outputs)))

    def _reduce_scatter(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        source = inputs[0] if len(inputs) == 1 else _C.functions.cat([t.reshape(-1) for t in inputs])
        addresses = [self._argument(source), self._argument(outputs[0])]
        count, kind = ctypes.c_size_t(outputs[0].numel()), _TYPES[source.dtype]
        numbers = self._reduction(reduction), self._communicator, ctypes.c_void_p(0)
        status = self._lib.ncclReduceScatter(*addresses, count, kind, *numbers)
        self._check("ncclReduceScatter", status)

    def _gather(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        parts = list(enumerate(_divided(outputs, self.size))) if self.rank == root else []
        self._exchanged([(inputs[0], root)], parts)

    def _scatter(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        parts = [(t, r) for r, t in enumerate(_divided(inputs, self.size))] if self.rank == root else []
        self._exchanged(parts, [(root, outputs[0])])

    def _all_to_all(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        sent, received = _divided(inputs, self.size), _divided(outputs, self.size)
        self._exchanged([(t, r) for r, t in enumerate(sent)], list(enumerate(received)))

    def _exchanged(self, sends: list[tuple[Any, int]], receives: list[tuple[int, Any]]) -> None:
        """Sends and receives in one group of calls, which NCCL executes at once. What a rank sends to itself
        is copied.
        """
        own = [t for t, peer in sends if peer == self.rank]
        for peer, output in receives:
            if peer == self.rank:
                output.copy_(own[0].view(output.shape))
        self._check("ncclGroupStart", self._lib.ncclGroupStart())
        for tensor, peer in sends:
            if peer != self.rank and tensor.numel():
                self._call("ncclSend", [tensor], peer)
        for peer, output in receives:
            if peer != self.rank and output.numel():
                self._call("ncclRecv", [output], peer)
        self._check("ncclGroupEnd", self._lib.ncclGroupEnd())

    def _message(self, is_send: bool, tensor: Any, peer: int, tag: int) -> int:
        if peer < 0:
            raise RuntimeError("the backend nccl does not receive from any rank: name one")
        self._call("ncclSend" if is_send else "ncclRecv", [tensor], peer)
        self._synchronize([tensor])
        return peer

    def abort(self, reason: str) -> None:
        super().abort(reason)
        self._lib.ncclCommAbort(self._communicator)

    def _free(self) -> None:
        if not self._reason:
            self._lib.ncclCommDestroy(self._communicator)


def _divided(tensors: list[Any], parts: int) -> list[Any]:
    return list(_C.functions.chunk(tensors[0].reshape(-1), parts)) if len(tensors) == 1 else tensors
