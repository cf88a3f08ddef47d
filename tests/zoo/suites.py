"""The test suites of libraries, unmodified, on Facula and on its peer: what passes with both.

    python tests/zoo/suites.py [--only REGEX] [--every 60] [--first 0] [--report docs/suites.md]

Suites are fetched by git at the commits below (git's own ``url.<base>.insteadOf`` lets a mirror serve them),
or taken from the folder of clones that ``FACULA_PROGRAMS`` names, or are those of a source distribution.
Packages that hold no tests are why: of the three, only einops ships its own. Left out is what wants a GPU, a
network, more than one process or a library that is in neither setup/zoo.txt nor setup/suites.txt: it fails
with the peer too, and only what passes there counts.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKOUTS = ROOT / "build" / "suites"
SECONDS, HOURS = 120, 3  # for a test, for a suite
HERE = Path(__file__).parent
LIBRARIES = [ROOT / ".suites", ROOT / ".zoo"]


@dataclass
class Suite:
    """A library's tests: the folder from which they run, theirs in it, and that every so manieth is run.

    They are in a repository at a commit, or, without a repository, in a version's source distribution.
    """

    name: str
    repository: str
    commit: str
    root: str  # also on the path; the library itself is in .zoo unless it is here
    tests: str
    every: int = 1


SUITES = (
    Suite("einops", "arogozhnikov/einops", "8e911db71f2e693a0c434b041180388c685ed06f", ".", "einops/tests"),
    Suite(
        "safetensors",
        "huggingface/safetensors",
        "24b0b2857fef49be734b9ab72ce97c09bb25f5b9",
        "bindings/python",
        "tests",
    ),
    Suite(
        "torchmetrics",
        "Lightning-AI/torchmetrics",
        "700261d3683ba77517e9650043f62a8313027437",
        "tests",
        "unittests",
        every=60,
    ),
)


def pytest_collection_modifyitems(config, items):
    """As a plugin of pytest: of each file, every so manieth test from the first that is asked for."""
    by_file = defaultdict(list)
    for item in items:
        by_file[item.location[0]].append(item)
    first, every = (int(os.environ[f"FACULA_{name}"]) for name in ("FIRST", "EVERY"))
    kept = {item for of_file in by_file.values() for item in of_file[first::every]}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def seed():
    """Gives both libraries equal numbers: tests that draw without a seed fail with both or with none."""
    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def pytest_sessionstart(session):
    seed()


def pytest_runtest_setup(item):
    seed()


def unpack(requirement, folder):
    """The files of a package's source distribution."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary=:all:",
            "-d",
            temporary,
        ]
        subprocess.run([*command, requirement], check=True, stdout=sys.stderr)
        (archive,) = Path(temporary).iterdir()
        shutil.unpack_archive(archive, Path(temporary, "files"), filter="data")
        (top,) = Path(temporary, "files").iterdir()
        shutil.move(top, folder)


def fetched(suite):
    """The folder of a suite's files, at its commit."""
    folder = CHECKOUTS / f"{suite.name}-{suite.commit[:12]}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        subprocess.run(["rm", "-rf", partial], check=True)
        if not suite.repository:
            unpack(f"{suite.name}=={suite.commit}", partial)
            return partial.rename(folder)
        if os.environ.get("FACULA_PROGRAMS"):
            sys.path.append(str(ROOT / "tests" / "programs"))  # here alone: a suite's process has it not
            import sources

            clone = sources.git_directory(suite.repository, sources.CLONES)
            sources.write_tree(clone, suite.commit, partial)
            return partial.rename(folder)
        git = ["git", "-c", "advice.detachedHead=false", "-C", partial]
        subprocess.run(["git", "init", "-q", partial], check=True)
        address = f"https://github.com/{suite.repository}"
        subprocess.run([*git, "fetch", "-q", "--depth", "1", address, suite.commit], check=True)
        subprocess.run([*git, "checkout", "-q", suite.commit], check=True)
        partial.rename(folder)
    return folder


