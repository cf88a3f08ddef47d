"""``draft_export``: exports what can be exported and reports the sizes that the module fixes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .exported_program import ExportedProgram

__all__ = ["DraftExportReport", "Failure", "draft_export"]


@dataclass
class Failure:
    """A size that should be able to change and that the module fixes.

    Attributes:
        where: "size 0 of x"
        asked: the bounds that the user asked for
        got: the bounds of the program
    """

    where: str
    asked: tuple[int, int]
    got: tuple[int, int]

    def __str__(self) -> str:
        low, high = self.got
        allowed = f"{low}" if low == high else f"from {low} to {high}"
        return f"{self.where}: asked for {self.asked[0]} to {self.asked[1]}, and the module's code allows "
        f"{allowed}"


@dataclass
class DraftExportReport:
    """The differences between a program of :func:`draft_export` and one that export would return."""

    failures: list[Failure] = field(default_factory=list)

    def successful(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        if self.successful():
            return "Congratulations: No issues are found during export, and it was able to soundly produce "
            "a graph."
        return "\n".join(["Sizes that the module's code fixes:", *map(str, self.failures)])


def draft_export(
    mod: Any, args: tuple, kwargs: dict | None = None, *, dynamic_shapes: Any = None, **options: Any
) -> ExportedProgram:
    """Exports with every Dim as Dim.AUTO, and adds the report as ``_report``."""
    from ._trace import _Naming, _program
    from .dynamic_shapes import sizes_of_inputs

    kwargs = dict(kwargs or {})
    sizes, symbols = sizes_of_inputs(mod, args, kwargs, dynamic_shapes)
    asked = {name: (s.low, s.high) for name, s in symbols.items()}
    for s in symbols.values():
        s.required, s.chosen, s.dim = False, False, None
    program = _program(mod, args, kwargs, sizes, symbols)
    exported = _Naming(mod, program, args, kwargs, sizes, symbols).exported()
    report = DraftExportReport()
    for name, s in symbols.items():
        if s.low > max(asked[name][0], 2) or s.high < asked[name][1]:
            report.failures.append(Failure(s.where, asked[name], (s.low, s.high)))
    exported._report = report
    return exported
