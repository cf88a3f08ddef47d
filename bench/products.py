"""Prints, for each matrix product, the speed of generated kernels (by vectors, and by the matrix unit of a
processor that has one), of the libraries and of PyTorch.

    make bench ARGS="--only products"
    make bench ARGS="--only 'products.*linear' --quick"

Each library runs in its own process, on two threads; they take turns round by round. A ratio is the
median over rounds of a time divided by PyTorch's in the same round; "taken" is the way that is chosen.
Virtual machines share the matrix unit of a core, so the unit's speed is measured before and after each round,
and a round counts if both speeds reach 0.85 of the best one. A "*" marks rows with less than three such
rounds; all their rounds count. The peak is what a loop of fused multiplications and additions on registers
reaches on the same threads (bench/peak.cpp); the memory's speed is that of reading the larger operand.
Outputs are compared first.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from product_rows import BFLOAT16, HIGH, PRODUCTS, SKINNY, SMALL, Product  # noqa: E402
from rows import Row  # noqa: E402
from run import Failure, Worker, compare, geometric_mean, machine  # noqa: E402

THREADS = 2
BUSY = 0.5  # the load from which figures are marked
MOST_ROUNDS = 4  # for each that is wanted, until the unit was free in so many
LEAST_ROUNDS = 3
# A process with a restricted instruction set uses no unit (base/matrix_unit.cpp); its tiles would be calls.
RESTRICTED = "FACULA_CPU_CAPABILITY" in os.environ
HAS_UNIT = not RESTRICTED and " amx_bf16" in Path("/proc/cpuinfo").read_text()
# The settings of FACULA_PRODUCTS, by what the table calls them.
WAYS = (
    {"chosen": "", "vectors": "generated"} | ({"tiles": "tiles"} if HAS_UNIT else {}) | {"library": "library"}
)
TAKEN = ("library", "vectors", "tiles")
TAKEN_BY = """
def taken_by(f):
    f()
    with torch.profile() as prof:
        f()
    kernels = [e.name for e in prof.events() if e.category == "kernel" and e.name.startswith("product")]
    return 2.0 if any(name.startswith("product_tiles") for name in kernels) else float(bool(kernels))
