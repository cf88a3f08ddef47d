"""The deliberate differences from PyTorch, by operator.

FAMILY.txt beside this file declares those of the operators of src/facula/catalog/FAMILY.cpp, shared.txt
those that operators of several families have in common. Declarations have empty lines between them, and three
parts:

    operators, with commas between, on as many lines as it takes
        a regular expression for the beginning of a line of compare.py, on one line
        the reason, in words

docs/robustness.md, "Edges", tells what the expression is compared with.
"""

import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SHARED = "shared"


class Difference(NamedTuple):
    where: str
    why: str


class Declaration(NamedTuple):
    family: str
    operators: tuple[str, ...]
    difference: Difference


def declarations(folder: Path = HERE) -> list[Declaration]:
    """All of them; those of a family before the shared ones."""
    out = []
    for path in sorted(folder.glob("*.txt"), key=lambda p: (p.stem == SHARED, p.stem)):
        for block in re.split(r"\n\s*\n", path.read_text().strip()):
            lines = block.splitlines()
            head = [line for line in lines if not line.startswith(" ")]
            body = [line.strip() for line in lines if line.startswith(" ")]
            if len(body) < 2 or lines != head + lines[len(head) :] or not head:
                raise ValueError(f"{path.name}: not operators, an expression and a reason: {block}")
            operators = tuple(name.strip() for name in " ".join(head).split(",") if name.strip())
            out.append(Declaration(path.stem, operators, Difference(body[0], " ".join(body[1:]))))
    return out


def by_operator(folder: Path = HERE) -> dict[str, list[Difference]]:
    """The differences of each operator, by its full name."""
    out = {}
    for declaration in declarations(folder):
        for name in declaration.operators:
            out.setdefault(name, []).append(declaration.difference)
    return out
