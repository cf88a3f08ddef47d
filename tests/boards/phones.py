"""Programs of C as objects for iOS (clang, freestanding) and as an archive for Android: sizes, needs.

make mobile
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from facula import _java, c

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.programs import CASES
from boards.targets import EXACT, HERE, Target

IOS = Target(
    "arm64-apple-ios",
    "mobile",
    "clang-19",
    ("--target=arm64-apple-ios13", "-ffreestanding", "-fno-stack-protector", f"-I{HERE / 'freestanding'}"),
)
# Functions of a phone's system: those that the headers declare, and those that the compiler calls by itself.
LIBRARY = {
    f"_{name}"
    for header in (HERE / "freestanding").glob("*.h")
    for name in re.findall(r"(\w+)\([^()]*\);", header.read_text())
} | {"_memset", "_bzero", "___bzero"}


def ios_objects(folder: Path) -> tuple[int, set[str]]:
    """Bytes of code of the objects, and the functions that they need from elsewhere."""
    size, needs, has = 0, set(), set()
    for source in sorted(folder.glob("model*.c")):
        target = source.with_suffix(".ios.o")
        command = [IOS.compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", *EXACT, *IOS.options]
        done = subprocess.run(
            [*command, "-c", str(source), "-o", str(target)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        tools = "/usr/lib/llvm-19/bin/"
        shown = subprocess.run(
            [tools + "llvm-nm", str(target)], capture_output=True, text=True, check=True
        ).stdout
        needs |= set(re.findall(r" U (\w+)", shown))
        has |= set(re.findall(r" [TDSR] (\w+)", shown))
        sizes = subprocess.run(
            [tools + "llvm-size", "-A", str(target)], capture_output=True, text=True, check=True
        )
        size += sum(int(n) for n in re.findall(r"__text\s+(\d+)", sizes.stdout))
    return size, needs - has


def main() -> int:
    failed = 0
    print(
        "| program | arm64-apple-ios, code, bytes | archive for Android, bytes | needs |\n|---|---|---|---|"
    )
    for name, make in CASES.items():
        case = make()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            report = c.compile(case.program, folder, weights=case.weights)
            size, needs = ios_objects(folder)
            _java.archive(report, folder, folder / "model.aar")
            libraries = [n for n in zipfile.ZipFile(folder / "model.aar").namelist() if n.startswith("jni/")]
            good = needs <= LIBRARY and len(libraries) == len(_java.ABIS)
            failed += not good
            bytes_of_archive = (folder / "model.aar").stat().st_size
            print(f"| {name} | {size:,} | {bytes_of_archive:,} | {', '.join(sorted(needs))} |", flush=True)
    print("compiled and not linked for iOS; no phone has run them" + (f"; {failed} failed" if failed else ""))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
