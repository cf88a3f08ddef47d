"""Compares compiled with eager programs: results, breaks, times and memory. Run by `make bench-compile`.

Each program (programs.py) runs in four processes: one with an empty folder of kernels, for the cold
time of the first compiled step; with the filled folder, one for what is compared, one for the warm time,
and one with FACULA_LOG=passes, for the time of each stage. Outputs have to agree to 1e-5 and gradients to
1e-4 of their norms.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import PROGRAMS
from rows import PROLOGUE
from run import geometric_mean, machine

THREADS = 2
OUTPUTS, GRADIENTS = 1e-5, 1e-4
FLOOR = 1e-3  # of gradients, see difference()
clock = time.perf_counter


def names_of(name: str) -> dict:
    import facula

    names = {"torch": facula, "__name__": "program"}
    exec(PROLOGUE, names)
    facula.manual_seed(0)
    exec(compile(PROGRAMS[name], name, "exec"), names)
    return names


def leaves(x) -> list:
    import facula

    if isinstance(x, facula.Tensor):
        return [x]
    values = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return [t for y in values for t in leaves(y)]


def difference(ours: list, theirs: list, floor: float = 0.0) -> float:
    """Returns the largest distance between two tensors, relative to the norm of the second, or to `floor`
    times the largest norm of all: the gradient of a bias before batch normalization is rounding.
    """
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(ours, theirs, strict=True)]
    norms = [float(b.norm()) for _, b in pairs]
    worst, least = 0.0, max(floor * max(norms, default=0.0), 1e-30)
    for (a, b), norm in zip(pairs, norms):
        error = float((a - b).norm()) / max(norm, least)
        worst = max(worst, error if error == error else float("inf"))
    return worst


def in_float64(x):
    """Returns modules, tensors and containers of a program with float64 in place of float32."""
    import facula

    if isinstance(x, facula.nn.Module) or isinstance(x, facula.Tensor) and x.is_floating_point():
        return x.double()
    return type(x)(map(in_float64, x)) if type(x) in (list, tuple) else x


class Comparison:
    """The differences of outputs and gradients from eager. If one is above the limit, as where thousands of
    maxima or a normalization over a small number of elements amplify rounding, eager in float64 decides:
    the compiled program may not be farther from it than twice the distance of eager in float32, and compiled
    in float64 has to agree with it.
    """

    def __init__(self, name: str, call) -> None:
        self.name, self.call = name, call
        self.errors = [0.0, 0.0]
        self.rounding = False

    def exact(self, seed: int, state: dict, compiled: bool) -> tuple:
        names = names_of(self.name)
        names.update({k: in_float64(v) for k, v in names.items()})
        names["model"].load_state_dict(state)
        return self.call(names, seed, compiled)

    def add(self, seed: int, ours: tuple, theirs: tuple, state: dict) -> None:
        """Compares a call with eager; ``state`` is the model's before the call."""

        def differences(x: tuple, y: tuple) -> list[float]:
            return [difference(x[k], y[k], FLOOR * k) for k in range(2)]

        errors, rounding = differences(ours, theirs), False
        if errors[0] > OUTPUTS or errors[1] > GRADIENTS:
            exact = self.exact(seed, state, False)
            own, mine = differences(theirs, exact), differences(ours, exact)
            agree = max(differences(self.exact(seed, state, True), exact)) <= 1e-9
            rounding = agree and max(own) <= 0.2 and all(m <= 2 * o + OUTPUTS for m, o in zip(mine, own))
        self.rounding |= rounding
        if not rounding:
            self.errors = [max(pair) for pair in zip(self.errors, errors)]

    def result(self) -> dict:
        return {"outputs": self.errors[0], "gradients": self.errors[1], "rounding": self.rounding}


def counts(run) -> dict:
    report = run.report()
    breaks = sorted({f"{os.path.basename(f)}:{line}: {reason}" for f, line, reason, _ in report["breaks"]})
    graphs = sum(s["calls"] > 0 for s in report["segments"])
    return {"breaks": breaks, "captures": report["captures"], "plain": report["plain_runs"], "graphs": graphs}


def copies(model) -> dict:
    return {k: v.clone() for k, v in model.state_dict().items()}


def gradients(names: dict) -> list:
    return [p.grad.clone() for p in names["model"].parameters() if p.grad is not None]


