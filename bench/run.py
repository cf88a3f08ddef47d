"""Times Facula and PyTorch on the same work, side by side.

    make bench                                   everything, into bench/results.md and bench/results.json
    make bench ARGS="--quick --only 'softmax'"   a look at some rows, printed only
    make bench ARGS="--before ../old/build/python"   beside an earlier build of Facula, printed only

Each library runs in its own process; they take turns round by round, so that other load on the machine
affects all of them. A ratio is the median over rounds of Facula's time divided by PyTorch's in the same
round. PyTorch runs twice: with the common program, and in the fastest of the ways that a row lists
(`best`), which is determined by trying each. All must agree on the row's `check`; a difference fails the
run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rows import GROUPS, Best, Group, Row  # noqa: E402
from transformer_rows import TRANSFORMERS  # noqa: E402

HERE = Path(__file__).parent
SCALE = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "MiB": 2.0**-20}


class Failure(Exception):
    """A row that a library could not run."""


class Worker:
    """A process with one library."""

    def __init__(self, library: str, python: str, cold: bool = False, **environment: str):
        env = {**os.environ, "OMP_NUM_THREADS": "2", **environment}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed library has compiled modules
        if library == "torch":
            env.pop("PYTHONPATH", None)
        command = [python, str(HERE / "worker.py"), library] + ["--cold"] * cold
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
        self.library = library
        about = {} if cold else self.read()
        self.version = "{name} {version} (Python {python})".format(**about) if about else ""

    def read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.library} ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(f"{self.library}: {answer['error']}")
        return answer

    def ask(self, **task: object) -> dict:
        try:
            self.process.stdin.write(json.dumps(task) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


PLAIN = ("facula", "torch")
BEST = "torch, best"


class Crew:
    """The libraries' processes, each started on first use and again after it died."""

    def __init__(self, peer: str, before: str | None, scratch: str):
        self.peer = peer
        self.before = before  # the folder of an earlier Facula, which replaces PyTorch
        self.scratch = scratch
        self.workers: dict[str, Worker] = {}

    def start(self, name: str, cold: bool = False, **environment: str) -> Worker:
        if name == "facula":
            return Worker("facula", sys.executable, cold, **environment)
        if self.before:
            return Worker("facula", sys.executable, cold, **environment, PYTHONPATH=self.before)
        # The cache of torch.compile is kept for this run only.
        cache_folder = {} if cold else {"TORCHINDUCTOR_CACHE_DIR": self.scratch}
        return Worker("torch", self.peer, cold, **environment, **cache_folder)

    def get(self, name: str) -> Worker:
        worker = self.workers.get(name)
        if worker is None or worker.process.poll() is not None:
            worker = self.workers[name] = self.start(name)
        return worker

    def end(self, name: str) -> None:
        if worker := self.workers.pop(name, None):
            worker.close()

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()


@dataclass
class Result:
    row: Row
    group: Group
    facula: float | None = None  # seconds or bytes, medians
    peer: float | None = None
    ratio: float | None = None
    spread: float | None = None  # half the interquartile range of the ratio, relative
    failure: str | None = None
    own_ratio: float | None = None  # Facula's time relative to its time of the row row.own
    best: float | None = None  # PyTorch's fastest way
    best_ratio: float | None = None
    best_name: str | None = None
    differs: bool = False

    @property
    def unit(self) -> str:
        return self.row.unit or self.group.unit

    @property
    def reach(self) -> float | None:
        return self.row.reach_seconds or self.row.reach or self.group.reach

    @property
    def passes(self) -> bool | None:
        if self.failure:
            return False
        if self.reach is None:
            return None
        value = {"facula": self.facula, "own": self.own_ratio, "ratio": self.ratio}[self.reach_of]
        return None if value is None else value <= self.reach

    @property
    def reach_of(self) -> str:
        return "facula" if self.row.reach_seconds else "own" if self.row.own else "ratio"

    def record(self) -> dict:
        scale = SCALE[self.unit]
        entry = {
            "name": self.row.name,
            "group": self.group.name,
            "facula": rounded(self.facula, scale),
            "peer": rounded(self.peer, scale),
            "ratio": rounded(self.ratio),
            "reach": self.reach,
            "unit": self.unit,
            "threads": self.group.threads,
            "spread": rounded(self.spread),
            "reach_of": self.reach_of,
            "passes": self.passes,
        }
        if self.own_ratio is not None:
            entry["own_ratio"] = rounded(self.own_ratio)
        if self.best_name:
            entry |= {
                "peer_best": rounded(self.best, scale),
                "ratio_best": rounded(self.best_ratio),
                "best": self.best_name,
            }
        return entry | ({"failure": self.failure} if self.failure else {})


def rounded(value: float | None, scale: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * scale:.4g}")


