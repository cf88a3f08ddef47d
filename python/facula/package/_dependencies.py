"""The modules on which a source or a pickle depends."""

from __future__ import annotations

import ast
import pickletools


def of_source(source: str, package: str) -> list[tuple[str, str | None]]:
    """Returns (module, name imported from it or None), for source of a module in ``package``."""
    dependencies: dict[tuple[str, str | None], None] = {}

    class Visitor(ast.NodeVisitor):
        def visit_Import(self, node: ast.Import) -> None:
            dependencies.update({(a.name, None): None for a in node.names})

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            module = node.module or ""
            if node.level:
                base = package.split(".")
                base = base[: len(base) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            dependencies.update({(module, None if a.name == "*" else a.name): None for a in node.names})

        def visit_Call(self, node: ast.Call) -> None:
            if isinstance(node.func, ast.Name) and node.func.id == "__import__" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    dependencies[first.value, None] = None
            self.generic_visit(node)

    Visitor().visit(ast.parse(source))
    return list(dependencies)


def of_pickle(data: bytes) -> list[str]:
    """Returns the modules that a pickle of protocol 2 or 3 names."""
    names = {arg.split(" ")[0]: None for op, arg, _ in pickletools.genops(data) if op.name == "GLOBAL"}
    return list(names)
