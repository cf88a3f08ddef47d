"""Writes requirements, peer, docs, types, zoo, suites, programs, onnx, tinydata and ecosystem.lock: the
packages of the .txt of that name, all that these need (of the last four those alone), and the SHA-256 of each
file, for each Python below on x86-64 Linux. After a change, of all or of some:

    .venv/bin/python setup/lock.py [NAME...]

Setups install what the locks name and nothing else, whoever serves it. pip resolves and finds the digests;
its configuration is left out, so that files come from PyPI.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
PYTHONS = ("3.11", "3.12", "3.13")


def resolved(requirements: Path, python: str, *options: str) -> list[dict]:
    """What pip would install for this Python, with the address and digests of each file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_") or k == "PIP_CERT"}
    environment["PIP_CONFIG_FILE"] = os.devnull
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
        command += ["--python-version", python, "--only-binary=:all:", "--target", folder, "--report", report]
        subprocess.run([*command, *options, "-r", str(requirements)], check=True, env=environment)
        return json.loads(Path(report).read_text())["install"]


def lock(name: str, *options: str, pythons: tuple[str, ...] = PYTHONS) -> None:
    requirements, files = HERE / f"{name}.txt", defaultdict(lambda: defaultdict(set))
    for python in pythons:
        for package in resolved(requirements, python, *options):
            data = package["metadata"]
            key = data["name"].lower().replace("_", "-"), data["version"]
            files[key][package["download_info"]["archive_info"]["hashes"]["sha256"]].add(python)
    versions = defaultdict(list)
    for package, version in files:
        versions[package].append(version)
    lines = [f"# By lock.py from {requirements.name}, for Python {', '.join(pythons)}. Don't edit."]
    for (package, version), digests in sorted(files.items()):
        line = f"{package}=={version}"
        if len(versions[package]) > 1:
            where = sorted(set().union(*digests.values()))
            line += " ; " + " or ".join(f"python_version == '{p}'" for p in where)
        lines.append(" \\\n    ".join([line, *(f"--hash=sha256:{d}" for d in sorted(digests))]))
    (HERE / f"{name}.lock").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    one = {
        "pythons": ("3.11",)
    }  # of zoo, tokenizers 0.13 has no wheel for later ones; the others are beside it
    locks = {name: ((), {}) for name in ("requirements", "peer", "docs", "types")}
    locks |= {name: (("--no-deps",), one) for name in ("zoo", "suites")}
    locks["onnx"] = (), {}
    locks["tinydata"] = ("--no-deps",), one
    locks |= {
        name: (("--no-deps", "--only-binary=:none:"), one)  # some packages have no wheels
        for name in ("ecosystem", "programs")
    }
    for name in sys.argv[1:] or locks:
        options, more = locks[name]
        lock(name, *options, **more)
