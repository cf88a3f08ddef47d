"""Measurements: the times of one task and their uncertainty."""

from __future__ import annotations

import contextlib
import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .... import _C

__all__ = ["Measurement", "TaskSpec", "ordered_unique", "select_unit", "set_torch_threads", "trim_sigfig",
           "unit_to_english"]  # fmt: skip

_MOST_FIGURES = 5
_LEAST_INTERVAL = 25e-9  # seconds: the resolution of clocks
_WARNED, _GROSS = 0.1, 0.25  # ratios of the interquartile range to the median


@dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """The measured task, and its place in tables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the code if there is none."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        beside = f" ({self.sub_label})" if self.sub_label else ""
        return f"stmt:{beside}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        if self.setup == "pass" or not self.setup:
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """Returns title, description and setup as a measurement shows them."""
        sections = [self.title, self.description or "", self.setup_str()]
        joined = [s for s in sections if s]
        return "\n".join(f"{s}\n" if "\n" in s else s for s in joined)


def _quantile(values: list[float], q: float) -> float:
    place = q * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@dataclass(init=True, repr=False)
class Measurement:
    """Times of a task: ``raw_times`` of ``number_per_run`` runs each, ``times`` of one run.

    >>> from facula.utils.benchmark import Measurement, TaskSpec
    >>> m = Measurement(10, [2e-5, 2.2e-5, 2.1e-5], TaskSpec("f(x)", "pass"))
    >>> print(f"{m.median:.3g} {m.iqr:.2g}")
    2.1e-06 1e-07
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "task_spec" and hasattr(TaskSpec, name) or name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(name)

    @property
    def times(self) -> list[float]:
        """Returns the seconds per run."""
        return [t / self.number_per_run for t in self.raw_times]

    def _sorted(self) -> list[float]:
        if not self.raw_times:
            raise AssertionError("a measurement has at least one time")
        return sorted(self.times)

    @property
    def median(self) -> float:
        return statistics.median(self._sorted())

    @property
    def mean(self) -> float:
        values = self._sorted()
        return sum(values) / len(values)

    @property
    def iqr(self) -> float:
        """The interquartile range: from the 25th to the 75th percentile."""
        values = self._sorted()
        return _quantile(values, 0.75) - _quantile(values, 0.25)

    @property
    def significant_figures(self) -> int:
        """Returns the number of digits of the median that the 90 % confidence interval of its middle half
        supports.
        """
        values = self._sorted()
        middle = values[len(values) // 4 : math.ceil(3 * len(values) / 4)]
        interval = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), _LEAST_INTERVAL)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MOST_FIGURES)

    @property
    def has_warnings(self) -> bool:
        return self.iqr / self.median > _WARNED

    def meets_confidence(self, threshold: float = _WARNED) -> bool:
        """Returns whether the interquartile range is below ``threshold`` of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        lines = [f"{super().__repr__()}", self.task_spec.summarize()]
        if len(self.raw_times) > 1:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
        else:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        if len(self.raw_times) >= 4:
            values = self._sorted()
            low, high = _quantile(values, 0.25), _quantile(values, 0.75)
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})")
        runs = f"{self.number_per_run} runs {'per measurement, ' if len(self.raw_times) > 1 else ', '}"
        count, threads = len(self.raw_times), self.task_spec.num_threads
        lines.append(f"  {count} measurement{'s' * (count > 1)}, {runs}{threads} thread{'s' * (threads > 1)}")
        if self.has_warnings:
            gross = self.iqr / self.median > _GROSS
            lines.append(
                f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median "
                "measurement.\n           This "
                + ("suggests significant environmental influence." if gross else
                   "could indicate system fluctuation.")
            )  # fmt: skip
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Merges the measurements of each task into one."""
        grouped: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            grouped.setdefault(m.task_spec, []).append(m)
        return [
            Measurement(1, [t / m.number_per_run for m in ms for t in m.raw_times], spec, None)
            for spec, ms in grouped.items()
        ]


def select_unit(t: float) -> tuple[str, float]:
    """Returns the unit for displaying a time, and its seconds.

    >>> facula.utils.benchmark.select_unit(2e-4)
    ('us', 1e-06)
    """
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(math.floor(math.log10(t) // 3), "s")
    return unit, {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def unit_to_english(u: str) -> str:
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """Rounds a number to ``n`` significant figures."""
    if not x:
        return x
    scale = 10 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Returns each element once, in the order of first occurrence."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Within the ``with`` block operators use ``n`` threads."""
    before = _C.get_num_threads()
    try:
        _C.set_num_threads(n)
        yield
    finally:
        _C.set_num_threads(before)
