"""link_package.py SOURCE... TARGET: mirrors the files of each SOURCE folder (.py, .pyi, py.typed, PKG-INFO)
into TARGET as links.

Links that lead nowhere any more are removed. What else lies in TARGET (libraries, kernels) is left alone.
"""

import os
import sys
from pathlib import Path


def wanted(path: Path) -> bool:
    return path.suffix in (".py", ".pyi") or path.name in ("py.typed", "PKG-INFO")


def main() -> None:
    *sources, target = (Path(a).resolve() for a in sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    for old in target.rglob("*"):
        if old.is_symlink() and not old.exists():
            old.unlink(missing_ok=True)
    for source in sources:
        for file in source.rglob("*"):
            if not wanted(file):
                continue
            link = target / file.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            if link.is_symlink() and os.readlink(link) == str(file):
                continue
            link.unlink(missing_ok=True)
            link.symlink_to(file)


main()
