"""A picture of the arena over time."""

from __future__ import annotations

from html import escape

from ..c import Block

_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 380, 70, 30
_COLOURS = ("#4c78a8", "#72b7b2", "#54a24b", "#eeca3b", "#f58518", "#b279a2")


def picture(blocks: list[Block], arena: int, title: str) -> str:
    """An SVG image: a rectangle for each tensor, from its first to its last step and over its bytes."""
    steps = 1 + max((b.last for b in blocks), default=0)
    x = (_WIDTH - _LEFT - 10) / steps
    y = (_HEIGHT - _TOP - 30) / max(arena, 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="{_LEFT}" y="18">{escape(title)}</text>',
    ]
    for b in blocks:
        colour = _COLOURS[sum(map(ord, b.name.split(":")[0])) % len(_COLOURS)]
        left, top = _LEFT + b.first * x, _HEIGHT - 30 - (b.offset + b.bytes) * y
        lines.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{(b.last - b.first + 1) * x:.1f}" '
            f'height="{b.bytes * y:.2f}" fill="{colour}" stroke="white" stroke-width="0.3">'
            f"<title>{escape(b.name)}, {b.bytes:,} bytes, steps {b.first} to {b.last}</title></rect>"
        )
    for share in (0, 0.5, 1):
        at = _HEIGHT - 30 - share * arena * y
        lines.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.0f}" text-anchor="end">{share * arena / 1024:,.0f} KB</text>'
        )
    lines.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}">steps 0 to {steps - 1}</text></svg>')
    return "\n".join(lines)
