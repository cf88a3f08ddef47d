"""Worker processes of a DataLoader.

Each worker has a socket pair: indices go one way, batches come back. The tensors of a batch share one
block of anonymous shared memory, whose descriptor is sent with the message; the memory has no name, so
nothing remains however a process ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing import connection, get_context, parent_process, reduction
from types import SimpleNamespace
from typing import Any, NamedTuple

from ... import _C
from ..._tensor import from_elements
from ..._utils import ExceptionWrapper

Tensor = _C.Tensor
_ALIGN = 64


class WorkerInfo(NamedTuple):
    """A worker's information about itself."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Returns a worker's id, num_workers, seed and data set; None in other processes."""
    return _info


# ---- messages


class _Pickler(pickle.Pickler):
    """Leaves the elements of plain tensors out of the pickle and collects the tensors in ``tensors``."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[tuple[int, Tensor]] = []
        self.bytes = 0

    def persistent_id(self, o: Any) -> Any:
        if type(o) is not Tensor or not o.is_leaf:
            return None
        t = o.detach().resolve_conj().resolve_neg().contiguous()
        at = self.bytes
        self.tensors.append((at, t))
        self.bytes += -(-t.numel() * t.element_size() // _ALIGN) * _ALIGN
        return at, str(t.dtype).rpartition(".")[2], tuple(t.shape), o.requires_grad


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, block: memoryview) -> None:
        super().__init__(file)
        self._block = block

    def persistent_load(self, pid: Any) -> Tensor:
        at, dtype, sizes, requires_grad = pid
        d = getattr(_C, dtype)
        count = 1
        for n in sizes:
            count *= n
        t = from_elements(self._block[at : at + count * d.itemsize], d, sizes)
        return t.requires_grad_() if requires_grad else t


