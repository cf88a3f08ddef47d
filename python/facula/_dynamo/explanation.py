"""The account of a compiled function that :func:`facula.compiler.explain` gives, as text and as a page."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from .. import _C


def _amount(bytes: float) -> str:
    from .._program_page import amount

    return amount(bytes)


def _count(n: int | None) -> str:
    return "an unknown number of" if n is None else f"{n:,}"


class Part:
    """One captured program: its graph, guards, kernels and costs.

    Attributes:
        text: the graph, with the line of each call
        guards: what is checked before it runs
        steps: (text, bytes that it allocates, bytes in use while it runs) by kernel, library call and view
        flops: floating-point operations of products, convolutions and attention; None: it depends on elements
        bytes: bytes that its steps read and write
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self.text, self.guards = facts["graph"], facts["guards"].splitlines()
        self.calls, self.returns = facts["calls"], bool(facts["returns"])
        self.steps: list[tuple] = []
        self.flops: int | None = 0
        self.bytes = self.peak = 0
        if facts.get("program") is not None:
            self._measure(facts["program"])

    def _measure(self, native: Any) -> None:
        steps, _, taken = native.report()
        self.steps, self.peak = [tuple(s) for s in steps], taken
        facts = _C.program_graph(native)
        sizes = {n: _bytes(dtype, shape) for n, dtype, shape, _ in _values(facts)}
        for text, kind, *_ in self.steps:
            if kind != "view":
                self.bytes += sum(sizes.get(n, 0) for n in _numbers(text))
        self.flops = _flops(native)


def _values(facts: dict) -> Any:
    yield from facts["inputs"]
    for value, *_ in facts["constants"]:
        yield value
    for call in facts["nodes"]:
        yield from call[2]


def _bytes(dtype: Any, shape: Any) -> int:
    count = 1
    for n in shape:
        count *= n if isinstance(n, int) else 1
    return count * dtype.itemsize


def _numbers(text: str) -> set[int]:
    import re

    return {int(n) for n in re.findall(r"%(\d+)", text)}


def _flops(native: Any) -> int | None:
    """Returns the operations of products, convolutions and attention, counted on tensors without elements;
    None if a size depends on elements.
    """
    from ..utils.flop_counter import FlopCounterMode
    from .backend import graph_module_of

    inputs = _C.program_graph(native)["inputs"]
    module, _ = graph_module_of(native, [f"x{k}" for k in range(len(inputs))])
    examples = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    try:
        with FlopCounterMode(display=False) as counter, _C.GradMode(False):
            module(*examples)
    except (NotImplementedError, RuntimeError):
        return None
    return int(counter.get_total_flops())


class Explanation:
    """The account of one captured call; ``str()`` gives the text, :meth:`html` the page.

    Attributes:
        name: of the function
        parts: the captured programs in order
        breaks: (file, line, reason, what would prevent it) of each place where the function is divided
    """

    def __init__(self, name: str, report: dict[str, Any]) -> None:
        self.name = name
        self.parts = [Part(s) for s in report["segments"]]
        self.breaks = report["breaks"]
        self.plain_runs = report["plain_runs"]

    @property
    def graph_count(self) -> int:
        return sum(p.calls > 0 for p in self.parts)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        return sum(p.calls for p in self.parts)

    @property
    def break_reasons(self) -> list[str]:
        return [f"{file}:{line}: {reason}" for file, line, reason, _ in self.breaks]

    def __str__(self) -> str:
        calls = f"{self.graph_count} graphs with {self.op_count} calls"
        lines = [f"{self.name}: {calls}, divided at {len(self.breaks)} places"]
        for file, line, reason, fix in self.breaks:
            lines.append(f"break at {file}:{line}: {reason}" + (f" ({fix})" if fix else ""))
        for k, p in enumerate(self.parts):
            lines += ["", f"part {k}: {p.calls} calls, {len(p.guards)} guards"]
            if p.steps:
                lines[-1] += (
                    f", {len(p.steps)} steps, {_count(p.flops)} operations, "
                    f"{_amount(p.bytes)} read and written, "
                    f"{_amount(p.peak)} of memory"
                )
            lines += ["  " + line for line in p.text.rstrip().splitlines()]
            lines += ["  step " + text for text, *_ in p.steps]
            lines += ["  guard " + g for g in p.guards]
        return "\n".join(lines)

    def html(self) -> str:
        """Returns a page without scripts or external resources."""
        from .._program_page import STYLE

        body = [f"<h1>{escape(self.name)}</h1>", f"<p>{escape(str(self).splitlines()[0])}</p>"]
        if self.breaks:
            body.append("<h2>Breaks</h2><table><tr><th>line</th><th>reason</th><th>remedy</th></tr>")
            for file, line, reason, fix in self.breaks:
                cells = (f"{file}:{line}", reason, fix)
                body.append("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>")
            body.append("</table>")
        for k, p in enumerate(self.parts):
            body += [f"<h2>Part {k}</h2>", f"<pre>{escape(p.text)}</pre>", _costs(p), _memory(p)]
            guards = "".join(f"<li>{escape(g)}</li>" for g in p.guards)
            body.append(f"<details><summary>{len(p.guards)} guards</summary><ul>{guards}</ul></details>")
        title = f"<title>{escape(self.name)}</title><meta charset='utf-8'><style>{STYLE}</style>"
        return f"<!DOCTYPE html><html><head>{title}</head><body>{''.join(body)}</body></html>"

    _repr_html_ = html


def _costs(p: Part) -> str:
    if not p.steps:
        return ""
    intensity = (p.flops or 0) / max(p.bytes, 1)
    return (
        f"<p>{_count(p.flops)} operations, {_amount(p.bytes)} read and written: {intensity:.2f} a byte. "
        f"Below about 10 operations a byte, memory limits a processor; above, arithmetic does.</p>"
    )


def _memory(p: Part) -> str:
    """Returns the steps as a table, with a bar for the memory in use."""
    if not p.steps:
        return ""
    peak = max(max(s[-1] for s in p.steps), 1)
    rows = ["<table><tr><th>step</th><th>allocates</th><th>in use</th><th></th></tr>"]
    for text, *_, allocates, alive in p.steps:
        bar = f'<div style="background:#3b7dd8;height:10px;width:{alive / peak * 300:.0f}px"></div>'
        cells = (f"<code>{escape(text)}</code>", _amount(allocates), _amount(alive), bar)
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "</tr>")
    return "".join(rows) + "</table>"


def explain(fn: Callable, *args: Any, **kwargs: Any) -> Explanation:
    """Captures a call of ``fn`` and returns an account of it: programs with the lines of their calls,
    places where the function is divided, guards, kernels, memory, operations and bytes.

    >>> e = facula.compiler.explain(lambda x: (x * 2).relu(), facula.ones(3))
    >>> print(str(e).splitlines()[0])
    <lambda>: 1 graphs with 2 calls, divided at 0 places
    """
    from .. import compiler

    compiled = compiler.compile(fn)
    run = compiled.__dict__.get("_run", compiled)
    while hasattr(run, "__wrapped__") and not isinstance(run, _C.Compiled):
        run = run.__wrapped__
    compiled(*args, **kwargs)
    return Explanation(getattr(fn, "__qualname__", type(fn).__name__), run.report())
