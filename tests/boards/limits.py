"""Measured numbers beside what they must be, as a table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Limits:
    """Numbers that were checked: the lines of their table, and how many are beyond their limits."""

    lines: list[str] = field(default_factory=list)
    failed: int = 0

    def most(self, what: str, value: float, limit: float) -> None:
        self._add(what, value, f"<= {limit:,}", value <= limit)

    def least(self, what: str, value: float, limit: float) -> None:
        self._add(what, value, f">= {limit:,}", value >= limit)

    def above(self, what: str, value: float, limit: float) -> None:
        self._add(what, value, f"> {limit:,}", value > limit)

    def holds(self, what: str, value: bool) -> None:
        self._add(what, value, "", value)

    def _add(self, what: str, value: float, limit: str, good: bool) -> None:
        text = (
            "" if isinstance(value, bool) else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
        )
        self.lines.append(f"| {what} | {text} | {limit} | {'holds' if good else 'FAILS'} |")
        self.failed += not good

    def table(self) -> str:
        return "\n".join(["| what | measured | must be | |", "|---" * 4 + "|", *self.lines])
