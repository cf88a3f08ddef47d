"""The modules that a source or a pickle needs."""

from __future__ import annotations

import ast
import pickletools


def of_source(source: str, package: str) -> list[tuple[str, str | None]]:
    """(module, name imported from it or None), for source of a module whose package is ``package``."""
    found: dict[tuple[str, str | None], None] = {}

    class Visitor(ast.NodeVisitor):
        def visit_Import(self, node: ast.Import) -> None:
            found.update({(a.name, None): None for a in node.names})

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            module = node.module or ""
            if node.level:
                base = package.split(".")
                base = base[: len(base) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            found.update({(module, None if a.name == "*" else a.name): None for a in node.names})

        def visit_Call(self, node: ast.Call) -> None:
            if isinstance(node.func, ast.Name) and node.func.id == "__import__" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found[first.value, None] = None
            self.generic_visit(node)

    Visitor().visit(ast.parse(source))
    return list(found)


def of_pickle(data: bytes) -> list[str]:
    """The modules that a pickle of protocol 2 or 3 names."""
    names = {arg.split(" ")[0]: None for op, arg, _ in pickletools.genops(data) if op.name == "GLOBAL"}
    return list(names)