"""


def peak(program: str, what: str) -> float:
    """Returns GFLOP/s (`fma`) or GB/s (`memory`) of all threads."""
    command = [program, what, str(THREADS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


class Unit:
    """The matrix unit, and whether other users of the processor leave it to this one."""

    SHARE = 0.85  # of the best speed, from which the unit counts as free

    def __init__(self, program: str):
        self.program, self.best = program, 0.0

    def is_free(self) -> bool:
        if not HAS_UNIT:
            return True
        speed = peak(self.program, "unit")
        self.best = max(self.best, speed)
        return speed >= self.SHARE * self.best


class Measurement:
    def __init__(self, peer: str, program: str, rounds: int, seconds: float):
        self.workers = {
            name: Worker("facula", sys.executable, FACULA_PRODUCTS=way) for name, way in WAYS.items()
        }
        self.workers["torch"] = Worker("torch", peer)
        self.rounds, self.seconds = rounds, seconds
        self.unit = Unit(program)

    def taken(self, product: Product) -> str:
        """Returns the way that the default setting chooses for a product."""
        check = f"taken_by(lambda: {product.statement})"
        task = {"setup": product.setup + TAKEN_BY, "statement": "pass", "check": check, "fresh": False}
        answer = self.workers["chosen"].ask(prepare={**task, "threads": THREADS})
        return TAKEN[int(answer["check"][0])]

    def times(self, product: Product) -> tuple[dict[str, list[float]], bool]:
        tolerance = 3e-2 if product.kind == "bfloat16" else 1e-3
        check = f"summary({product.statement})"
        row = Row(product.name, product.statement, product.setup, check=check, tolerance=tolerance)
        task = {"setup": row.setup, "statement": row.statement, "check": row.check, "fresh": False}
        checks = {
            name: worker.ask(prepare={**task, "threads": THREADS})["check"]
            for name, worker in self.workers.items()
        }
        for name in WAYS:
            compare(row, checks[name], checks["torch"])
        return self.timed_rounds()

    def timed_rounds(self) -> tuple[dict[str, list[float]], bool]:
        """Returns the times of rounds in which the unit was free; if there are too few, of all, and False."""
        rounds, free = [], []
        was_free = self.unit.is_free()
        while len(free) < self.rounds and len(rounds) < MOST_ROUNDS * self.rounds:
            names = list(self.workers) if len(rounds) % 2 else list(reversed(self.workers))
            rounds.append({n: self.workers[n].ask(round=self.seconds)["seconds"] for n in names})
            is_free = self.unit.is_free()
            if was_free and is_free:
                free.append(rounds[-1])
            was_free = is_free
        enough = len(free) >= LEAST_ROUNDS
        counted = free if enough else rounds
        return {name: [r[name] for r in counted] for name in self.workers}, enough

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def table(
    title: str, rows: list[tuple[Product, str, dict[str, list[float]], bool]], fastest: float, memory: float
) -> list[str]:
    names = [*WAYS, "torch"]
    others = [name for name in WAYS if name != "chosen"]
    columns = [*names, *(f"{name} / peer" for name in others), "taken", "chosen / peer"]
    columns += ["share of the peak", "of the memory"]
    lines = [f"## {title}", "", "| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    ratios: dict[str, list[float]] = {name: [] for name in WAYS}
    for product, taken, times, free in rows:
        speeds = [product.operations / statistics.median(times[name]) * 1e-9 for name in names]
        ratio = {
            name: statistics.median(a / b for a, b in zip(times[name], times["torch"], strict=True))
            for name in WAYS
        }
        for name in WAYS:
            ratios[name].append(ratio[name])
        size = 2.0 if product.kind == "bfloat16" else 4.0
        bytes_read = size * product.count * (product.k * product.n + product.m * product.k)
        read = bytes_read / statistics.median(times["chosen"]) * 1e-9
        cells = [f"{speed:.1f}" for speed in speeds]
        cells += [f"{ratio[name]:.3f}x" for name in others]
        cells += [taken, f"{ratio['chosen']:.3f}x"]
        cells += [f"{speeds[0] / fastest:.0%}", f"{read / memory:.0%}"]
        lines.append(f"| {product.name}{'' if free else ' *'} | " + " | ".join(cells) + " |")
    if rows:
        means = {name: geometric_mean(r) for name, r in ratios.items()}
        cells = [f"{means[name]:.3f}x" for name in WAYS] + [""] * (len(columns) - len(WAYS))
        lines.append("| **geometric mean of time / peer's** | " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PATTERN", help="only products whose 'products name' matches")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--peak", required=True, metavar="PROGRAM", help="bench/peak.cpp, built")
    parser.add_argument("--peer", default=os.environ.get("FACULA_PEER", ".peer/bin/python"), metavar="PYTHON")
    args, _ = parser.parse_known_args()
    groups = {
        "Products": PRODUCTS,
        'Products by set_float32_matmul_precision("high")': HIGH,
        "Products in bfloat16": BFLOAT16,
        "Few rows": SKINNY,
        "Batches of small matrices": SMALL,
    }
    chosen = {
        title: [p for p in products if not args.only or re.search(args.only, f"products {p.name}")]
        for title, products in groups.items()
    }
    if not any(chosen.values()):
        return
    load = os.getloadavg()[0]
    fastest, memory = peak(args.peak, "fma"), peak(args.peak, "memory")
    measurement = Measurement(args.peer, args.peak, 5 if args.quick else 11, 0.03 if args.quick else 0.1)
    try:
        lines = [
            "# Products beside PyTorch",
            "",
            "GFLOP/s, medians.",
            "",
            *(f"- {line}" for line in machine()),
        ]
        for title, products in chosen.items():
            rows = []
            for product in products:
                rows.append((product, measurement.taken(product), *measurement.times(product)))
                print(f"products: {product.name}", file=sys.stderr, flush=True)
            fastest = max(fastest, peak(args.peak, "fma"))
            if rows:
                lines += table(title, rows, fastest, memory)
        lines.insert(4, f"- {THREADS} threads: peak {fastest:.0f} GFLOP/s, memory {memory:.1f} GB/s")
        if HAS_UNIT:
            unit = f"{measurement.unit.best:.0f} GFLOP/s in bfloat16 where nobody else uses it"
            lines.insert(5, f"- matrix unit: {unit}")
        if load > BUSY:
            lines.insert(
                5, f"- **The machine was busy** (load {load:.1f} before the run): the figures say little."
            )
        print("\n".join(lines))
    except Failure as failure:
        sys.exit(f"error: {failure}")
    finally:
        measurement.close()


if __name__ == "__main__":
    main()
