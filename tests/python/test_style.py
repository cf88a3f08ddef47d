"""Sources are laid out by tools: .clang-format for C++, ruff of pyproject.toml for Python. `make format`
applies both.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["bench", "cmake", "examples", "python", "src", "tests"]
CHECKS = {
    "ruff check": ["--no-cache", "--output-format=concise"],
    "ruff format": ["--no-cache", "--check"],
    "clang-format": ["--dry-run", "-Werror"],
}
CHANGES = {"ruff check": ["--fix", "--quiet"], "ruff format": ["--quiet"], "clang-format": ["-i"]}


def run(tool, options):
    name, *command = tool.split()
    cpp = [f for folder in FOLDERS for kind in ("*.cpp", "*.h") for f in sorted((ROOT / folder).rglob(kind))]
    what = cpp if name == "clang-format" else FOLDERS
    program = Path(sysconfig.get_path("scripts")) / name
    return subprocess.run([program, *command, *options, *what], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("tool", CHECKS)
def test_sources_are_laid_out(tool):
    answer = run(tool, CHECKS[tool])
    assert answer.returncode == 0, f"`make format` mends most of this:\n{answer.stdout}{answer.stderr}"


if __name__ == "__main__":
    for tool, options in CHANGES.items():
        answer = run(tool, options)
        sys.stderr.write(answer.stdout + answer.stderr)