def median_ratio(facula: list[float], peer: list[float]) -> tuple[float, float]:
    """Returns the median of the ratios round by round, and half their interquartile range, relative."""
    ratios = [f / p for f, p in zip(facula, peer, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 2 else (min(ratios), 0, max(ratios))
    ratio = statistics.median(ratios)
    return ratio, (high - low) / 2 / ratio


def summarize(result: Result, times: dict[str, list[float]], best: Best | None) -> Result:
    result.facula, result.peer = (statistics.median(times[name]) for name in PLAIN)
    result.ratio, result.spread = median_ratio(times["facula"], times["torch"])
    if best:
        result.best, result.best_name = statistics.median(times[BEST]), best.name
        result.best_ratio, _ = median_ratio(times["facula"], times[BEST])
    return result


class Difference(Failure):
    """The libraries' results of one program differ."""


def compare(row: Row, ours: list[float] | None, theirs: list[float] | None, whose: str = "PyTorch") -> None:
    """Raises Difference if a number is off by more than the tolerance, relative to the largest of them."""
    if ours is None and theirs is None:
        return
    size = max((abs(x) for x in theirs if math.isfinite(x)), default=0.0)
    for k, (x, y) in enumerate(zip(ours, theirs, strict=True)):
        same = x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= row.tolerance * size
        if not same:
            raise Difference(f"number {k} of the check differs: {x:.6g} against {y:.6g} of {whose}")


def program_of(row: Row, group: Group, best: Best | None = None, peer: bool = False) -> dict:
    program = {
        "setup": row.setup,
        "statement": row.statement,
        "check": row.check,
        "fresh": row.fresh,
        "threads": group.threads,
    }
    if peer and row.peer_setup:
        program["setup"] = row.peer_setup
    if best:
        program |= {"more": best.setup, "statement": best.statement or row.statement}
    return program


def fastest(row: Row, group: Group, crew: Crew, seconds: float) -> Best | None:
    """Returns the fastest of PyTorch's ways, each tried in a new process, except those that fail or
    differ.
    """
    times: dict[Best, float] = {}
    expected = crew.get("torch").ask(prepare=program_of(row, group, peer=True))["check"] if row.best else None
    for way in row.best:
        try:
            worker = crew.get(BEST)
            check = worker.ask(prepare=program_of(row, group, way, peer=True))["check"]
            compare(row, check, expected, "itself")
            times[way] = min(worker.ask(round=seconds)["seconds"] for _ in range(3))
        except Failure as failure:
            print(f"{group.name}: {row.name}: {way.name} is out: {failure}", file=sys.stderr, flush=True)
        finally:
            crew.end(BEST)
    return min(times, key=times.get) if times else None


def measure_warm(row: Row, group: Group, crew: Crew, rounds: int, seconds: float, ways: bool) -> Result:
    best = fastest(row, group, crew, seconds) if ways else None
    names = [*PLAIN, *[BEST] * bool(best)]
    times: dict[str, list[float]] = {name: [] for name in names}
    for i in range(rounds):
        if i * group.processes % rounds < group.processes:
            if i:
                crew.close()
            checks = {}
            for name in names:
                peer = name != "facula" and not crew.before
                program = program_of(row, group, best if name == BEST else None, peer)
                checks[name] = crew.get(name).ask(prepare=program)["check"]
            compare(row, checks["facula"], checks["torch"])
        for name in names if i % 2 == 0 else reversed(names):
            times[name].append(crew.get(name).ask(round=seconds)["seconds"])
    crew.end(BEST)
    return summarize(Result(row, group), times, best)


def run_cold(row: Row, group: Group, crew: Crew, name: str, checks: bool, **environment: str) -> dict:
    program = {
        "setup": row.setup,
        "statement": row.statement,
        "imports": row.imports,
        "prepared": row.prepared,
        "steps": row.memory_steps,
        "check": row.check,
        "checks": checks,
        "more": row.best[0].setup if name == BEST else "",
        "threads": group.threads,
    }
    worker = crew.start(name, cold=True, **environment)
    try:
        return worker.ask(prepare=program)
    finally:
        worker.close()


def measure_cold(row: Row, group: Group, crew: Crew, rounds: int, ways: bool) -> Result:
    best = row.best[0] if ways and row.best else None
    names = [*PLAIN, *[BEST] * bool(best)]
    times: dict[str, list[float]] = {name: [] for name in names}
    if row.check:
        checks = [run_cold(row, group, crew, name, checks=True)["check"] for name in PLAIN]
        compare(row, *checks)
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch) / "none"
        empty.mkdir(mode=0o700)
        # One additional round brings the files into memory, and fills the cache that is expected to be full.
        for i in range(rounds + 1):
            for name in names:
                environment = {}
                if row.cache != "own" and (name == "facula" or crew.before):
                    folder = Path(scratch) / (name + ("filled" if row.cache == "filled" else f"empty{i}"))
                    folder.mkdir(mode=0o700, exist_ok=True)
                    environment = {"FACULA_CACHE_DIR": str(folder)}
                    if row.cache != "shipped":
                        environment["FACULA_SHIPPED_CACHE"] = str(empty)
                value = run_cold(row, group, crew, name, checks=False, **environment)["value"]
                if i:
                    times[name].append(value)
    return summarize(Result(row, group), times, best)


def measure(row: Row, group: Group, crew: Crew, quick: bool, ways: bool) -> Result:
    try:
        if row.cold:
            return measure_cold(row, group, crew, 3 if quick else 7, ways)
        return measure_warm(row, group, crew, 5 if quick else 15, 0.03 if quick else 0.1, ways)
    except Failure as failure:
        return Result(row, group, failure=str(failure), differs=isinstance(failure, Difference))


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def mean_record(group: Group, results: list[Result]) -> dict | None:
    """Returns the line of an entire group: what the project promises. A failed row fails its group."""
    if group.reach is None or len(group.rows) == 1 or len(results) < len(group.rows):
        return None
    ratios = [r.ratio for r in results if r.ratio is not None]
    # A row without a faster way counts with its common program.
    best = [max(r.best_ratio or 0, r.ratio) for r in results if r.ratio is not None]
    mean, reach = geometric_mean(ratios) if ratios else None, group.mean or group.reach
    complete = len(ratios) == len(results)
    return {
        "name": "geometric mean",
        "group": group.name,
        "facula": None,
        "peer": None,
        "ratio": rounded(mean),
        "ratio_best": rounded(geometric_mean(best)) if any(r.best_name for r in results) else None,
        "reach": reach,
        "unit": "",
        "threads": group.threads,
        "passes": complete and mean <= reach,
    }


def mark(passes: bool | None) -> str:
    return {True: "reached", False: "**missed**", None: ""}[passes]


def show(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(group: Group, results: list[Result]) -> list[str]:
    threads = f"{group.threads} thread{'s' if group.threads > 1 else ''}."
    lines = [
        f"## {group.title}",
        "",
        f"{threads} {group.note}".rstrip(),
        "",
        "| | Facula | PyTorch | ratio | spread | reach | | at its best | ratio |",
        "|---|---:|---:|---:|---:|---:|---|---:|---:|",
    ]
    for r in results:
        if r.failure:
            text = r.failure.replace("|", "/")
            lines.append(f"| {r.row.name} | - | - | - | - | | **missed**: {text} | | |")
            continue
        scale = SCALE[r.unit]
        reach = "" if r.reach is None else f"{r.reach:g} s" if r.row.reach_seconds else f"{r.reach:g}x"
        if r.own_ratio is not None:
            reach += f" of {r.row.own}: {r.own_ratio:.3f}x"
        best = (
            f"{show(r.best * scale)} {r.unit}: {r.best_name} | {r.best_ratio:.3f}x" if r.best_name else " | "
        )
        lines.append(
            f"| {r.row.name} | {show(r.facula * scale)} {r.unit} | {show(r.peer * scale)} {r.unit} "
            f"| {r.ratio:.3f}x | ±{r.spread:.0%} | {reach} | {mark(r.passes)} | {best} |"
        )
    if mean := mean_record(group, results):
        ratio = "-" if mean["ratio"] is None else f"**{mean['ratio']:.3f}x**"
        best = "-" if mean["ratio_best"] is None else f"**{mean['ratio_best']:.3f}x**"
        lines.append(
            f"| **geometric mean** | | | {ratio} | | {mean['reach']:g}x | {mark(mean['passes'])} | | {best} |"
        )
    return lines + [""]


def machine() -> list[str]:
    """Returns the conditions of the numbers, without naming the machine."""
    lines = [f"{platform.machine()}, {os.cpu_count()} cores"]
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return lines
    flags = re.search(r"^flags\s*:(.*)$", info, re.M)
    flags = set(flags.group(1).split()) if flags else set()
    features = ["avx2", "fma", "avx512f", "avx512bw", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"]
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.M)
    lines[0] += (f", {model.group(1)}" if model else "") + "; " + " ".join(f for f in features if f in flags)
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "type").read_text().strip() != "Instruction":
            caches["L" + (index / "level").read_text().strip()] = (index / "size").read_text().strip()
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    sizes = [f"{level} {size}" for level, size in caches.items()]
    if memory:
        sizes.append(f"memory {int(memory.group(1)) / 2**20:.0f} GiB")
    return lines + [", ".join(sizes)] * bool(sizes)


SAME = [
    "- The same for both: weights and inputs (normal numbers of one generator) and the threads; nothing else "
    "is set for either, denormal numbers neither. Facula waits for work shorter than OpenMP would: it sets "
    "GOMP_SPINCOUNT for itself when it is imported.",
    "- Results are compared before they are timed: losses of three steps, outputs, or what a kernel gives, "
    "each number to a thousandth of the largest (bfloat16: three hundredths; first steps: a hundredth). A "
    "row that differs is missed, and the run fails.",
]


def report(by_group: list[tuple[Group, list[Result]]], versions: list[str], load: float) -> str:
    lines = [
        "# Facula beside PyTorch",
        "",
        "Written by `make bench`. Both libraries run the same programs (`bench/rows.py`), each in a "
        "process of its own, in turns; times are medians, a ratio is Facula's figure by PyTorch's in the "
        "same round (below 1: Facula needs less), the spread is half the distance between its quartiles. "
        "The last two columns are PyTorch in the fastest of several ways (fused optimizers, channels_last, "
        "torch.compile, frozen graphs, inference mode), where one was tried.",
        "",
        *SAME,
        *(f"- {line}" for line in [*machine(), ", ".join(versions)]),
    ]
    if load > 0.5:
        lines.append(
            f"- **The machine was busy** (load {load:.1f} before the run): the times say little, "
            "the ratios something."
        )
    lines.append("")
    for group, results in by_group:
        lines += table(group, results)
    return "\n".join(lines).rstrip() + "\n"


def slowest_first(results: list[Result]) -> str:
    """Formats the rows by the ratio of Facula's time, or memory, to that of the earlier build."""
    lines = ["| | now | before | ratio | spread |", "|---|---:|---:|---:|---:|"]
    for r in sorted((r for r in results if r.ratio), key=lambda r: -r.ratio):
        now, before = (f"{show(x * SCALE[r.unit])} {r.unit}" for x in (r.facula, r.peer))
        lines.append(
            f"| {r.group.name}: {r.row.name} | {now} | {before} | {r.ratio:.3f}x | ±{r.spread:.0%} |"
        )
    return "\n".join(lines + [f"- {r.group.name}: {r.row.name}: {r.failure}" for r in results if r.failure])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; prints only")
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="only rows whose 'group name' matches this regular expression; prints only",
    )
    peer = os.environ.get("FACULA_PEER", str(HERE.parent / ".peer/bin/python"))
    parser.add_argument(
        "--peer",
        default=peer,
        metavar="PYTHON",
        help="an interpreter that has PyTorch (default: FACULA_PEER, else .peer)",
    )
    parser.add_argument(
        "--before",
        metavar="FOLDER",
        help="an earlier build's build/python: it takes PyTorch's place in every column; prints only",
    )
    parser.add_argument("--plain", action="store_true", help="PyTorch as usually written only; prints only")
    args = parser.parse_args()
    scratch = tempfile.TemporaryDirectory()
    crew = Crew(args.peer, args.before and os.path.abspath(args.before), scratch.name)
    load = os.getloadavg()[0]
    by_group = []
    try:
        versions = [crew.get(name).version for name in PLAIN]
        for group in [*GROUPS, TRANSFORMERS]:
            rows = [r for r in group.rows if not args.only or re.search(args.only, f"{group.name} {r.name}")]
            results = []
            for row in rows:
                with neighbours(group.neighbours):
                    r = measure(row, group, crew, args.quick, not (args.plain or args.before))
                base = next((b for b in results if b.row.name == row.own), None)
                if base and base.facula and r.facula:
                    r.own_ratio = r.facula / base.facula
                results.append(r)
                outcome = r.failure or f"{r.ratio:.3f}x ±{r.spread:.0%}"
                if r.best_name:
                    outcome += f"; {r.best_ratio:.3f}x by {r.best_name}"
                print(f"{group.name}: {row.name}: {outcome}", file=sys.stderr, flush=True)
            if rows:
                by_group.append((group, results))
    except FileNotFoundError as missing:
        sys.exit(f"error: {missing}; `make bench` installs the peer; --peer names another interpreter")
    except Failure as failure:
        sys.exit(f"error: {failure}")
    finally:
        crew.close()
        scratch.cleanup()
    if args.before:
        print("\n" + slowest_first([r for _, results in by_group for r in results]))
        return
    text = report(by_group, versions, load)
    print("\n" + text)
    if not (args.quick or args.only or args.plain):
        records = [r.record() for _, results in by_group for r in results]
        records += [m for group, results in by_group if (m := mean_record(group, results))]
        (HERE / "results.md").write_text(text)
        (HERE / "results.json").write_text(json.dumps(records, indent=1) + "\n")
    if any(r.differs for _, results in by_group for r in results):
        sys.exit("error: results differ")


if __name__ == "__main__":
    main()
