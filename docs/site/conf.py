"""How Sphinx makes the site: `make docs`."""

import re

project = "Facula"
author = "Facula's authors"
copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
html_theme = "furo"
html_title = "Facula"

LITERAL = re.compile(r"(``.*?``|`[^`]*`)")


def escape(line: str) -> str:
    """Docstrings are plain text with literals: stars, bars and trailing underscores are themselves."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = LITERAL.split(line)
    return "".join(p if k % 2 else re.sub(r"([*|]|(?<=\w)_\b)", r"\\\1", p) for k, p in enumerate(parts))


def setup(app):
    def read(app, what, name, obj, options, lines):
        lines[:] = [escape(line) for line in lines]

    app.connect("autodoc-process-docstring", read, priority=1)
