"""ProcessGroup: the collectives of one group of ranks, and Work: one that was started.

Methods have the names and arguments of PyTorch's class, so that libraries and backends of others may call
them or define them. The functions of ``facula.distributed`` check what a program passes and call these.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .. import _C
from ._constants import ReduceOp
from ._futures import DeferredFuture
from ._presence import PeerLostError, Presence
from ._stores import Store, default_pg_timeout

__all__ = ["Kind", "ProcessGroup", "Work"]

Tensor = _C.Tensor


class Kind(enum.IntEnum):
    """Collectives, by the numbers of the engine."""

    broadcast = 0
    all_reduce = 1
    reduce = 2
    all_gather = 3
    gather = 4
    scatter = 5
    reduce_scatter = 6
    all_to_all = 7
    barrier = 8


class Work:
    """An operation that was started: ``wait()`` returns when its results are there, or raises its error."""

    def __init__(
        self,
        work: Any = None,
        result: Any = None,
        finish: Callable[[], None] | None = None,
        timeout: float = 1800.0,
    ) -> None:
        self._work, self._result, self._finish, self._timeout = work, result, finish, timeout
        self._future: Any = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the end of the operation, and writes its results to tensors that are not contiguous."""
        if self._work is not None:
            limit = timeout.total_seconds() if timeout else 0.0
            if not self._work.wait(limit if limit > 0 else 1e9):
                raise RuntimeError(f"Timed out waiting {round(limit * 1000)}ms for operation to complete")
            if (error := self._work.error()) is not None:
                raise error
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._work is None or self._work.is_done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        return None if self._work is None else self._work.error()

    def result(self) -> Any:
        """Returns the tensors of the results, in a list."""
        return self._result

    def source_rank(self) -> int:
        """Returns the rank that sent a received message."""
        return -1 if self._work is None else self._work.source()

    _source_rank = source_rank

    def _get_duration(self) -> float:
        """Returns milliseconds from the start to the end."""
        return 0.0 if self._work is None else self._work.duration_ns() / 1e6

    def get_future(self) -> Any:
        """Returns a Future of the results."""
        if self._future is None:

            def compute() -> Any:
                self.wait()
                return self._result

            self._future = DeferredFuture(compute, self)
        return self._future

    def _when_done(self, f: Callable[[], None]) -> None:
        """Calls ``f`` when the operation has ended, on the thread that executes it."""
        if self._work is None:
            f()
        else:
            self._work.then(f)

    def get_future_result(self) -> Any:
        """Returns a Future of 0, or of the number that stands for the error."""
        from ..futures import Future

        future: Any = Future()
        self.get_future().add_done_callback(lambda f: future.set_result(0 if f._error is None else 1))
        return future


class Works(Work):
    """Several operations that complete together."""

    def __init__(
        self, works: list[Work], result: Any = None, finish: Callable[[], None] | None = None
    ) -> None:
        super().__init__(None, result, finish)
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            work.wait(timeout)
        return super().wait(timeout)

    def is_completed(self) -> bool:
        return all(w.is_completed() for w in self._works)

    def exception(self) -> BaseException | None:
        return next((e for w in self._works if (e := w.exception()) is not None), None)

    def _when_done(self, f: Callable[[], None]) -> None:
        if not self._works:
            f()
        left = len(self._works)
        lock = threading.Lock()

        def ended() -> None:
            nonlocal left
            with lock:
                left -= 1
                last = not left
            if last:
                f()

        for work in self._works:
            work._when_done(ended)


def _settled(tensor: Tensor) -> Tensor:
    """Returns the elements in contiguous memory: the tensor itself if possible."""
    if tensor.is_sparse:
        raise RuntimeError("collectives of sparse tensors: use all_reduce, or to_dense()")
    with _C.GradMode(False):
        return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _reduction_of(op: Any) -> tuple[int, float | Tensor | None]:
    """Returns the number of the reduction for the engine, and the factor of PREMUL_SUM."""
    kind = op.op if isinstance(op, ReduceOp) and hasattr(op, "op") else op
    if kind == ReduceOp.PREMUL_SUM:
        factor = getattr(op, "factor", None)
        if factor is None:
            raise RuntimeError(
                "Cannot use ReduceOp.PREMUL_SUM without a factor: use _make_nccl_premul_sum(factor)"
            )
        return int(ReduceOp.SUM), factor
    return int(kind), None


def _seconds(timeout: Any, usual: timedelta) -> float:
    return float((timeout if timeout and timeout.total_seconds() > 0 else usual).total_seconds())


