"""Runs programs in C on every target, and compares the bits of their results with this machine's.

make mobile; make tiny
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import facula as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards.programs import CASES, Case, write
from boards.targets import Target, targets

MOST_STACK = 2048  # bytes that a function of model.c and those that it calls need, as the compiler states


def agrees_with_eager(case: Case, printed: str) -> bool:
    """Whether the first results are those of the program in this process."""
    results = case.program(*case.inputs)
    results = results if isinstance(results, tuple) else (results,)
    for line, r in zip(printed.splitlines(), results):
        values = np.frombuffer(bytes.fromhex(line), np.float32)
        if not np.allclose(values, r.detach().flatten().numpy(), rtol=1e-5, atol=1e-5):
            return False
    return True


def row(name: str, target: Target, folder: Path, case: Case, expected: str | None) -> tuple[str, str, bool]:
    program = target.build(folder)
    start = time.perf_counter()
    printed = target.run(program)
    seconds = time.perf_counter() - start
    sizes = target.sizes(program)
    ram = sizes["data"] + sizes["bss"]
    right = printed == expected if expected else agrees_with_eager(case, printed)
    verdict = ("same bits" if expected else "equal to eager") if right else "DIFFERS"
    stack = target.stack(folder)
    numbers = " | ".join(f"{n:,}" for n in (sizes["text"], ram, stack))
    text = f"| {name} | {target.name} | {numbers} | {seconds:.2f} | {verdict} |"
    return printed, text, right and stack <= MOST_STACK


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", action="append", help="mobile or tiny; all if none is named")
    parser.add_argument("--only", default="", help="a part of the programs' names")
    options = parser.parse_args()
    chosen = [t for t in targets() if t.group == "host" or not options.group or t.group in options.group]
    failed = 0
    print("| program | target | flash, bytes | static RAM, bytes | stack, bytes | seconds | results |")
    print("|---" * 7 + "|")
    seed = F.seed()
    for name, make in CASES.items():
        if options.only not in name:
            continue
        case = make()
        with tempfile.TemporaryDirectory() as folder:
            write(case, Path(folder))
            expected = None
            for target in chosen:
                if tool := target.missing():
                    print(f"| {name} | {target.name} | | | | | {tool} is not installed |")
                    failed += 1
                    continue
                printed, text, right = row(name, target, Path(folder), case, expected)
                expected = expected or printed
                failed += not right
                print(text, flush=True)
    print(f"seed {seed}: {'all agree' if not failed else f'{failed} failed'}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