def _send(conn: connection.Connection, message: Any) -> None:
    import ctypes

    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(message)
    if not pickler.bytes:
        conn.send_bytes(b"p" + file.getbuffer())
        return
    fd = os.memfd_create("facula-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, pickler.bytes)
        with mmap.mmap(fd, pickler.bytes) as block:
            for at, t in pickler.tensors:
                if n := t.numel() * t.element_size():
                    block[at : at + n] = memoryview((ctypes.c_char * n).from_address(t.data_ptr())).cast("B")
        conn.send_bytes(b"s" + file.getbuffer())
        reduction.send_handle(conn, fd, os.getppid())
    finally:
        os.close(fd)


def _receive(conn: connection.Connection) -> Any:
    data = conn.recv_bytes()
    block = memoryview(b"")
    if data[:1] == b"s":
        fd = reduction.recv_handle(conn)
        try:
            block = memoryview(mmap.mmap(fd, 0))  # lives as long as a tensor uses it
        finally:
            os.close(fd)
    return _Unpickler(io.BytesIO(memoryview(data)[1:]), block).load()


class _Failure(ExceptionWrapper):
    """An exception of a worker, in a form that can be sent: as RuntimeError, if its class cannot."""

    def __init__(self, worker: int) -> None:
        super().__init__(where=f"in DataLoader worker process {worker}")
        try:
            pickle.loads(pickle.dumps(self.exc_type))
        except Exception:
            self.exc_type = RuntimeError


# ---- in the worker


def _main(conn: connection.Connection, worker: int, count: int, setup: dict[str, Any]) -> None:
    global _info
    from .dataloader import fetcher_of

    fetcher: Any = None
    parent = parent_process()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        _C.set_num_threads(1)
        while True:
            while not conn.poll(5.0):
                if parent is not None and not parent.is_alive():
                    return
            task = conn.recv()
            if task is None:
                return
            kind, number, payload = task
            try:
                if kind == "epoch":
                    import random

                    seed = payload + worker
                    _info = WorkerInfo(worker, count, seed, setup["dataset"])
                    _C.manual_seed(seed)
                    random.seed(seed)
                    if "numpy" in sys.modules:
                        sys.modules["numpy"].random.seed(seed % 2**32)
                    if number == 0 and setup["worker_init_fn"] is not None:
                        setup["worker_init_fn"](worker)
                    fetcher = fetcher_of(SimpleNamespace(**setup))
                    continue
                packed = (number, "batch", fetcher.fetch(payload))
            except StopIteration:
                packed = (number, "end", None)
            except Exception:
                packed = (number, "error", _Failure(worker))
            try:
                _send(conn, packed)
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception:
                _send(conn, (number, "error", _Failure(worker)))
    except (EOFError, ConnectionResetError, KeyboardInterrupt):
        return


# ---- in the process of the loader


class Pool:
    """The worker processes of a loader; one pass at a time."""

    alive = False

    def __init__(self, loader: Any) -> None:
        requested = loader.multiprocessing_context
        context = get_context(requested) if requested is None or isinstance(requested, str) else requested
        names = "dataset collate_fn worker_init_fn drop_last _dataset_kind _auto_collation"
        setup = {name: getattr(loader, name) for name in names.split()}
        self._connections: list[connection.Connection] = []
        self._processes: list[Any] = []
        self._passes = 0
        self.alive = True
        for k in range(loader.num_workers):
            ours, theirs = context.Pipe(duplex=True)
            process = context.Process(target=_main, args=(theirs, k, loader.num_workers, setup), daemon=True)
            # Workers receive Ctrl-C only where they can end quietly; the loader's process reports it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def __del__(self) -> None:
        self.close()

    def close(self, patience: float = 2.0) -> None:
        """Ends the workers; those that do not end by themselves within ``patience`` seconds are killed."""
        if not self.alive:
            return
        self.alive = False
        for conn in self._connections:
            try:
                conn.send(None)
            except OSError:
                pass
            conn.close()
        for end in (lambda p: None, lambda p: p.terminate(), lambda p: p.kill()):
            deadline = time.monotonic() + patience
            for process in self._processes:
                if process.is_alive():
                    end(process)
            for process in self._processes:
                process.join(timeout=max(0.0, deadline - time.monotonic()))

    def run(self, loader: Any, seed: int) -> Iterator:
        """Yields batches in order. Ends the workers when done, on an error, or when the iterator is
        abandoned, unless they persist.
        """
        finished = False
        try:
            yield from self._pass(loader, seed)
            finished = True
        finally:
            if not finished:
                self.close(patience=0.2)  # nobody waits for what they are doing
            elif not loader.persistent_workers:
                self.close()

    def _fail(self, worker: int) -> None:
        process = self._processes[worker]
        process.join(timeout=1.0)
        raise RuntimeError(
            f"DataLoader worker {worker} (pid {process.pid}) exited unexpectedly with exit code "
            f"{process.exitcode}. "
            "A batch may need more memory than there is; num_workers=0 shows errors of the data set directly."
        )

    def _tell(self, worker: int, message: Any) -> None:
        try:
            self._connections[worker].send(message)
        except OSError:
            self._fail(worker)

    def _pass(self, loader: Any, seed: int) -> Iterator:
        n = len(self._connections)
        for worker in range(n):
            self._tell(worker, ("epoch", self._passes, seed))
        self._passes += 1
        from .dataloader import _DatasetKind

        stream = loader._dataset_kind == _DatasetKind.Iterable
        indices = iter(loader._index_sampler)
        owner: dict[int, int] = {}  # task: the worker that computes it
        ready: dict[int, tuple[str, Any]] = {}
        open_workers = list(range(n))
        sent = wanted = 0

        def give_next(worker: int | None = None) -> None:
            nonlocal sent
            if not open_workers:
                return
            if worker is None:
                worker = open_workers[sent % len(open_workers)]
            for index in indices:
                owner[sent] = worker
                self._tell(worker, ("batch", sent, index))
                sent += 1
                return

        for _ in range(max(1, loader.prefetch_factor) * n):
            give_next()
        while wanted < sent:
            while wanted not in ready:
                self._collect(owner, ready, loader.timeout)
            (kind, value), worker = ready.pop(wanted), owner.pop(wanted)
            wanted += 1
            if kind == "error":
                value.reraise()
            if kind == "end":
                if worker in open_workers:
                    open_workers.remove(worker)
                continue
            if not stream or worker in open_workers:
                give_next(worker)
            yield value

    def _collect(self, owner: dict[int, int], ready: dict[int, tuple[str, Any]], timeout: float) -> None:
        busy = {self._connections[worker]: worker for task, worker in owner.items() if task not in ready}
        readable = connection.wait(list(busy), timeout or None)
        if not readable:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
        for conn in readable:
            try:
                task, kind, value = _receive(conn)  # type: ignore[arg-type]
            except (EOFError, ConnectionResetError):
                self._fail(busy[conn])
            ready[task] = (kind, value)
