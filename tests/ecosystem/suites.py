"""Test suites of packages of the ecosystem, unmodified, on Facula and on its peer: what passes with both.

    python tests/ecosystem/suites.py [--only REGEX] [--part 1/20]

Runs a part of each suite, by default the first, which takes the peer about three minutes: of each file every
n-th test from the k-th. What fails with the peer does not count.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of suites, a regular expression")
    parser.add_argument("--part", help="k/n: of each file every n-th test, from the k-th")
    a = parser.parse_args()
    first, every = (int(n) for n in a.part.split("/")) if a.part else (1, None)
    chosen = [s for s in SUITES if re.search(a.only, s.name)]
    packages = ROOT / ".ecosystem" / "site-packages"
    rows, missing = zoo.compare(chosen, every, first - 1, [packages], [Path(__file__).parent / "peer"])
    total, both = (sum(r[k] for r in rows) for k in (1, 2))
    print(f"{both} of {total} ({100 * both / max(total, 1):.1f} %)", *missing, sep="\n")
    return both < 0.98 * total


if __name__ == "__main__":
    sys.exit(main())
