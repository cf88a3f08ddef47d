"""Test suites of packages of the ecosystem, unmodified, on Facula and on its peer: what passes with both.

    python tests/ecosystem/suites.py [--only REGEX] [--part 1/20] [--report docs/suites.md]

Runs a part of each suite, by default the first, which takes the peer about three minutes: of each file every
n-th test from the k-th. What fails with the peer does not count. The report keeps the last run of each part.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "zoo"))
import suites as zoo  # noqa: E402

# A suite is run with its own package, from its files; `every` is how many parts it has.
SUITES = (
    zoo.Suite("captum", "pytorch/captum", "faac08773131888714b15709b28494ebeea7f6eb", ".", "tests", every=8),
    zoo.Suite("gpytorch", "", "1.15.2", ".", "test", every=4),
    zoo.Suite("kornia", "kornia/kornia", "b4f5a78a13891c7ac4c1cd9695941380273e981d", ".", "tests", every=40),
    zoo.Suite("linear_operator", "", "0.6.1", ".", "test", every=4),
    zoo.Suite("pyro", "pyro-ppl/pyro", "ff6ae1c9572591791aae8842bcd702fcf0b46fd6", ".", "tests", every=100),
    zoo.Suite(
        "torch_geometric",
        "pyg-team/pytorch_geometric",
        "5c6461b2305ad068a6d61165b3c55852a11aaa41",
        ".",
        "test/nn",
        every=10,
    ),
    zoo.Suite("zuko", "", "1.6.0", ".", "tests", every=2),
)

HEADING = "Popular packages: `make ecosystem-suites`"
# Why tests fail that are known to: expressions that are searched for in what `zoo.compare` says of them.
REASONS = {
    r"pyro.*test_jit::test_(simple|multi_output|backward)": "the function asserts that it is called once, by "
    "`jit.trace`, which returns the function itself here",
    r"pyro.*test_von_mises::test_sample\[0.01": "the test's fit diverges for one sample of six, "
    "with PyTorch too",
    r"zuko.*::test_univariate_transforms": "for 20 of 30 seeds the inverse of its random Gaussianization is "
    "farther off than the tolerance, with both libraries",
    r"torch_geometric.*test_compile_graph_breaks\[EdgeCNN": "`super().__call__` of a module divides "
    "the program",
}


def reason(test):
    return next((f"; {why}" for pattern, why in REASONS.items() if re.search(pattern, test)), "")


def recorded(report):
    """Rows and failed tests of the parts that a report has."""
    lines = zoo.sections(report).get(HEADING, [])
    cells = (line.strip("| ").split(" | ") for line in lines if re.match(r"\| \w+, part ", line))
    rows = {name: (name, int(n), int(k)) for name, n, k in cells}
    failed = {name: [line[2:] for line in lines if line.startswith(f"- {name}: ")] for name in rows}
    return rows, failed


def write(report, rows, failed):
    """Adds the parts that were run to those of the report."""
    rows_before, failed_before = recorded(report)
    rows, failed = rows_before | rows, failed_before | failed
    intro = [
        "The packages' own tests, unmodified, counted as above. Part k of n has of each file every n-th",
        "test from the k-th; each row is of the part's last run.",
    ]
    names = sorted(rows)
    missing = [test for name in names for test in failed[name]]
    zoo.write_section(report, HEADING, intro + zoo.table([rows[name] for name in names], missing))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of suites, a regular expression")
    parser.add_argument("--part", help="k/n: of each file every n-th test, from the k-th")
    parser.add_argument("--report", type=Path)
    a = parser.parse_args()
    first, every = (int(n) for n in a.part.split("/")) if a.part else (1, None)
    packages = ROOT / ".ecosystem" / "site-packages"
    rows, failed = {}, {}
    for suite in (s for s in SUITES if re.search(a.only, s.name)):
        name = f"{suite.name}, part {first} of {every or suite.every}"
        counts, missing = zoo.compare([suite], every, first - 1, [packages], [Path(__file__).parent / "peer"])
        rows[name] = name, *zoo.totals(counts)
        tests = [test.replace(f"{suite.name}: ", "", 1) for test in missing]
        failed[name] = [f"{name}: {test}{reason(test)}" for test in tests]
        if a.report:  # after each: an interrupted run loses nothing
            write(a.report, rows, failed)
    total, both = zoo.totals(rows.values())
    print(zoo.share(rows.values()), *(test for tests in failed.values() for test in tests), sep="\n")
    return both < 0.98 * total


if __name__ == "__main__":
    sys.exit(main())
