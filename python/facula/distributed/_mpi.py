"""The backend ``mpi``: collectives of Open MPI, whose library is opened when a program asks for it.

Ranks and sizes are those of ``mpirun``. FACULA_MPI_LIBRARY names the library, otherwise ``libmpi.so.40``.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from .. import _C
from ._library_engine import LibraryEngine, opened

__all__ = ["MpiEngine", "is_available", "world"]

_TYPES = {
    _C.bool: "uint8_t",
    _C.uint8: "uint8_t",
    _C.int8: "int8_t",
    _C.int16: "int16_t",
    _C.int32: "int32_t",
    _C.int64: "int64_t",
    _C.float32: "float",
    _C.float64: "double",
    _C.complex64: "c_float_complex",
    _C.complex128: "c_double_complex",
}
_REDUCTIONS = {0: "sum", 1: "sum", 2: "prod", 3: "min", 4: "max", 5: "band", 6: "bor", 7: "bxor"}
_ANY_SOURCE = -1
_THREAD_MULTIPLE = 3


class _Status(ctypes.Structure):
    """MPI_Status of Open MPI."""

    _fields_ = [
        ("source", ctypes.c_int),
        ("tag", ctypes.c_int),
        ("error", ctypes.c_int),
        ("cancelled", ctypes.c_int),
        ("count", ctypes.c_size_t),
    ]


def _opened() -> ctypes.CDLL | None:
    lib = opened("FACULA_MPI_LIBRARY", ["libmpi.so.40", "libmpi.so"])
    return lib if lib is not None and hasattr(lib, "ompi_mpi_comm_world") else None


def is_available() -> bool:
    return _opened() is not None


@functools.cache
def _library() -> ctypes.CDLL:
    """Returns the initialised library."""
    lib = _opened()
    if lib is None:
        raise RuntimeError("the backend mpi needs Open MPI: install libopenmpi3, or set FACULA_MPI_LIBRARY")
    initialised, provided = ctypes.c_int(), ctypes.c_int()
    lib.MPI_Initialized(ctypes.byref(initialised))
    if not initialised.value:
        _check(lib.MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(provided)), "MPI_Init_thread")
        if provided.value < _THREAD_MULTIPLE:
            raise RuntimeError("the backend mpi needs a library with MPI_THREAD_MULTIPLE")
        import atexit

        atexit.register(lib.MPI_Finalize)
    return lib


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} returned the error {status}")


def _object(name: str) -> ctypes.c_void_p:
    """Returns a handle of Open MPI: the address of a variable of the library."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(_library(), name)))


def _communicator_facts(communicator: Any) -> tuple[int, int]:
    lib, rank, size = _library(), ctypes.c_int(), ctypes.c_int()
    _check(lib.MPI_Comm_rank(communicator, ctypes.byref(rank)), "MPI_Comm_rank")
    _check(lib.MPI_Comm_size(communicator, ctypes.byref(size)), "MPI_Comm_size")
    return rank.value, size.value