def forward_and_backward(model, names: dict, seed: int) -> tuple[list, list]:
    import facula

    facula.manual_seed(seed)
    names["model"].zero_grad()
    out = leaves(model(*names["inputs"]))
    sum(t.pow(2).mean() for t in out if t.requires_grad).backward()
    return out, gradients(names)


def one_step(step, names: dict, seed: int) -> tuple[list, list]:
    import facula

    facula.manual_seed(seed)
    return [step()], gradients(names)


def compare_forward(name: str) -> dict:
    """Compares outputs of the model, and the gradients of their mean squares, in three calls; then times
    calls with their backward passes, which are outside of the compiled model.
    """
    import facula

    def run_exact(names: dict, seed: int, compiled: bool) -> tuple:
        model = names["model"]
        return forward_and_backward(facula.compile(model) if compiled else model, names, seed)

    eager, captured = names_of(name), names_of(name)
    model = facula.compile(captured["model"])
    c = Comparison(name, run_exact)
    for call in range(3):
        state = copies(eager["model"])
        ours = forward_and_backward(model, captured, call)
        c.add(call, ours, forward_and_backward(eager["model"], eager, call), state)
    times = paired(
        lambda: forward_and_backward(eager["model"], eager, 0),
        lambda: forward_and_backward(model, captured, 0),
    )
    return {"times": times} | c.result() | counts(model.__dict__["_run"])


def compare_steps(name: str) -> dict:
    """Compares losses and gradients of three training steps from equal weights, then the time of a step."""
    import facula

    def run_exact(names: dict, seed: int, compiled: bool) -> tuple:
        step = names["step"]
        return one_step(facula.compile(step) if compiled else step, names, seed)

    peaks = [peak(names_of(name)["step"]), peak(facula.compile(names_of(name)["step"]))]
    eager, captured = names_of(name), names_of(name)
    run = facula.compile(captured["step"])
    c = Comparison(name, run_exact)
    for call in range(3):
        state = copies(eager["model"])
        captured["model"].load_state_dict(state)
        ours = one_step(run, captured, call)
        c.add(call, ours, one_step(eager["step"], eager, call), state)
    times = paired(eager["step"], run)
    result = {"times": times, "peaks": peaks} | c.result() | counts(run)
    for names in (eager, captured):
        names["model"].eval()
    plain, fast = eager["model"], facula.compile(captured["model"])
    with facula.no_grad():
        result["inference"] = paired(lambda: plain(*eager["inputs"]), lambda: fast(*captured["inputs"]))
    return result


def peak(run) -> int:
    import gc

    import facula

    for _ in range(2):
        run()
    gc.collect()
    facula.reset_peak_memory_stats()
    for _ in range(2):
        run()
    return facula.max_memory_allocated()


def paired(eager, compiled, seconds: float = 2.0) -> list:
    """Returns the medians of the times of both, and of their ratios, in alternating rounds."""
    eager(), compiled(), compiled()
    start = clock()
    eager()
    count = max(1, int(seconds / 12 / max(clock() - start, 1e-9)))
    rounds = []
    for _ in range(5):
        times = []
        for f in (eager, compiled):
            start = clock()
            for _ in range(count):
                f()
            times.append((clock() - start) / count)
        rounds.append(times)
    ratio = statistics.median(b / a for a, b in rounds)
    return [statistics.median(t[0] for t in rounds), statistics.median(t[1] for t in rounds), ratio]


def first_step(name: str) -> float:
    import facula

    names = names_of(name)
    run = facula.compile(names["step"])
    start = clock()
    run()
    return clock() - start


def work(task: str, name: str) -> None:
    import facula

    facula.set_num_threads(THREADS)
    result = {}
    tasks = {"forward": compare_forward, "steps": compare_steps}
    if task == "compare":
        for kind, f in tasks.items():
            try:
                result[kind] = f(name)
            except Exception as e:  # noqa: BLE001  (reported in the table)
                result[kind] = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:150]}
    else:
        result["first"] = first_step(name)
    print(json.dumps(result))


def ask(task: str, name: str, cache: str, log: str = "") -> tuple[dict, str]:
    environment = os.environ | {"FACULA_CACHE_DIR": cache, "FACULA_LOG": log}
    command = [sys.executable, __file__, "--task", task, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"error": f"exit {done.returncode}: {last[:150]}"}, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


def stages(log: str) -> dict[str, float]:
    """Returns the seconds of each pass from the lines of FACULA_LOG=passes."""
    seconds: dict[str, float] = {}
    for stage, us in re.findall(r"^facula passes: .*: ([a-z ]+) took (\d+) us$", log, re.M):
        seconds[stage] = seconds.get(stage, 0.0) + int(us) / 1e6
    return seconds


