"""Several processes that run one function, and whose failure is raised in the caller."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """A process ended by an exception, whose traceback is the message."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal or an exit code."""

    def __init__(
        self, msg: str, error_index: int, pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(fn: Callable, rank: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(rank, *args)
    except KeyboardInterrupt:
        pass
    except Exception:  # noqa: BLE001  reported to the parent
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """Running processes; ``join`` waits for them."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self._left = dict(enumerate(processes))

    def pids(self) -> list[int]:
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one fails or all are done, at most for ``timeout`` seconds; returns True if all are
        done.

        If a process fails, the others are ended and its failure is raised.
        """
        if not self._left:
            return True
        multiprocessing.connection.wait([p.sentinel for p in self._left.values()], timeout)
        failed = None
        for i, p in list(self._left.items()):
            if p.is_alive():
                continue
            p.join()
            del self._left[i]
            if p.exitcode != 0 and failed is None:
                failed = i
        if failed is None:
            return not self._left
        for p in self._left.values():
            p.terminate()
        end = time.monotonic() + (30 if grace_period is None else grace_period)
        for p in self._left.values():
            p.join(max(0.0, end - time.monotonic()))
            if p.is_alive():
                p.kill()
                p.join()
        self._raise(failed)

    def _raise(self, i: int) -> Any:
        p, errors = self.processes[i], self._errors[i]
        said = None
        try:
            said = errors.recv() if errors.poll() else None
        except EOFError:  # it ended without sending anything
            pass
        if said:
            text = f"\n\n-- Process {i} terminated with the following error:\n{said}"
            raise ProcessRaisedException(text, i, p.pid)
        if p.exitcode < 0:
            name = signal.Signals(-p.exitcode).name
            raise ProcessExitedException(
                f"process {i} terminated with signal {name}", i, p.pid, p.exitcode, name
            )
        raise ProcessExitedException(
            f"process {i} terminated with exit code {p.exitcode}", i, p.pid, p.exitcode
        )


SpawnContext = ProcessContext


def start_processes(
    fn: Callable,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs ``fn(rank, *args)`` in each of ``nprocs`` processes; waits for them, or returns their context."""
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for rank in range(nprocs):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, rank, args, send), daemon=daemon)
        process.start()
        send.close()
        processes.append(process)
        errors.append(receive)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """``start_processes`` with new interpreters.

    Raises ProcessRaisedException with the traceback of a process that fails; the others are ended.
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
