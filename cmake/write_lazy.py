"""write_lazy.py PACKAGE TARGET: for tools that read, the names that a package finds at their first use.

A package's ``__init__.py`` lists its modules in ``_SUBMODULES`` and its names, by the module that has them,
in ``_ELSEWHERE``; this writes ``_lazy.pyi``, which imports all of them, at the same place in TARGET.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def literal(tree: ast.Module, name: str, kind: type) -> object:
    """The first literal of this kind in the value that the module gives a name; None if it gives none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return next((ast.literal_eval(n) for n in ast.walk(node.value) if isinstance(n, kind)), None)
    return None


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for list_name in ("_SUBMODULES", "_OPERATOR_MODULES"):
        modules = literal(tree, list_name, (ast.Constant, ast.List))
        for name in modules.split() if isinstance(modules, str) else modules or ():
            yield name, f"from . import {name} as {name}"
    for module, names in (literal(tree, "_ELSEWHERE", ast.Dict) or {}).items():
        for name in names.split():
            yield name, f"from .{module} import {name} as {name}"


def main() -> None:
    package, target = (Path(a).resolve() for a in sys.argv[1:])
    for init in sorted(package.rglob("__init__.py")):
        found = sorted(imports(ast.parse(init.read_text())))
        if not found:
            continue
        names = ", ".join(repr(name) for name, _ in found)
        text = "\n".join([*(line for _, line in found), "", f"__all__ = [{names}]", ""])
        file = target / init.relative_to(package).with_name("_lazy.pyi")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


main()