def measure(name: str) -> dict:
    with tempfile.TemporaryDirectory() as cache:
        cold, _ = ask("first", name, cache)
        result, _ = ask("compare", name, cache)
        warm, _ = ask("first", name, cache)
        logged, log = ask("first", name, cache, "passes")
    for key, value in (("cold", cold), ("warm", warm), ("logged", logged)):
        result[key] = value.get("first")
    return result | {"stages": stages(log)}


def cell(x, scale=1.0, form="{:.1f}") -> str:
    return "-" if x is None else form.format(x * scale)


def is_equal(result: dict) -> bool:
    parts = [result.get(kind, {"error": ""}) for kind in ("forward", "steps")]
    return all("error" not in x and x["outputs"] <= OUTPUTS and x["gradients"] <= GRADIENTS for x in parts)


def row(name: str, r: dict) -> str:
    f, s = r.get("forward", {}), r.get("steps", {})
    times, inference, peaks = s.get("times"), s.get("inference"), s.get("peaks")
    outside = f.get("times")
    cells = [name, "yes" if is_equal(r) else "**no**"]
    cells += [str(len(x["breaks"])) if "breaks" in x else "error" for x in (f, s)]
    for key in ("outputs", "gradients"):
        errors = [x[key] for x in (f, s) if key in x]
        cells.append(cell(max(errors, default=None), 1, "{:.0e}"))
    if any(x.get("rounding") for x in (f, s)):
        cells[-1] += " (rounding)"
    cells += [cell(r["cold"], 1e3, "{:.0f}"), cell(r["warm"], 1e3, "{:.0f}")]
    for k in range(2):
        cells.append(cell(times and times[k], 1e3))
    cells += [cell(x and x[2], 1, "{:.3f}") for x in (times, outside, inference)]
    cells.append(cell(peaks and peaks[1] / peaks[0], 1, "{:.3f}"))
    return "| " + " | ".join(cells) + " |"


HEAD = [
    "| program | equal | breaks: forward | step | outputs | gradients | first step: cold ms | warm "
    "| step: eager ms | compiled | ratio | backward outside | inference | peak |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
]


def summary(results: dict[str, dict]) -> list[str]:
    lines = [""]
    measured = {
        "training step": ("steps", "times"),
        "model with its backward pass outside": ("forward", "times"),
        "inference": ("steps", "inference"),
    }
    for what, (part, kind) in measured.items():
        ratios = [r[part][kind][2] for r in results.values() if kind in r.get(part, {})]
        if ratios:
            lines.append(f"{what}: geometric mean {geometric_mean(ratios):.3f}, largest {max(ratios):.3f}")
    equal = sum(is_equal(r) for r in results.values())
    unbroken = sum(not r["forward"]["breaks"] for r in results.values() if "breaks" in r.get("forward", {}))
    lines.append(f"{equal} of {len(results)} are equal to eager, {unbroken} forwards have no break")
    for name, r in results.items():
        for kind in ("forward", "steps"):
            x = r.get(kind, r)
            lines += [f"{name}, {kind}: {text}" for text in x.get("breaks", [])]
            if "error" in x:
                lines.append(f"{name}, {kind}: {x['error']}")
    lines += ["", "Seconds of the stages of the first step, with kernels in the cache (FACULA_LOG=passes):"]
    for name, r in results.items():
        rest = (r["logged"] or 0.0) - sum(r["stages"].values())
        parts = [
            f"{k} {v * 1e3:.0f}" for k, v in sorted(r["stages"].items(), key=lambda x: -x[1]) if v >= 5e-4
        ]
        lines.append(f"{name}: capture and run {rest * 1e3:.0f} ms, " + ", ".join(parts))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="programs whose name matches this expression")
    parser.add_argument("--task", choices=["first", "compare"], help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help="a file for the results, as JSON")
    a = parser.parse_args()
    if a.task:
        return work(a.task, a.only)
    print("; ".join(machine()), flush=True)
    print("\n".join(HEAD), flush=True)
    results = {}
    for name in PROGRAMS:
        if a.only and not re.search(a.only, name):
            continue
        results[name] = measure(name)
        print(row(name, results[name]), flush=True)
        if a.report:
            a.report.write_text(json.dumps(results, indent=1))
    print("\n".join(summary(results)))
    if not all(is_equal(r) for r in results.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
