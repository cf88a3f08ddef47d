"""The HTML page of a program: one file without scripts or external resources."""

from __future__ import annotations

from html import escape
from typing import Any

COLOURS = {"kernel": "#3b7dd8", "library": "#d8733b", "view": "#9a9a9a"}
WIDTH, HEIGHT = 960, 220
STYLE = """
body { font: 14px sans-serif; margin: 1.5em; color: #222 }
table { border-collapse: collapse }
td, th { padding: 1px 10px; text-align: right; vertical-align: top; white-space: nowrap }
td:last-child, th:last-child { text-align: left; font-family: monospace; white-space: normal }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto }
tr:target { background: #ffe9a8 }
"""


def amount(bytes: float) -> str:
    """12.3 MiB"""
    for unit in ("B", "KiB", "MiB"):
        if bytes < 1024:
            return f"{bytes:.0f} {unit}" if unit == "B" else f"{bytes:.1f} {unit}"
        bytes /= 1024
    return f"{bytes:.1f} GiB"


def chart(steps: Any) -> str:
    """A bar chart of the memory held during each step; the step's own allocations are darker."""
    peak, width = max(steps.peak, 1), WIDTH / max(len(steps), 1)
    bars = []
    for k, step in enumerate(steps):
        x, colour = f"{k * width:.2f}", COLOURS[step.kind]
        held, own = (max(n / peak * HEIGHT, 0.5 if n else 0) for n in (step.holds, step.allocates))
        size = f'x="{x}" width="{max(width - 0.5, 0.5):.2f}" fill="{colour}"'
        bars.append(
            f'<a href="#step{k}"><g><title>{k}: {escape(step.text)}\nholds {amount(step.holds)}, '
            f"allocates {amount(step.allocates)}</title>"
            f'<rect {size} y="{HEIGHT - held:.1f}" height="{held:.1f}" fill-opacity="0.45"/>'
            f'<rect {size} y="{HEIGHT - own:.1f}" height="{own:.1f}"/></g></a>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" style="max-width:{WIDTH}px">{"".join(bars)}</svg>'
    )


def page(graph: str, steps: Any) -> str:
    rows = ""
    for k, s in enumerate(steps):
        what = escape(s.text.partition(" ")[2])
        rows += (
            f'<tr id="step{k}"><td>{k}</td><td style="color:{COLOURS[s.kind]}">{s.kind}</td>'
            f"<td>{amount(s.allocates)}</td><td>{amount(s.holds)}</td><td>{what}</td></tr>"
        )
    told = ", ".join(
        f'<b style="color:{colour}">{sum(s.kind == kind for s in steps)} &times; {kind}</b>'
        for kind, colour in COLOURS.items()
    )
    return (
        '<!doctype html><html><head><meta charset="utf-8"><title>Program</title>'
        f"<style>{STYLE}</style></head><body>"
        f"<h2>Memory</h2><p>At most {amount(steps.peak)} beside arguments and captured tensors, for "
        f"which a call takes {amount(steps.taken)}; {told}.</p>"
        f"{chart(steps)}<h2>Steps</h2><table><tr><th></th><th></th><th>allocates</th><th>holds</th><th></th></tr>"
        f"{rows}</table><h2>Graph</h2><pre>{escape(graph)}</pre></body></html>"
    )
