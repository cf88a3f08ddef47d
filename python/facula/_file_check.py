"""FileCheck: checks that a text contains patterns in order. Named after LLVM's tool."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_DIRECTIVE = re.compile(
    r"\s*#\s*CHECK(?:-(NEXT|SAME|NOT|DAG|REGEX|SOURCE-HIGHLIGHTED|COUNT(?:-EXACTLY)?-\d+))?:\s*(.*)"
)


class _Rule:
    def __init__(self, kind: str, what: str, count: int = 1, exactly: bool = False) -> None:
        self.kind, self.what, self.count, self.exactly = kind, what, count, exactly


class FileCheck:
    """A sequence of checks; each one searches the text after the match of the previous one.

    >>> facula.testing.FileCheck().check("a").check_next("b").check_not("c").run("a 1\\nb 2\\n")
    """

    def __init__(self) -> None:
        self._rules: list[_Rule] = []

    def _add(self, kind: str, what: str, count: int = 1, exactly: bool = False) -> FileCheck:
        self._rules.append(_Rule(kind, what, count, exactly))
        return self

    def check(self, test: str) -> FileCheck:
        """The text must follow."""
        return self._add("check", test)

    def check_not(self, test: str) -> FileCheck:
        """The text must not occur between the matches of the neighbouring checks."""
        return self._add("not", test)

    def check_same(self, test: str) -> FileCheck:
        """The text must follow on the same line."""
        return self._add("same", test)

    def check_next(self, test: str) -> FileCheck:
        """The text must follow on the next line."""
        return self._add("next", test)

    def check_count(self, test: str, count: int, exactly: bool = False) -> FileCheck:
        """The text must follow ``count`` times, and not more often if ``exactly``."""
        return self._add("count", test, count, exactly)

    def check_dag(self, test: str) -> FileCheck:
        """The text must follow; adjacent checks of this kind may match in any order."""
        return self._add("dag", test)

    def check_regex(self, test: str) -> FileCheck:
        """A match of the regular expression must follow."""
        return self._add("regex", test)

    def check_source_highlighted(self, test: str) -> FileCheck:
        """The text must follow, and the line below must mark all of it with ``~``."""
        return self._add("highlighted", test)

    def run(self, *texts: str) -> None:
        """``run(text)`` runs the checks, ``run(checks, text)`` those in its lines ``# CHECK: ...``.
        Raises RuntimeError for a check that fails.
        """
        if not 1 <= len(texts) <= 2:
            raise TypeError(f"FileCheck.run() takes a text, or checks and a text, got {len(texts)} arguments")
        rules = _read(texts[0]) if len(texts) == 2 else self._rules
        text, at, k = texts[-1], 0, 0
        barred: list[_Rule] = []
        while k < len(rules):
            if rules[k].kind == "not":
                barred.append(rules[k])
                k += 1
                continue
            group = [rules[k]]
            while rules[k].kind == "dag" and k + 1 < len(rules) and rules[k + 1].kind == "dag":
                k += 1
                group.append(rules[k])
            spans = [_FOUND[r.kind](text, at, r) for r in group]
            _refuse(text, at, min(s[0] for s in spans), barred)
            barred = []
            at = max(s[1] for s in spans)
            k += 1
        _refuse(text, at, len(text), barred)


def _read(checks: str) -> list[_Rule]:
    rules = []
    for line in checks.splitlines():
        directive = _DIRECTIVE.match(line)
        if not directive:
            continue
        kind, what = directive[1] or "check", directive[2].strip()
        if kind.startswith("COUNT"):
            rules.append(_Rule("count", what, int(kind.rpartition("-")[2]), "EXACTLY" in kind))
        else:
            rules.append(_Rule("highlighted" if "-" in kind else kind.lower(), what))
    if not rules:
        raise RuntimeError("FileCheck: expected at least one line '# CHECK: ...' in the checks")
    return rules


def _fail(text: str, at: int, message: str) -> Any:
    part = text[at : at + 400]
    raise RuntimeError(f"FileCheck: {message}\nSearched from line {text.count(chr(10), 0, at) + 1}:\n{part}")


def _find(text: str, at: int, rule: _Rule, end: int | None = None) -> tuple[int, int]:
    position = text.find(rule.what, at, len(text) if end is None else end)
    if position < 0:
        _fail(text, at, f'Expected to find "{rule.what}" but did not find it')
    return position, position + len(rule.what)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _same(text: str, at: int, rule: _Rule) -> tuple[int, int]:
    return _find(text, at, rule, _line_end(text, at))


def _next(text: str, at: int, rule: _Rule) -> tuple[int, int]:
    begin = _line_end(text, at) + 1
    return _find(text, min(begin, len(text)), rule, _line_end(text, begin))


def _count(text: str, at: int, rule: _Rule) -> tuple[int, int]:
    first, end = None, at
    for _ in range(rule.count):
        begin, end = _find(text, end, rule)
        first = begin if first is None else first
    if rule.exactly and text.find(rule.what, end) >= 0:
        _fail(text, end, f'Expected to find "{rule.what}" {rule.count} times, but it is there more often')
    return at if first is None else first, end


def _regex(text: str, at: int, rule: _Rule) -> tuple[int, int]:
    match = re.compile(rule.what).search(text, at)
    if not match:
        _fail(text, at, f'Expected to find a match of "{rule.what}" but did not find it')
    return match.span()  # type: ignore[union-attr]


def _highlighted(text: str, at: int, rule: _Rule) -> tuple[int, int]:
    begin, end = _find(text, at, rule)
    column = begin - (text.rfind("\n", 0, begin) + 1)
    under = _line_end(text, end) + 1
    marks = text[under + column : min(under + column + len(rule.what), _line_end(text, under))]
    if marks != "~" * len(rule.what):
        _fail(text, begin, f'Expected "{rule.what}" to be highlighted but it is not')
    return begin, end


_FOUND: dict[str, Callable[[str, int, _Rule], tuple[int, int]]] = {
    "check": _find,
    "dag": _find,
    "same": _same,
    "next": _next,
    "count": _count,
    "regex": _regex,
    "highlighted": _highlighted,
}


def _refuse(text: str, begin: int, end: int, barred: list[_Rule]) -> None:
    for rule in barred:
        if text.find(rule.what, begin, end) >= 0:
            _fail(text, begin, f'Expected to not find "{rule.what}" but found it')