class _Options:
    """The arguments of a collective as PyTorch's options pass them."""

    def __init__(self, **values: Any) -> None:
        self.reduceOp: Any = ReduceOp.SUM
        self.rootRank = self.rootTensor = 0
        self.timeout: timedelta | None = None
        self.asyncOp = True
        self.sparseIndices = None
        self.__dict__.update(values)


_DEFAULTS = _Options()


class AllreduceOptions(_Options):
    """The arguments of ``ProcessGroup.allreduce``."""


class AllreduceCoalescedOptions(_Options):
    """The arguments of ``ProcessGroup.allreduce_coalesced``."""


class AllgatherOptions(_Options):
    """The arguments of ``ProcessGroup.allgather``."""


class AllToAllOptions(_Options):
    """The arguments of ``ProcessGroup.alltoall``."""


class BarrierOptions(_Options):
    """The arguments of ``ProcessGroup.barrier``."""


class BroadcastOptions(_Options):
    """The arguments of ``ProcessGroup.broadcast``."""


class GatherOptions(_Options):
    """The arguments of ``ProcessGroup.gather``."""


class ReduceOptions(_Options):
    """The arguments of ``ProcessGroup.reduce``."""


class ReduceScatterOptions(_Options):
    """The arguments of ``ProcessGroup.reduce_scatter``."""


class ScatterOptions(_Options):
    """The arguments of ``ProcessGroup.scatter``."""