def world() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes of ``mpirun``."""
    return _communicator_facts(_object("ompi_mpi_comm_world"))


class MpiEngine(LibraryEngine):
    name = "mpi"

    def __init__(self, ranks: list[int]) -> None:
        lib, all_ranks, group = _library(), _object("ompi_mpi_comm_world"), ctypes.c_void_p()
        part, self._communicator = ctypes.c_void_p(), ctypes.c_void_p()
        members = (ctypes.c_int * len(ranks))(*ranks)
        _check(lib.MPI_Comm_group(all_ranks, ctypes.byref(group)), "MPI_Comm_group")
        _check(lib.MPI_Group_incl(group, len(ranks), members, ctypes.byref(part)), "MPI_Group_incl")
        _check(
            lib.MPI_Comm_create_group(all_ranks, part, 0, ctypes.byref(self._communicator)),
            "MPI_Comm_create_group",
        )
        super().__init__(*_communicator_facts(self._communicator))

    def _type(self, tensor: Any) -> tuple[ctypes.c_void_p, int]:
        if tensor.dtype not in _TYPES:
            raise RuntimeError(f"the backend mpi has no type for tensors of {tensor.dtype}")
        return _object(f"ompi_mpi_{_TYPES[tensor.dtype]}"), tensor.numel()

    def _flat(self, tensors: list[Any]) -> Any:
        return tensors[0] if len(tensors) == 1 else _C.functions.cat([t.reshape(-1) for t in tensors])

    def _collective(
        self, kind: Any, inputs: list[Any], outputs: list[Any], reduction: int, root: int
    ) -> None:
        method = getattr(self, f"_{kind.name}", None)
        if method is None:
            raise RuntimeError(f"the backend mpi does not have {kind.name}")
        with _C.GradMode(False):
            method(inputs, outputs, reduction, root)

    def _call(self, name: str, *arguments: Any) -> None:
        _check(getattr(_library(), name)(*arguments, self._communicator), name)

    def _address(self, tensor: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensor.data_ptr())

    def _barrier(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        self._call("MPI_Barrier")

    def _broadcast(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        kind, count = self._type(inputs[0])
        self._call("MPI_Bcast", self._address(inputs[0]), count, kind, root)

    def _reduced(self, tensor: Any, name: str, reduction: int, *root: int) -> Any:
        kind, count = self._type(tensor)
        result = _C.functions.empty_like(tensor)
        op = _object(f"ompi_mpi_op_{_REDUCTIONS[reduction]}")
        self._call(name, self._address(tensor), self._address(result), count, kind, op, *root)
        return result / self.size if reduction == 1 else result

    def _all_reduce(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        for tensor, output in zip(inputs, outputs):
            output.copy_(self._reduced(tensor, "MPI_Allreduce", reduction))

    def _reduce(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        result = self._reduced(inputs[0], "MPI_Reduce", reduction, root)
        if self.rank == root:
            outputs[0].copy_(result)

    def _reduce_scatter(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        total = self._reduced(self._flat(inputs).reshape(-1), "MPI_Allreduce", reduction)
        outputs[0].copy_(_C.functions.chunk(total, self.size)[self.rank].view(outputs[0].shape))

    def _received(
        self, name: str, source: Any, parts: int, outputs: list[Any], count: int, *root: int
    ) -> None:
        """Calls a function with equal parts for all ranks, and divides what arrives among the outputs."""
        kind, _ = self._type(source)
        room = _C.functions.empty(count * parts, dtype=source.dtype)
        self._call(name, self._address(source), count, kind, self._address(room), count, kind, *root)
        begin = 0
        for output in outputs:
            output.copy_(room[begin : begin + output.numel()].view(output.shape))
            begin += output.numel()

    def _all_gather(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        self._received("MPI_Allgather", inputs[0], self.size, outputs, inputs[0].numel())

    def _gather(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        self._received("MPI_Gather", inputs[0], self.size, outputs, inputs[0].numel(), root)

    def _scatter(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        source = self._flat(inputs) if inputs else outputs[0]
        self._received("MPI_Scatter", source, 1, outputs, outputs[0].numel(), root)

    def _all_to_all(self, inputs: list[Any], outputs: list[Any], reduction: int, root: int) -> None:
        sizes = {t.numel() for t in (*inputs, *outputs)} if len(inputs) > 1 else set()
        if len(sizes) > 1:
            raise RuntimeError("the backend mpi has all_to_all of equal parts alone")
        source = self._flat(inputs)
        self._received("MPI_Alltoall", source, self.size, outputs, source.numel() // self.size)

    def _message(self, is_send: bool, tensor: Any, peer: int, tag: int) -> int:
        kind, count = self._type(tensor)
        lib, status = _library(), _Status()
        if is_send:
            self._call("MPI_Send", self._address(tensor), count, kind, peer, tag)
            return peer
        source = _ANY_SOURCE if peer < 0 else peer
        arguments = self._address(tensor), count, kind, source, tag, self._communicator, ctypes.byref(status)
        _check(lib.MPI_Recv(*arguments), "MPI_Recv")
        return status.source

    def _free(self) -> None:
        _library().MPI_Comm_free(ctypes.byref(self._communicator))
