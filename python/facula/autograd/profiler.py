"""Profiles a block: every operator, kernel, library call and compilation, with time, memory and source
line.
"""

from __future__ import annotations

import os
import warnings
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from .. import _C
from .._ops import ops
from .profiler_util import EventList, FunctionEvent, FunctionEventAvg, count_flops, parse

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class record_function(ContextDecorator):
    """Names a part of the program in profiles; a context manager and a decorator. Almost free while no
    profile is recorded.

    >>> with facula.profile() as prof:
    ...     with facula.profiler.record_function("normalise"):
    ...         x = facula.ones(3) / 3
    >>> prof.events()[0].name
    'normalise'
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._open: list[int] = []

    def __enter__(self) -> record_function:
        self._open.append(_C.profile_enter(self.name if self.args is None else f"{self.name}: {self.args}"))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._open:
            _C.profile_leave(self._open.pop())

    def _recreate_cm(
        self,
    ) -> record_function:  # a decorated function may call itself, and run on several threads
        return record_function(self.name, self.args)


def _record_function_enter(name: str, args: str | None = None) -> record_function:
    """``record_function`` as two functions, for graphs: ``facula.ops.profiler._record_function_enter``."""
    return record_function(name, args).__enter__()


def _record_function_exit(record: record_function) -> None:
    record.__exit__()


def _complete(namespace: Any) -> None:
    namespace._record_function_enter = namespace._record_function_enter_new = _record_function_enter
    namespace._record_function_exit = _record_function_exit
    _record_function_exit._RecordFunction = _record_function_exit  # type: ignore[attr-defined]  # its overload


_complete(ops.profiler)


class profile:
    """Records the operations of the block.

    Arguments:
        enabled: if false, nothing is recorded.
        record_shapes: sizes and dtypes of operands.
        profile_memory: memory that tensors allocate and free.
        with_stack: all lines of the program that led to a call; otherwise only the innermost.
        with_flops: counts the floating-point operations of products, convolutions, ``add`` and ``mul``.

    >>> with facula.autograd.profiler.profile() as prof:
    ...     y = facula.ones(10).exp()
    >>> print(prof.key_averages().table(sort_by="self_cpu_time_total"))  # doctest: +ELLIPSIS
    ---...
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
    ) -> None:
        if use_cuda or use_device == "cuda":
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            use_device = None
        if use_device not in (None, "cpu"):
            raise NotImplementedError(
                f"profile: there is no device {use_device!r} in this build; leave out use_device"
            )
        self.enabled = enabled
        self.record_shapes, self.with_flops = record_shapes or with_flops, with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.acc_events = acc_events
        self._session: int | None = None
        self._pid = 0
        self._events: EventList | None = None

    def __enter__(self) -> profile:
        if self.enabled:
            self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self._session = _C.profile_start(self.record_shapes, self.profile_memory, self.with_stack)
        self._pid = os.getpid()

    def _stop(self) -> None:
        session, self._session = self._session, None
        if session is None or self._pid != os.getpid():  # a forked child records nothing
            return
        recorded = _C.profile_stop(session)
        held = _C.memory_stats()["current_bytes"] if self.profile_memory else 0
        before = self._events if self.acc_events else None
        self._events = parse(recorded, self.profile_memory, held)
        if self.with_flops:
            count_flops(self._events)
        if before is not None:
            self._events[:0] = before

    def _recorded(self) -> EventList:
        if self._events is None:
            raise RuntimeError("the profile has not ended: nothing was recorded yet")
        return self._events

    def events(self) -> EventList:
        """Returns every event, in order of start."""
        return self._recorded()

    @property
    def function_events(self) -> EventList:
        return self._recorded()

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Returns sums by name, optionally separated by shapes and lines (overloads have one name)."""
        return self._recorded().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Returns the sum over all events."""
        return self._recorded().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events in microseconds; each moment of a thread counts once."""
        return self._recorded().self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The table of all events, see :meth:`EventList.table`."""
        return self._recorded().table(*args, **kwargs)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto or chrome://tracing; compressed if the name ends with ``.gz``."""
        self._recorded().export_chrome_trace(path)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Writes stacks with their times, for flame graphs. Requires ``with_stack=True``."""
        if not self.with_stack:
            raise ValueError("export_stacks: profile with with_stack=True")
        self._recorded().export_stacks(path, metric)

    def __str__(self) -> str:
        if self._events is None:
            return "<unfinished profile>"
        return self.key_averages(self.record_shapes, 1).table(sort_by="self_cpu_time_total", row_limit=40)

    def __repr__(self) -> str:
        n = "unfinished" if self._events is None else f"{len(self._events)} events"
        return f"<facula profile: {n}>"
