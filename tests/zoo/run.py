"""Published models, unmodified, on Facula and on its peer, from the same weights.

    python tests/zoo/run.py [--only REGEX] [--missing] [--report docs/zoo.md] [--minutes 10]
    python tests/zoo/run.py --compiled [--only REGEX]

Outputs agree within 1e-4 and gradients within 1e-3 of the largest element, losses of three steps of SGD
within 1e-3. A model that is further off is computed by the peer in float64 as well: it passes if it is not
further from that than three times the peer's own float32. One element within rounding of a ReLU's kink
moves gradients by a percent, ours or the peer's by chance. So for a model that is further off, float64 is
asked what rounding alone may do: weights and images change by at most half a unit of float32's last place,
in some draws, and the model passes if it is not further off than three times what that moves. A fault is
there on other inputs too: such a model, and one that differs, is run on two more, which its row shows.

--compiled runs each model here plain and compiled, and compares the two in the same way; it prints the breaks
of the compiled model and the processor time of its third step as a multiple of the plain one's.

The report keeps the rows of earlier runs for models that are not run, so it may be made in parts; --missing
leaves out those that it has as passed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import facula

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(__file__).with_name("model.py")
PACKAGE = Path(facula.__file__).parent
OUTPUT, GRADIENT, LOSS, ROOM = 1e-4, 1e-3, 1e-3, 3.0
NUDGES = 6
minutes = 10  # of one process
PASSED = ("equal", "rounding", "kinks")
LIBRARIES = "accelerate einops peft safetensors.torch timm torchmetrics transformers".split()
PEER = [ROOT / ".peer" / "bin" / "python"]
ALIAS, ALIAS_PATH = [sys.executable, "-m", "facula.torch"], [PACKAGE.parent]


def surroundings(path):
    """The environment of a process that finds packages in the folders of ``path``, and downloads nothing."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONWARNINGS": "ignore"}
    environment |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    # Threads that spin while they wait count as processor time: many times the work's on a busy machine.
    return environment | {"OMP_WAIT_POLICY": "passive"}


