"""The table of derivatives: what every operator answers to each floating operand that requires a gradient.

python tests/gradients/run.py [--only REGEX] [--seed N] [--report FILE]
    finds the state of each operand and result (support/gradients.py) on the operators' samples, writes the
    table and exits with 1 if an operator has a fourth state. --only takes full names of operators.
"""

import argparse
import re
import secrets
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from support.gradients import Entry, entries  # noqa: E402
from support.operators import cases  # noqa: E402

TITLE = """# Derivatives

Every operator with a floating operand and a floating result. A *gradient* agrees with finite differences of
the operator's values, unless a reason says why differences do not show it; *raises* gives the error; *zero*
gives the reason why the derivative is zero or the result carries none.

"""


def table(found: list[Entry]) -> str:
    lines = ["| operator | operand | result | dtype | state | why |", "|---|---|---|---|---|---|"]
    for e in sorted(found, key=lambda e: (e.operator, e.operand, e.result, e.dtype)):
        why = e.why.replace("|", "\\|")
        lines.append(f"| `{e.operator}` | {e.operand} | {e.result} | {e.dtype} | {e.state} | {why} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", help="a regular expression for the full name of an operator")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the directions")
    parser.add_argument("--report", type=Path, help="the file to write the table to")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = np.random.default_rng(options.seed)
    found: list[Entry] = []
    wrong = []
    for case in cases():
        if options.only and not re.fullmatch(options.only, case.name):
            continue
        try:
            found += entries(case, rng)
        except Exception as e:
            wrong.append(f"{case.name}: {type(e).__name__}: {e}")
            print(wrong[-1], flush=True)
    if options.report:
        options.report.write_text(TITLE + table(found))
    states = Counter(e.state for e in found)
    print(", ".join(f"{states[s]} {s}" for s in ("gradient", "raises", "zero")), f"and {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
