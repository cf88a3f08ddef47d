"""Timer: runs a statement often enough to measure its time."""

from __future__ import annotations

import enum
import textwrap
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

from .common import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]

timer = timeit.default_timer


class Language(enum.Enum):
    PYTHON = 0
    CPP = 1


class Timer:
    """Times a statement as ``timeit`` does, with ``num_threads`` threads (default 1), after a warm-up
    run.

    ``label``, ``sub_label``, ``description`` and ``env`` determine the place of the measurement in a
    Compare.

    >>> t = facula.utils.benchmark.Timer("x + 1", globals={"x": facula.ones(3)})
    >>> t.timeit(10).number_per_run
    10
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language in (Language.CPP, "cpp", "c++", "C++"):
            raise NotImplementedError("benchmark.Timer: language='c++' is not there; time from C++ itself")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(f"global_setup is C++ only, got `{global_setup}`. Most likely this code can "
                             "simply be moved to `setup`.")  # fmt: skip
        # Code that is written inside of a function is indented, and is dedented here.
        stmt, setup = (_dedented(s) for s in (stmt, setup))
        space = dict(globals or {})
        space.setdefault("facula", __import__("facula"))
        space.setdefault("torch", space["facula"])
        self._globals = space
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=space)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Measures one time of ``number`` runs, after a hundredth of them as warm-up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return Measurement(number, [self._timeit(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable | None = None) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """Returns the number of runs that outweighs the overhead of a block."""
        overhead = sorted(self._timeit(0) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._timeit(number)
            relative = overhead / taken
            if relative <= 1e-4 and taken >= min_run_time / 1000 or taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measures blocks of runs until ``min_run_time`` seconds are spent."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < min_run_time:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measures blocks until their interquartile range is below ``threshold`` of the median."""
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times: list[float] = []
            while sum(times) < max_run_time:
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
                measurement = Measurement(number, times, self._task_spec)
                if (
                    len(times) >= 10
                    and sum(times) >= min_run_time
                    and measurement.meets_confidence(threshold)
                ):
                    break
        return measurement

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("benchmark.Timer.collect_callgrind: instructions are not counted")


def _dedented(code: str) -> str:
    code = textwrap.dedent(code)
    lines = code.splitlines()
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines).rstrip() or "pass"