def output(interpreter, path, *arguments, seconds=None, folder=None):
    """What a program prints in this folder, and the last line of what went wrong or None."""
    seconds = seconds or 60 * minutes
    try:
        done = subprocess.run(
            [*map(str, interpreter), *map(str, arguments)],
            env=surroundings(path),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return "", f"more than {seconds / 60:g} minutes"
    if done.returncode == 0:
        return done.stdout, None
    return done.stdout, (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]


def answer(interpreter, path, *arguments):
    """The last line of what went wrong, or None."""
    return output(interpreter, path, *arguments)[1]


def off(ours, theirs):
    """The largest error, as a share of the largest element; infinite where NaN or infinities differ."""
    if ours.shape != theirs.shape:
        return np.inf
    finite = np.isfinite(theirs)
    if (finite != np.isfinite(ours)).any():
        return np.inf
    size = np.abs(theirs[finite]).max(initial=0)
    return float(np.abs(ours - theirs)[finite].max(initial=0) / (size or 1))


def errors(ours, theirs):
    """Errors of the output, the gradients (their largest, and whose) and the losses."""
    names = [n for n in theirs if n.startswith("gradient")]
    if set(names) != {n for n in ours if n.startswith("gradient")}:
        return off(ours["output"], theirs["output"]), np.inf, "other parameters have gradients", np.inf
    # Gradients that vanish but for rounding (a bias before a normalisation) are measured against the others.
    largest = max((np.abs(theirs[n]).max(initial=0) for n in names), default=0)
    counted = [n for n in names if np.abs(theirs[n]).max(initial=0) > 1e-5 * largest]
    worst, name = max(((off(ours[n], theirs[n]), n) for n in counted), default=(0.0, ""))
    return off(ours["output"], theirs["output"]), worst, name, off(ours["losses"], theirs["losses"])


def within(e, limits):
    return all(a <= b for a, b in zip((e[0], e[1], e[3]), limits))


def limits(far):
    """What an error may be when rounding alone is this far off."""
    return [max(ROOM * far[k], limit) for k, limit in ((0, OUTPUT), (1, GRADIENT), (3, LOSS))]


def in_words(e):
    return f"{e[0]:.0e}, {e[1]:.0e}, {e[3]:.0e}"


def moved_by_rounding(exact, run, path):
    """How far float64 goes, at most, when weights and images change by rounding; or a failure."""
    far = (0.0, 0.0, "", 0.0)
    for draw in range(1, NUDGES + 1):
        if failure := run(path, "--float64", "--nudge", draw):
            return failure
        e = errors(dict(np.load(path)), exact)
        far = max(far[0], e[0]), max(far[1], e[1]), "", max(far[3], e[3])
    return far


def judge(ours, other, run, path, name):
    """Status and detail of results beside those of ``name``, which ``run`` computes in float64."""
    e = errors(ours, other)
    detail = f"output {e[0]:.0e}, gradients {e[1]:.0e}, losses {e[3]:.0e}"
    if within(e, (OUTPUT, GRADIENT, LOSS)):
        return "equal", detail
    detail += f" ({e[2]})"
    if failure := run(path, "--float64"):
        return "differs", f"{detail}; float64: {failure}"
    exact = dict(np.load(path))
    mine, theirs = errors(ours, exact), errors(other, exact)
    detail += f"; ours from float64: {in_words(mine)}; {name} from float64: {in_words(theirs)}"
    if within(mine, limits(theirs)):
        return "rounding", detail
    far = moved_by_rounding(exact, run, path.with_name("nudged.npz"))
    if isinstance(far, str):
        return "differs", f"{detail}; nudged: {far}"
    status = "kinks" if within(mine, limits(far)) else "differs"
    return status, f"{detail}; float64 moves by {in_words(far)}"


def measure(library, name, folder, stand_in, seed):
    """Status, detail, and our time and memory as multiples of the peer's, on inputs of this seed."""
    weights, ours, theirs, exact = (folder / n for n in ("weights.pt", "ours.npz", "theirs.npz", "exact.npz"))
    peer = PEER, [ROOT / ".zoo", stand_in]

    def by_peer(results, *options):
        return answer(*peer, MODEL, library, name, weights, results, "--seed", seed, *options)

    if failure := by_peer(theirs, "--write-weights"):
        return "peer fails", failure, None
    failure = answer(ALIAS, [*ALIAS_PATH, ROOT / ".zoo"], MODEL, library, name, weights, ours, "--seed", seed)
    if failure:
        return "fails", failure, None
    a, b = dict(np.load(ours)), dict(np.load(theirs))
    took = a["seconds"][1:, 1].min() / b["seconds"][1:, 1].min(), float(a["memory"] / b["memory"])
    return *judge(a, b, by_peer, exact, "peer"), took


def compare(library, name, folder, stand_in):
    status, detail, took = measure(library, name, folder, stand_in, 0)
    for seed in (1, 2) if status in ("kinks", "differs") else ():
        other, text, _ = measure(library, name, folder, stand_in, seed)
        detail += f"; other inputs, {other}: {text}"
        if other not in PASSED:
            status = "differs"
    return status, detail, took


def compiled(library, name, folder):
    """What the compiled model differs in from the plain one: a status, and a line about it."""
    weights, plain, fast, exact = (folder / n for n in ("weights.pt", "plain.npz", "fast.npz", "exact.npz"))

    def run(results, *options):
        path = [*ALIAS_PATH, ROOT / ".zoo"]
        return answer(ALIAS, path, MODEL, library, name, weights, results, *options)

    if failure := run(plain, "--write-weights"):
        return "plain fails", failure
    if failure := run(fast, "--compiled"):
        return "fails", failure
    a, b = dict(np.load(fast)), dict(np.load(plain))
    breaks = a["breaks"]
    status, detail = judge(a, b, run, exact, "plain")
    if status == "differs" and exact.exists() and not run(fast, "--compiled", "--float64"):
        e = errors(dict(np.load(fast)), dict(np.load(exact)))
        detail += f"; compiled in float64: {in_words(e)}"
    detail += f"; {a['captures'][0]} captures, {a['captures'][1]} plain runs, {len(breaks)} breaks"
    time = a["seconds"][2, 1] / b["seconds"][2, 1]
    return status, "; ".join([f"{detail}, time {time:.2f}x", *map(str, breaks[:4])])


def compare_compiled(lines):
    """Runs models plain and compiled; whether all are right."""
    results = []
    for line in lines:
        with tempfile.TemporaryDirectory() as folder:
            results.append(compiled(*line.split(maxsplit=1), Path(folder)))
        print(f"{line}: {': '.join(results[-1])}", flush=True)
    print(f"{len(lines)} models: {summary((status, '', None) for status, _ in results)}")
    return all(status in PASSED for status, _ in results)


def use(what):
    """What goes wrong when a program behind the alias imports this library, or is this file."""
    return answer(
        ALIAS, [*ALIAS_PATH, ROOT / ".zoo"], *([what] if isinstance(what, Path) else ["-c", f"import {what}"])
    )


def recorded(report):
    """What a report of earlier runs says: programs' outcomes, and models' results by line of models.txt."""
    programs, results = {}, {}
    for line in report.read_text().splitlines() if report and report.exists() else ():
        if line.startswith("- "):
            name, _, outcome = line[2:].partition(": ")
            programs[name] = None if outcome == "runs" else outcome
        elif line.startswith("| ") and not line.startswith("| library "):
            _, library, name, status, time, memory, detail, _ = (cell.strip() for cell in line.split("|"))
            took = tuple(float(x) if x else None for x in (time, memory))
            results[f"{library} {name}"] = status, detail, took if any(took) else None
    return programs, results


def summary(results):
    results = list(results)
    counts = Counter(status for status, _, _ in results)
    ratios = [took[0] for _, _, took in results if took and took[0]]
    mean = np.exp(np.mean(np.log(ratios))) if ratios else None
    mean = f"; time of a step, geometric mean of {len(ratios)} models {mean:.2f}x" if ratios else ""
    return ", ".join(f"{n} {status}" for status, n in counts.most_common()) + mean


def write(report, lines, programs, results):
    """The rows in models.txt's order; a model that it has no more has none."""
    results = {line: results[line] for line in lines if line in results}
    text = [
        "# Models",
        "",
        "Written by `make zoo`: published models, unmodified, behind `python -m facula.torch` and on",
        "PyTorch, from the same weights. *equal*: outputs within 1e-4, gradients and three steps within",
        "1e-3; *rounding*: not further from float64 than three times PyTorch's float32; *kinks*: not",
        "further than three times what float64 itself moves when weights and images change by at most",
        f"half a unit of float32's last place, in {NUDGES} draws (an element within rounding of a ReLU's",
        "kink moves gradients by a percent), and not on two further inputs either. Time: processor time of a",
        "step, memory: the process's peak, both as a multiple of PyTorch's, whose threads sleep while they",
        "wait (OMP_WAIT_POLICY=passive); rows without a time are of runs before that was set. Each row is",
        "of the last run of its model.",
        "",
        f"{len(results)} of {len(lines)} models were run: {summary(results.values())}.",
        "",
        *(f"- {name}: {failure or 'runs'}" for name, failure in programs.items()),
        "",
        "| library | model | result | time | memory | |",
        "|---|---|---|---|---|---|",
    ]
    for line, (status, detail, took) in results.items():
        figures = (f"{t:.2f}" if t else "" for t in took or (None, None))
        cells = *line.split(maxsplit=1), status, *figures
        text.append(f"| {' | '.join(cells)} | {'' if status == 'equal' else detail.replace('|', '/')} |")
    report.write_text("\n".join(text) + "\n")


def main():
    global minutes
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--missing", action="store_true", help="only models that the report has not as passed"
    )
    parser.add_argument("--compiled", action="store_true", help="compare compiled with plain models")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--minutes", type=float, default=minutes, help="that one process may take")
    a = parser.parse_args()
    minutes = a.minutes
    lines = [n for n in MODEL.with_name("models.txt").read_text().splitlines() if not n.startswith("#")]
    if a.compiled:
        return not compare_compiled([line for line in lines if re.search(a.only, line)])
    programs, results = recorded(a.report)
    tried = {f"import {name}": name for name in LIBRARIES if re.search(a.only, f"import {name}")}
    if re.search(a.only, "transformers Trainer"):
        tried["transformers' Trainer on a tiny BERT"] = MODEL.with_name("trainer.py")
    tried = {name: use(what) for name, what in tried.items()}
    programs |= tried
    for name, failure in tried.items():
        print(f"{name}: {failure or 'runs'}", flush=True)
    chosen = [line for line in lines if re.search(a.only, line)]
    if a.missing:
        chosen = [line for line in chosen if line not in results or results[line][0] not in PASSED]
    with tempfile.TemporaryDirectory() as temporary:
        stand_in = Path(temporary, "path")  # torchvision's stand-in, without the name torch
        stand_in.mkdir()
        (stand_in / "torchvision").symlink_to(PACKAGE / "_alias" / "path" / "torchvision")
        for line in chosen:
            with tempfile.TemporaryDirectory() as folder:
                status, detail, took = compare(*line.split(maxsplit=1), Path(folder), stand_in)
            results[line] = status, detail, took
            figures = f"{took[0]:.2f}x time, {took[1]:.2f}x memory" if took else ""
            print(f"{line}: {status}; {detail}; {figures}", flush=True)
            if a.report:  # after each: an interrupted run loses nothing
                write(a.report, lines, programs, results)
    print(f"{len(chosen)} models: {summary([results[line] for line in chosen])}")
    if a.report:
        write(a.report, lines, programs, results)
    return any(tried.values()) or any(results[line][0] not in PASSED for line in chosen)


if __name__ == "__main__":
    sys.exit(main())
