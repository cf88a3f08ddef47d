"""The names of PyTorch that installed packages use and Facula lacks.

    python tests/ecosystem/scan.py FOLDER... [--only REGEX] [--everywhere] [--show N]

Reads the sources of packages without importing them: imports of torch and its modules, and attributes of
what these imports bind. Then asks the peer and Facula, in a process each, which of the names exist, and
prints those that only the peer has, first the ones that most packages use. Without --everywhere only names
count that a module of a package uses while it is imported, outside of functions and of ``try``: without
these an import fails.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "zoo"))

# Run by both libraries: reads dotted names, writes those that exist: 2 if ``import torch`` is enough, 1 if
# modules have to be imported too.
RESOLVE = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")

def plain(name):
    value = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part)

def imported(name):
    parts, value = name.split("."), torch
    for k, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except Exception:
            value = importlib.import_module(".".join(parts[:k]))

def works(function, name):
    try:
        function(name)
    except BaseException:
        return False
    return True

import torch
names = json.load(sys.stdin)
found = {n: 2 for n in names if works(plain, n)}  # before anything else is imported
json.dump(found | {n: 1 for n in names if n not in found and works(imported, n)}, sys.stdout)
"""
# Names of these are looked up when they are used, and packages define their own below them.
OPEN = ("torch.ops", "torch.classes", "torch.version")


class Names(ast.NodeVisitor):
    """The dotted names below torch that a module uses, and whether it does so while it is imported."""

    def __init__(self, source):
        self.bound = {}  # local names of modules and of what is in them
        self.names = {}  # dotted name -> used while importing
        self.attributes = set()  # those that are reached as attributes
        self.depth = 0  # of functions, and of blocks that may fail
        self.visit(ast.parse(source))

    def note(self, name):
        if not name.startswith(OPEN):
            self.names[name] = self.names.get(name, False) or not self.depth

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.split(".")[0] == "torch":
                self.note(alias.name)
                self.bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"

    def visit_ImportFrom(self, node):
        if node.level or not node.module or node.module.split(".")[0] != "torch":
            return
        for alias in node.names:
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            self.note(name)
            self.bound[alias.asname or alias.name] = name

    def dotted(self, node):
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return base and f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node):
        if name := self.dotted(node):
            self.note(name)
            self.attributes.add(name)
        else:
            self.visit(node.value)

    def deeper(self, nodes):
        self.depth += 1
        for node in nodes:
            self.visit(node)
        self.depth -= 1

    def function(self, node):
        for part in (*getattr(node, "decorator_list", ()), node.args):
            self.visit(part)
        if getattr(node, "returns", None):
            self.visit(node.returns)
        self.deeper(node.body if isinstance(node.body, list) else [node.body])

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = function

    def visit_Try(self, node):
        self.deeper([*node.body, *node.handlers])
        for part in (*node.orelse, *node.finalbody):
            self.visit(part)

    def visit_If(self, node):
        if "TYPE_CHECKING" in ast.dump(node.test):
            return
        # A condition may be a question for a version, so what it guards need not exist.
        self.visit(node.test)
        self.deeper([*node.body, *node.orelse])


def uses(package, everywhere):
    """The names below torch that a package uses: the first place of each, and if it is an attribute."""
    places = {}
    for path in sorted(package.rglob("*.py") if package.is_dir() else [package]):
        relative = path.relative_to(package.parent)
        if {"tests", "test", "testing"} & set(relative.parts):
            continue
        try:
            found = Names(path.read_text(errors="replace"))
        except (SyntaxError, RecursionError, ValueError):
            continue
        for name, importing in found.names.items():
            if everywhere or importing:
                place, attribute = places.get(name, (str(relative), False))
                places[name] = place, attribute or name in found.attributes
    return places


def existing(interpreter, path, names):
    import run as zoo

    done = subprocess.run(
        [*map(str, interpreter), "-c", RESOLVE],
        env=zoo.surroundings(path),
        input=json.dumps(sorted(names)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout[done.stdout.rindex("{") :])


def main():
    import run as zoo

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / ".ecosystem"])
    parser.add_argument("--only", default="", help="names of packages, a regular expression")
    parser.add_argument("--everywhere", action="store_true", help="also names in functions and in try")
    parser.add_argument("--show", type=int, default=4, help="how many packages to name")
    a = parser.parse_args()
    users, attributes = defaultdict(dict), set()
    for folder in a.folders:
        for package in sorted(folder.iterdir()):
            if not re.search(a.only, package.name) or package.name.endswith((".dist-info", ".egg-info")):
                continue
            if package.is_dir() and not package.is_symlink() or package.suffix == ".py":
                for name, (place, attribute) in uses(package, a.everywhere).items():
                    users[name].setdefault(package.name, place)
                    attributes |= {name} if attribute else set()
    theirs = existing(zoo.PEER, [], users)
    ours = existing(zoo.ALIAS, zoo.ALIAS_PATH, users)
    # A name that is reached as an attribute must be there without other imports if it is with the peer.
    missing = [n for n in theirs if ours.get(n, 0) < (theirs[n] if n in attributes else 1)]
    missing.sort(key=lambda n: (-len(users[n]), n))
    for name in missing:
        where = sorted(users[name].values())
        print(f"{len(where):3} {name}  {', '.join(where[: a.show])}")
    print(f"{len(missing)} of {len(users)} names are missing")


if __name__ == "__main__":
    main()