def passed(suite, interpreter, path, every, first, libraries=LIBRARIES):
    """The tests that pass, as (folder or file, name), and how many were tried."""
    folder = fetched(suite)
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary, "report.xml")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [folder / suite.root, *libraries, HERE, *path])),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONHASHSEED": "0",  # tests that are parametrized by a set have the same order with both
            "HF_HUB_OFFLINE": "1",
            "EINOPS_TEST_BACKENDS": "numpy,torch",
            "PYTEST_REFERENCE_CACHE": temporary,
            "FACULA_EVERY": str(every),
            "FACULA_FIRST": str(first),
        }
        command = [
            *map(str, interpreter),
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "--continue-on-collection-errors",
        ]
        command += ["-p", "no:cacheprovider", "-p", Path(__file__).stem, "--timeout", str(SECONDS)]
        command += ["-o", "addopts=", f"--junitxml={report}", "--color=no", suite.tests]
        subprocess.run(
            command, cwd=folder / suite.root, env=environment, timeout=3600 * HOURS, stdout=sys.stderr
        )
        if not report.exists():
            raise SystemExit(f"{suite.name}: pytest wrote no report")
        found, tried = set(), 0
        for case in ElementTree.parse(report).iter("testcase"):
            outcome = {child.tag for child in case}
            tried += "skipped" not in outcome
            if not outcome & {"failure", "error", "skipped"}:
                found.add((case.get("classname") or "", case.get("name")))
    return found, tried


def part(classname, suite):
    """The folder of a large suite's test, below that of all; else the suite."""
    names = [n for n in classname.split(".") if n and n not in f"{suite.root}/{suite.tests}".split("/")]
    return f"{suite.name}/{names[0]}" if suite.every > 1 and len(names) > 1 else suite.name


def compare(suites, every, first, libraries=LIBRARIES, for_peer=()):
    """Rows (suite or part, passed by the peer, how many of these by Facula), and the tests that fail.

    The peer alone imports from the folders ``for_peer``.
    """
    import facula

    rows, missing = [], []
    for suite in suites:
        step = every if every and suite.every > 1 else suite.every
        start = first if suite.every > 1 else 0
        theirs, tried = passed(suite, [ROOT / ".peer" / "bin" / "python"], for_peer, step, start, libraries)
        alias = [sys.executable, "-m", "facula.torch"], [Path(facula.__file__).parents[1]]
        ours, _ = passed(suite, *alias, step, start, libraries)
        parts = defaultdict(lambda: [0, 0])
        for classname, name in sorted(theirs):
            count = parts[part(classname, suite)]
            count[0] += 1
            count[1] += (classname, name) in ours
            if (classname, name) not in ours:
                missing.append(f"`{suite.name}: {classname}::{name}`")
        rows += [(name, *count) for name, count in sorted(parts.items())]
        both = len(theirs & ours)
        print(
            f"{suite.name}: {tried} run, {len(theirs)} pass with PyTorch, {both} of these with Facula",
            flush=True,
        )
    return rows, missing


def totals(rows):
    """How many tests the peer passes, and how many of these Facula."""
    return [sum(row[k] for row in rows) for k in (1, 2)]


def share(rows):
    total, both = totals(rows)
    return f"{both} of {total} ({100 * both / max(total, 1):.1f} %)"


def table(rows, missing):
    """Lines of a report: the rows, then the tests that fail, each with the reason if one is known."""
    return [
        "",
        f"{share(rows)} of what passes with PyTorch passes with Facula.",
        "",
        "| suite | pass with PyTorch | of these with Facula |",
        "|---|---|---|",
        *(f"| {name} | {n} | {k} |" for name, n, k in rows),
        *(["", "What does not:", ""] if missing else []),
        *(f"- {m}" for m in missing),
    ]


def sections(report):
    """The lines below each heading of a report."""
    found = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        if line.startswith("## "):
            lines = found.setdefault(line[3:], [])
        elif found:
            lines.append(line)
    return found


def write_section(report, heading, lines):
    """Replaces what a report has below a heading; the rest stays."""
    found = sections(report) | {heading: lines}
    text = "# Test suites of libraries\n"
    for name, below in sorted(found.items()):
        text += f"\n## {name}\n\n" + "\n".join(below).strip() + "\n"
    report.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="names of suites, a regular expression")
    parser.add_argument("--every", type=int, help="of each file of torchmetrics every so manieth test")
    parser.add_argument("--first", type=int, default=0, help="of these the number of the first")
    parser.add_argument("--report", type=Path)
    a = parser.parse_args()
    rows, missing = compare((s for s in SUITES if re.search(a.only, s.name)), a.every, a.first)
    total, both = totals(rows)
    print(share(rows), *missing, sep="\n")
    if a.report:
        text = [
            "The libraries' own tests, unmodified, with PyTorch and behind `python -m facula.torch`. Counted",
            "is what passes with PyTorch without a GPU, a network and more than one process; of torchmetrics",
            f"every {a.every or SUITES[-1].every}th test of each file.",
            *table(rows, missing),
        ]
        write_section(a.report, "Libraries: `make zoo-suites`", text)
    return both < 0.98 * total


if __name__ == "__main__":
    sys.exit(main())
