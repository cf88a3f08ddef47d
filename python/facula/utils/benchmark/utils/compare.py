"""Compare: measurements as tables."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Any

from .common import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

_BEST, _GOOD, _BAD, _VERY_BAD, _BOLD, _END = (
    "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m",
)  # fmt: skip


class Colorize(enum.Enum):
    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _coloured(cell: str, value: float, best: float) -> str:
    """Colours a cell: bold and green if it is fastest, red if it takes more than twice or five times as
    long.
    """
    if value <= best * 1.01:
        return f"{_BEST}{_BOLD}{cell}{_END}{_END}"
    if value <= best * 1.1:
        return f"{_GOOD}{_BOLD}{cell}{_END}{_END}"
    if value >= best * 5:
        return f"{_VERY_BAD}{_BOLD}{cell}{_END}{_END}"
    if value >= best * 2:
        return f"{_BAD}{cell}{_END}{_END}"
    return cell


class _Column:
    """The measurements of one description, and their formatting."""

    def __init__(self, cells: list[Measurement | None], table: Compare, scale: float, title: str) -> None:
        self.cells, self.table, self.scale = cells, table, scale
        there = [m for m in cells if m is not None]
        digits = [math.ceil(math.log10(m.median / scale)) for m in there]
        decimals = 1
        if table._trimmed:
            decimals = min(max(m.significant_figures - d, 0) for m, d in zip(there, digits))
        self.decimals = decimals
        self.warned = table._warned and any(m.has_warnings for m in there)
        self.length = max(digits) + decimals + bool(decimals)
        texts = [self._text(m) for m in cells]
        self.width = max(len(title), *(len(t) for t in texts))
        self.texts = [t.center(self.width) for t in texts]
        self.title = title.center(self.width)

    def _text(self, m: Measurement | None) -> str:
        if m is None:
            return ""
        value = m.median / self.scale
        if self.table._trimmed:
            value = trim_sigfig(value, m.significant_figures)
        text = f"{value:>{self.length}.{self.decimals}f}"
        if self.warned:
            text += f" (! {100 * m.iqr / m.median:.0f}%)" if m.has_warnings else " " * 8
        return text


class Compare:
    """A table of measurements: one per label, with rows by sub_label and threads, and columns by
    description.
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trimmed = self._warned = False
        self._colours = Colorize.NONE

    def extend_results(self, results: Iterable[Measurement]) -> None:
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
            self._results.append(r)

    def trim_significant_figures(self) -> None:
        """Shows only significant digits."""
        self._trimmed = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours each cell by its ratio to the best one of its column or row."""
        self._colours = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Marks measurements with a high variance."""
        self._warned = True

    def print(self) -> None:
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = ordered_unique(r.task_spec.label for r in merged)
        return "\n".join(self._table([r for r in merged if r.task_spec.label == label]) for label in labels)

    def _table(self, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(r.median for r in results))
        results = sorted(results, key=lambda r: r.task_spec.num_threads)
        many = len({r.env for r in results}) > 1
        rows = ordered_unique((r.task_spec.num_threads, r.env, r.as_row_name) for r in results)
        names = ordered_unique(r.task_spec.description for r in results)
        measured = {
            (r.task_spec.num_threads, r.env, r.as_row_name, r.task_spec.description): r for r in results
        }
        columns = [
            _Column([measured.get((*row, name)) for row in rows], self, scale, str(name or ""))
            for name in names
        ]
        threads = {row: f"{row[0]} threads: " for row in rows}
        heads = {row: f"      {f'({row[1]})  ' if many else ''}{row[2]}" for row in rows}
        first = max(len(t) for t in (*threads.values(), *heads.values()))
        lines = [" " * first + "  |  " + "  |  ".join(c.title for c in columns)]
        width = len(lines[0])
        before: Any = None
        for k, row in enumerate(rows):
            if row[0] != before:
                lines.append(threads[row] + "-" * (width - len(threads[row])))
            before = row[0]
            cells = [self._cell(columns, j, k, rows) for j in range(len(columns))]
            lines.append(heads[row].ljust(first) + "  |  " + "  |  ".join(cells))
        title = f" {results[0].task_spec.label or results[0].task_spec.stmt} "
        bar = f"[{title.center(width - 2, '-')}]"
        text = "\n".join([bar, *lines]) + f"\n\nTimes are in {unit_to_english(unit)}s ({unit}).\n"
        if self._warned and any(r.has_warnings for r in results):
            text += "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        return text

    def _cell(self, columns: list[_Column], j: int, k: int, rows: list[Any]) -> str:
        cell, m = columns[j].texts[k], columns[j].cells[k]
        if m is None or self._colours is Colorize.NONE:
            return cell
        if self._colours is Colorize.ROWWISE:
            peers = [c.cells[k] for c in columns]
        else:
            peers = [c for c, row in zip(columns[j].cells, rows) if row[0] == rows[k][0]]
        return _coloured(cell, m.median, min(p.median for p in peers if p is not None))
