"""Popular packages, unmodified, on Facula and on its peer: a quick start of each, and what it prints.

    python tests/ecosystem/run.py [--only REGEX] [--part 1/10] [--report FILE]

A quick start is a program of starts/: it imports a package, does on tiny data what the package is for, and
prints numbers. Data and weights are drawn by NumPy (starts/made.py), so that they are the same with both
libraries. The packages are those of setup/ecosystem.lock, in .ecosystem.

A row of the table says "same" if both print the same lines and numbers agree within 1e-3 of the largest of
their line, "differs" otherwise; "fails" if only Facula's program ends with an error, "peer fails" if the
peer's does.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "zoo"))
import run as zoo  # noqa: E402

PACKAGES = ROOT / ".ecosystem" / "site-packages"
STARTS = sorted(HERE.glob("starts/start_*.py"))
TOLERANCE = 1e-3
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)\b", re.IGNORECASE)


def name_of(start):
    """The name of the package that a quick start uses, as its registry writes it."""
    return start.stem.removeprefix("start_").replace("_", "-")


def versions():
    """The version of each package of the lock."""
    lines = (ROOT / "setup" / "ecosystem.lock").read_text().splitlines()
    return dict(line.split()[0].split("==") for line in lines if "==" in line.split(" ;")[0])


def difference(ours, theirs):
    """The first line that differs, ours and theirs, or None."""
    mine, other = ours.strip().splitlines(), theirs.strip().splitlines()
    for a, b in zip(mine, other):
        x, y = ([float(n) for n in NUMBER.findall(line)] for line in (a, b))
        if NUMBER.sub("#", a) != NUMBER.sub("#", b) or len(x) != len(y):
            return f"{a!r}, peer: {b!r}"
        size = max((abs(n) for n in y if abs(n) < float("inf")), default=0)
        if any(not (p == q or p != p and q != q or abs(p - q) <= TOLERANCE * size) for p, q in zip(x, y)):
            return f"{a!r}, peer: {b!r}"
    if len(mine) != len(other):
        return f"{len(mine)} lines, peer: {len(other)}"
    return None


def compare(start, seconds):
    """Status, detail, and the seconds that both took."""
    folders, took, printed = [PACKAGES], [], []
    peer = zoo.PEER, [HERE / "peer", *folders]
    for interpreter, path in (peer, (zoo.ALIAS, [*zoo.ALIAS_PATH, *folders])):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            text, failure = zoo.output(interpreter, path, start, seconds=seconds, folder=folder)
        took.append(time.perf_counter() - began)
        if failure is None and not text.strip():
            failure = "it printed nothing"
        if failure:
            return ("fails" if printed else "peer fails"), failure, took
        printed.append(text)
    theirs, ours = printed
    detail = difference(ours, theirs)
    return ("differs" if detail else "same"), detail or "", took


def part_of(starts, text):
    """Each n-th of the quick starts, from the k-th: ``k/n``."""
    k, n = map(int, text.split("/"))
    if not 1 <= k <= n:
        raise SystemExit(f"--part: expected k/n with k from 1 to n, got {text}")
    return starts[k - 1 :: n]


def summary(results):
    counts = Counter(status for status, _, _ in results.values())
    return f"{len(results)} packages: " + ", ".join(f"{n} {status}" for status, n in counts.most_common())


def write(report, results):
    pinned = versions()
    lines = [
        "# Packages",
        "",
        "Written by `make ecosystem`: a quick start of each package, unmodified, with PyTorch and behind",
        "`python -m facula.torch`; seconds are those of the whole process.",
        "",
        summary(results),
        "",
        "| package | version | result | PyTorch | Facula | |",
        "|---|---|---|---|---|---|",
    ]
    for name, (status, detail, took) in sorted(results.items()):
        seconds = [f"{t:.1f} s" for t in took] + [""] * (2 - len(took))
        cells = name, pinned.get(name, ""), status, *seconds, detail.replace("|", "/")[:300]
        lines.append(f"| {' | '.join(cells)} |")
    report.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of packages, a regular expression")
    parser.add_argument("--part", default="1/1", help="k/n: each n-th package, from the k-th")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--seconds", type=float, default=240, help="that one process may take")
    a = parser.parse_args()
    os.environ["MPLBACKEND"] = "agg"
    results = {}
    for start in part_of([s for s in STARTS if re.search(a.only, name_of(s))], a.part):
        status, detail, took = results[name_of(start)] = compare(start, a.seconds)
        times = " / ".join(f"{t:.1f} s" for t in took)
        print(f"{name_of(start)}: {status} ({times}) {detail[:300]}", flush=True)
        if a.report:
            write(a.report, results)
    print(summary(results))
    expected = sum(status != "peer fails" for status, _, _ in results.values())
    same = sum(status == "same" for status, _, _ in results.values())
    return same < 0.95 * expected


if __name__ == "__main__":
    sys.exit(main())
