"""Patterns of dotted names, and the contents of an archive as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable


class GlobGroup:
    """Names that match one of ``include`` and none of ``exclude``: ``*`` matches a part of a component,
    ``**`` any number of components, including none.

    >>> group = facula.package.GlobGroup("lib.**", exclude="lib.test.*")
    >>> group.matches("lib.net"), group.matches("lib"), group.matches("lib.test.a")
    (True, True, False)
    """

    def __init__(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), separator: str = "."
    ) -> None:
        self._shown = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include = self._compiled(include)
        self.exclude = self._compiled(exclude)

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__

    def _compiled(self, patterns: str | Iterable[str]) -> list[re.Pattern]:
        globs = [patterns] if isinstance(patterns, str) else patterns
        return [re.compile("".join(map(self._component, p.split(self.separator)))) for p in globs]

    def _component(self, part: str) -> str:
        separator = re.escape(self.separator)
        if part == "**":
            return f"({separator}[^{separator}]+)*"
        if "**" in part:
            raise ValueError("** can only appear as an entire path segment")
        return separator + f"[^{separator}]*".join(map(re.escape, part.split("*")))

    def matches(self, candidate: str) -> bool:
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(
            p.fullmatch(name) for p in self.exclude
        )


class Directory:
    """A folder of an archive; ``print`` shows it as a tree."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def _add_file(self, path: str) -> None:
        at = self
        *folders, last = path.split("/")
        for folder in folders:
            at = at.children.setdefault(folder, Directory(folder, True))
        at.children[last] = Directory(last, False)

    def has_file(self, filename: str) -> bool:
        """Returns whether there is something at this path."""
        at: Directory | None = self
        for part in filename.split("/"):
            at = at.children.get(part) if at else None
        return at is not None

    def _lines(self, indent: str) -> list[str]:
        children = sorted(self.children.values(), key=lambda c: (not c.is_dir, c.name))
        lines = []
        for child in children:
            last = child is children[-1]
            lines.append(f"{indent}{'└── ' if last else '├── '}{child.name}")
            lines += child._lines(indent + ("    " if last else "│   "))
        return lines

    def __str__(self) -> str:
        return "\n".join([f"─── {self.name}", *self._lines("    ")]) + "\n"