class ProcessGroup:
    """A group of ranks that are connected by the engine of ``facula._C``."""

    def __init__(self, *args: Any) -> None:
        """Creates a group of (store, rank, size), which is connected when ``_connect`` is called. Backends of
        others derive from this class and pass (rank, size).
        """
        self._native: Any = None
        self._rank, self._size = (args[-2], args[-1]) if len(args) >= 2 else (0, 1)
        self._store: Store | None = args[0] if len(args) >= 3 else None
        self._timeout = default_pg_timeout
        self._backend = "gloo"
        self.group_name, self.group_desc = "", "undefined"
        self.bound_device_id = None
        self._ranks: list[int] = list(range(self._size))
        self._coalescing: list[Any] | None = None
        self._sequence = 0

    # ---- facts

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return self._backend

    def getBackendName(self) -> str:
        return self._backend

    @property
    def backend(self) -> str:
        return self._backend

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def options(self) -> Any:
        return _Options(_timeout=self._timeout, backend=self._backend)

    @property
    def _device_types(self) -> list[Any]:
        return [_C.device("cpu")]

    def _get_backend(self, device: Any) -> ProcessGroup:
        return self

    def _get_backend_name(self) -> str:
        return self._backend

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, text: str) -> None:
        self.group_desc = text

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    _set_default_timeout = set_timeout

    def _get_sequence_number_for_group(self) -> int:
        return int(self._native.sequence()) if self._native is not None else self._sequence

    def _set_sequence_number_for_group(self) -> None:
        """The engine counts collectives from the creation of the group."""

    def _has_hooks(self) -> bool:
        return False

    def _id(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name or self._backend} rank {self._rank} of {self._size}>"

    # ---- life

    def _connect(self, interface: str) -> None:
        """Exchanges addresses over the store and connects to all other ranks."""
        import secrets

        store, rank, size = self._store, self._rank, self._size
        name = self.group_name or "default"
        if size == 1:
            self._native = _C.Group(name, 0, 1, secrets.token_hex(16), interface)
            return self._native.connect([[True]], 1.0)
        assert store is not None
        event = f"group {self.group_name} was connected"
        present = Presence(store, rank, size, "init_process_group", "rank", event)
        try:
            self._native = self._connected(present, name, interface)
        except PeerLostError:
            raise
        except Exception as error:
            present.fail(error)
            raise
        present.leave()
        return None

    def _connected(self, present: Presence, name: str, interface: str) -> Any:
        """Returns the engine when it is connected to all other ranks."""
        import json
        import secrets

        store, rank, size = self._store, self._rank, self._size
        assert store is not None
        if rank == 0:
            store.set("token", secrets.token_hex(16))
        (token,) = present.gather(["token"])
        native = _C.Group(name, rank, size, token.decode(), interface)
        store.set(f"address/{rank}", native.address())
        addresses = present.gather([f"address/{r}" for r in range(size)])
        shared = native.open([address.decode() for address in addresses])
        store.set(f"shared/{rank}", json.dumps(shared))
        rows = [json.loads(row) for row in present.gather([f"shared/{r}" for r in range(size)])]
        native.connect(rows, self._timeout.total_seconds(), present.check)
        store.set(
            f"connected/{rank}", "1"
        )  # nobody leaves before all are connected, so that all learn of a loss
        present.gather([f"connected/{r}" for r in range(size)])
        return native

    def shutdown(self) -> None:
        """Ends the group on this rank, after its pending operations."""
        if self._native is not None:
            self._native.leave()

    def abort(self) -> None:
        """Ends the group on all ranks: every operation raises from now on."""
        if self._native is not None:
            self._native.abort(f"rank {self._rank} of group {self.group_name} aborted the group")
            self._native.leave()

    def _failure(self) -> str:
        """Returns why the group has ended; empty if it has not."""
        return str(self._native.failure()) if self._native is not None else ""

    # ---- the engine

    def _start(
        self,
        kind: Kind,
        inputs: list[Tensor],
        outputs: list[Tensor],
        result: Any,
        opts: Any = _DEFAULTS,
        reduction: int = 0,
        root: int = 0,
        wait: bool = False,
    ) -> Work | None:
        """Starts a collective, or executes it if ``wait``. Tensors may have any layout."""
        timeout = _seconds(opts.timeout, self._timeout)
        ins = [t if t.is_contiguous() and not _lazy(t) else _settled(t) for t in inputs]
        outs = [t if t.is_contiguous() and not _lazy(t) else _empty_like(t) for t in outputs]
        copies = [(t, o) for t, o in zip(outputs, outs) if t is not o]

        def finish() -> None:
            with _C.GradMode(False):
                for tensor, output in copies:
                    tensor.detach().copy_(output)

        work = self._native.collective(int(kind), ins, outs, reduction, root, timeout, wait)
        if wait:
            if copies:
                finish()
            return None
        return Work(work, result, finish if copies else None, timeout)

    def broadcast(self, tensors: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        tensors = _list(tensors)
        root = opts if isinstance(opts, int) else opts.rootRank
        settings = _DEFAULTS if isinstance(opts, int) else opts
        return self._start(Kind.broadcast, tensors, tensors, tensors, settings, 0, root, wait)

    def _reduced(
        self,
        kind: Kind,
        inputs: list[Tensor],
        outputs: list[Tensor],
        result: Any,
        opts: Any,
        root: int,
        wait: bool,
    ) -> Any:
        reduction, factor = _reduction_of(opts.reduceOp)
        if factor is not None:
            inputs = [t * factor for t in inputs]
        return self._start(kind, inputs, outputs, result, opts, reduction, root, wait)

    def allreduce(self, tensors: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        tensors = _list(tensors)
        if not isinstance(opts, _Options):
            opts = _Options(reduceOp=opts) if isinstance(opts, ReduceOp) else opts
        if len(tensors) != 1:
            return self.allreduce_coalesced(tensors, opts, wait=wait)
        if tensors[0].is_sparse:
            return self._allreduce_sparse(tensors[0], opts)
        return self._reduced(Kind.all_reduce, tensors, tensors, tensors, opts, 0, wait)

    def _allreduce_sparse(self, tensor: Tensor, opts: Any) -> Work:
        """Adds sparse tensors: all ranks gather the indices and values of all."""
        from .. import sparse_coo_tensor

        if opts.reduceOp != ReduceOp.SUM:
            raise RuntimeError("all_reduce: sparse tensors can be added (ReduceOp.SUM) only")
        own = tensor.detach().coalesce()
        indices, values = own.indices().contiguous(), own.values().contiguous()
        size = self._size
        counts = _C.functions.empty(size, dtype=_C.int64)
        self._start(Kind.all_gather, [_C.tensor([values.shape[0]])], [counts], None, opts, wait=True)
        most = int(counts.max())

        def gathered(part: Tensor) -> list[Tensor]:
            """The parts of all ranks, whose first dimension differs."""
            padded = _C.functions.zeros((most, *part.shape[1:]), dtype=part.dtype)
            padded[: part.shape[0]] = part
            every = _C.functions.empty((size * most, *part.shape[1:]), dtype=part.dtype)
            self._start(Kind.all_gather, [padded], [every], None, opts, wait=True)
            return [every[r * most : r * most + n] for r, n in enumerate(counts.tolist())]

        all_indices = _C.functions.cat(gathered(indices.t().contiguous())).t()
        all_values = _C.functions.cat(gathered(values))
        total = sparse_coo_tensor(all_indices, all_values, tensor.shape).coalesce()
        with _C.GradMode(False):
            tensor.copy_(total)  # copying to a detached alias would not change this tensor
        return Work(None, [tensor])

    def allreduce_coalesced(self, tensors: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        tensors = _list(tensors)
        parts = tensors
        if len({t.dtype for t in tensors}) > 1:  # complex and real numbers
            parts = [_C.functions.view_as_real(t) if t.is_complex() else t for t in tensors]
        return self._reduced(Kind.all_reduce, parts, parts, tensors, opts, 0, wait)

    def reduce(self, tensors: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        tensors = _list(tensors)
        return self._reduced(Kind.reduce, tensors, tensors, tensors, opts, opts.rootRank, wait)

    def allgather(self, output_lists: Any, inputs: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        (outputs,), (tensor,) = output_lists, _list(inputs)
        self._check_count("all_gather", "output tensor list", outputs)
        return self._start(Kind.all_gather, [tensor], outputs, output_lists[0], opts, wait=wait)

    def _check_count(self, name: str, what: str, tensors: Any) -> None:
        if len(tensors) != self._size:
            raise RuntimeError(
                f"{name}: {what} must have {self._size} tensors, one for each rank, got {len(tensors)}"
            )

    def _allgather_base(
        self, output: Tensor, input: Tensor, opts: Any = _DEFAULTS, *, wait: bool = False
    ) -> Any:
        if output.numel() != input.numel() * self._size:
            raise ValueError(
                "output tensor size must be equal to world_size times input tensor size: "
                f"{list(output.shape)} for {self._size} of {list(input.shape)}"
            )
        if output.dtype != input.dtype:
            raise TypeError(
                f"output tensor must have the same type as input tensor: {output.dtype}, {input.dtype}"
            )
        return self._start(Kind.all_gather, [input], [output], output, opts, wait=wait)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = _DEFAULTS) -> Any:
        return Works([self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = _DEFAULTS) -> Any:
        """``output_lists`` has a list of the tensors of each rank."""
        inputs = [_C.functions.view_as_real(t) if t.is_complex() else t for t in inputs]
        flat = _C.functions.cat([_settled(t).reshape(-1) for t in inputs])
        every = [_C.functions.empty_like(flat) for _ in output_lists]
        work = self.allgather([every], [flat], opts)

        def divide() -> None:
            for outputs, source in zip(output_lists, every):
                begin = 0
                for output in outputs:
                    real = _C.functions.view_as_real(output) if output.is_complex() else output
                    _copy(real, source[begin : begin + real.numel()].view(real.shape))
                    begin += real.numel()

        return Works([work], output_lists, divide)

    def gather(self, output_lists: Any, inputs: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        outputs = output_lists[0] if output_lists else []
        if opts.rootRank == self._rank:
            self._check_count("gather", "gather_list", outputs)
        return self._start(Kind.gather, _list(inputs), outputs, outputs, opts, 0, opts.rootRank, wait)

    def scatter(self, outputs: Any, input_lists: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        inputs = input_lists[0] if input_lists else []
        if opts.rootRank == self._rank:
            self._check_count("scatter", "scatter_list", inputs)
        return self._start(Kind.scatter, inputs, _list(outputs), outputs, opts, 0, opts.rootRank, wait)

    def reduce_scatter(
        self, outputs: Any, input_lists: Any, opts: Any = _DEFAULTS, *, wait: bool = False
    ) -> Any:
        (inputs,) = input_lists
        self._check_count("reduce_scatter", "input_list", inputs)
        return self._reduced(Kind.reduce_scatter, inputs, _list(outputs), outputs, opts, 0, wait)

    def _reduce_scatter_base(
        self, output: Tensor, input: Tensor, opts: Any = _DEFAULTS, *, wait: bool = False
    ) -> Any:
        if output.numel() * self._size != input.numel():
            raise ValueError(
                "input tensor must be the same size as output size times world size: "
                f"{list(input.shape)} for {self._size} of {list(output.shape)}"
            )
        if output.dtype != input.dtype:
            raise TypeError(
                f"input tensor must be the same type as the output tensor: {input.dtype}, {output.dtype}"
            )
        return self._reduced(Kind.reduce_scatter, [input], [output], output, opts, 0, wait)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = _DEFAULTS) -> Any:
        return Works([self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        self._check_count("all_to_all", "output_tensor_list", outputs)
        self._check_count("all_to_all", "input_tensor_list", inputs)
        return self._start(Kind.all_to_all, inputs, outputs, outputs, opts, wait=wait)

    def alltoall_base(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        opts: Any = _DEFAULTS,
        *,
        wait: bool = False,
    ) -> Any:
        if output.dtype != input.dtype:
            raise TypeError(f"Tensors are not equal in data type: {output.dtype}, {input.dtype}")
        sides = []
        equal = not output_split_sizes and not input_split_sizes
        for tensor, sizes, what in (
            (input, input_split_sizes, "input"),
            (output, output_split_sizes, "output"),
        ):
            if not sizes:
                if tensor.dim() and tensor.size(0) % self._size:
                    raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
                sizes = [tensor.size(0) // self._size] * self._size
            elif len(sizes) != self._size:
                raise RuntimeError(
                    f"Number of tensor splits not equal to group size: {len(sizes)}, {self._size}"
                )
            elif sum(sizes) != tensor.size(0):
                raise RuntimeError(
                    f"Split sizes doesn't match total dim 0 size: {list(sizes)}, {tensor.size(0)} ({what})"
                )
            sides.append((tensor, list(sizes)))
        (inp, counts), (out, rooms) = sides
        if equal:
            return self._start(Kind.all_to_all, [inp], [out], output, opts, wait=wait)
        source = inp if inp.is_contiguous() and not _lazy(inp) else _settled(inp)
        target = out if out.is_contiguous() and not _lazy(out) else _empty_like(out)
        with _C.GradMode(False):
            parts = list(source.detach().split(counts))
            places = list(target.detach().split(rooms))
        if target is out:
            return self._start(Kind.all_to_all, parts, places, output, opts, wait=wait)
        work = self._start(Kind.all_to_all, parts, places, output, opts)
        assert work is not None
        result = Works([work], output, lambda: _copy(out, target))
        if wait:
            result.wait()
        return None if wait else result

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = _DEFAULTS, *, wait: bool = False) -> Any:
        return self._start(Kind.barrier, [], [], None, opts, wait=wait)

    # ---- messages

    def _message(self, is_send: bool, tensor: Tensor, peer: int, tag: int) -> Work:
        timeout = self._timeout.total_seconds()
        if is_send:
            memory = tensor if tensor.is_contiguous() and not _lazy(tensor) else _settled(tensor)
            return Work(self._native.message(True, memory, peer, tag, timeout), [tensor], None, timeout)
        memory = tensor if tensor.is_contiguous() and not _lazy(tensor) else _empty_like(tensor)
        finish = None if memory is tensor else lambda: _copy(tensor, memory)
        return Work(self._native.message(False, memory, peer, tag, timeout), [tensor], finish, timeout)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Work:
        return self._message(True, _list(tensors)[0], dst, tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Work:
        return self._message(False, _list(tensors)[0], src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        return self._message(False, _list(tensors)[0], -1, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Waits for all ranks. Rank 0 raises an error that names the ranks that have not arrived in time."""
        limit = (self._timeout if timeout is None else timeout).total_seconds()
        tag, token = -(2**40) - 1, _C.functions.zeros(1, dtype=_C.uint8)
        end = time.monotonic() + limit

        def message(is_send: bool, peer: int, seconds: float) -> bool:
            work = self._native.message(is_send, token.clone(), peer, tag, max(seconds, 0.001))
            work.wait(1e9)
            return work.error() is None

        if self._rank != 0:
            message(True, 0, limit)
            if not message(False, 0, limit):
                raise RuntimeError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
                    "waiting for "
                    f"send/recv from rank 0. Please check rank 0 logs for faulty rank."
                )
            return
        missing = []
        if limit <= 0 and self._size > 1:
            raise RuntimeError(
                f"Rank {self._rank} timed out in monitoredBarrier after {round(limit * 1000)} ms."
            )
        for peer in range(1, self._size):
            if not message(False, peer, end - time.monotonic()):
                missing.append(peer)
                if not wait_all_ranks:
                    break
        milliseconds = round(limit * 1000)
        if missing:
            which = ", ".join(map(str, missing))
            verb = "Ranks" if len(missing) > 1 else "Rank"
            raise RuntimeError(f"{verb} {which} failed to pass monitoredBarrier in {milliseconds} ms")
        for peer in range(1, self._size):
            message(True, peer, limit)

    # ---- coalescing

    def _start_coalescing(self, device: Any = None) -> None:
        """The engine executes operations one after the other, so that nothing has to be collected."""

    def _end_coalescing(self, device: Any = None) -> Work:
        return Work()


def _lazy(tensor: Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _empty_like(tensor: Tensor) -> Tensor:
    return _C.functions.empty(tensor.shape, dtype=tensor.dtype)


def _copy(tensor: Tensor, source: Tensor) -> None:
    with _C.GradMode(False):
        tensor.detach().copy_(source)


def _list(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)
