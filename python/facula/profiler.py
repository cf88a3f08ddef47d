"""Profiles programs: the operations, their times, memory and source lines.

``with facula.profile() as prof: ...`` and ``print(prof)`` is enough for most questions;
docs/diagnostics.md describes the rest. While no profile is recorded, an operator tests one flag.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from .autograd import profiler as _base
from .autograd.profiler import record_function
from .autograd.profiler_util import write_beside

__all__ = [
    "DeviceType",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class DeviceType(enum.Enum):
    """The device of an event."""

    CPU = 0
    CUDA = 1


def kineto_available() -> bool:
    """Returns whether PyTorch's library for traces of GPUs is available: False."""
    return False


class ProfilerActivity(enum.Enum):
    """Activities that can be recorded: only the CPU."""

    CPU = 0
    CUDA = 2


class ProfilerAction(enum.Enum):
    """The action of a profile during a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """Returns what can be recorded in this build."""
    return {ProfilerActivity.CPU}


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Returns a schedule of recorded steps: after ``skip_first`` steps, cycles of ``wait`` idle steps,
    ``warmup`` steps that are dropped and ``active`` steps that are recorded; ``repeat`` cycles, or
    endlessly (0). ``skip_first_wait``: the first cycle does not wait.

    >>> s = facula.profiler.schedule(wait=1, warmup=1, active=2)
    >>> [s(k).name for k in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step += (wait if skip_first_wait else 0) - skip_first
        cycle, step = divmod(step, length)
        if (repeat and cycle >= repeat) or step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if step < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For ``on_trace_ready``: writes each trace to a folder, under a unique name."""

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handler


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile(_base.profile):
    """Records the operations of the block, on all threads; step by step with a ``schedule``.

    Arguments:
        activities: ``[ProfilerActivity.CPU]``.
        schedule: the action for each step, see :func:`schedule`; the program calls :meth:`step` after
        each.
        on_trace_ready: called with the profile whenever a recording is complete.
        record_shapes: sizes and dtypes of operands.
        profile_memory: memory that tensors allocate and free.
        with_stack: all lines of the program that led to a call; otherwise only the innermost.
        with_flops: counts the floating-point operations of products, convolutions, ``add`` and ``mul``.
        acc_events: keeps the events of earlier cycles.

    >>> with facula.profiler.profile(record_shapes=True) as prof:
    ...     y = facula.ones(2, 3) @ facula.ones(3, 4)
    >>> [e.input_shapes for e in prof.events() if e.name == "aten::matmul"]
    [[[2, 3], [3, 4]]]
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ) -> None:
        if use_cuda is not None:
            warnings.warn(
                "`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2
            )
        super().__init__(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
            acc_events=acc_events,
        )
        self.activities = set(supported_activities() if activities is None else activities)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        if ProfilerActivity.CUDA in self.activities:
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
        self.schedule = schedule or _always
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._step: record_function | None = None
        self._metadata: dict[str, Any] = {}

    @property
    def profiler(self) -> profile | None:
        """This object, once it has events; else None."""
        return None if self._session is None and self._events is None else self

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        value: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the profile; ``with`` does this too."""
        if self.current_action in _RECORDING:
            self._start()
        self._mark_step()

    def stop(self) -> None:
        """Stops the profile; ``with`` does this too."""
        self._leave_step()
        if self._session is not None:
            self._finish()

    def step(self) -> None:
        """Marks the beginning of the program's next step."""
        self._leave_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        goes_on = before is ProfilerAction.RECORD and self.current_action in _RECORDING
        if self._session is not None and not goes_on:
            self._finish()
        if self.current_action in _RECORDING and not goes_on:
            self._start()
        self._mark_step()

    def _finish(self) -> None:
        self._stop()
        if self.on_trace_ready is not None and self._events is not None:
            self.on_trace_ready(self)

    def _mark_step(self) -> None:
        if self.record_steps:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _leave_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__()

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a value that is passed as JSON to the trace."""
        self._metadata[key] = json.loads(value)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto or chrome://tracing; compressed if the name ends with ``.gz``."""
        write_beside(path, json.dumps(self._recorded()._trace() | self._metadata))
