"""Compares quantisation with PyTorch's, end to end, and writes a report; ``make quantize`` runs it.

python run.py [--count N] [--seed N] [--jobs N] [--report FILE] [--no-accuracy]
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from compare import compared, fails, report

HERE = Path(__file__).resolve().parent
PEER = HERE.parents[1] / ".peer/bin/python"
OURS = [sys.executable, "-m", "facula.torch"]


def both(script, arguments, folder, name):
    """Runs a script under both libraries at the same time; returns the files that it wrote."""
    files = [folder / f"{kind}.{name}" for kind in ("ours", "theirs")]
    commands = [OURS, [str(PEER)]]
    running = [
        subprocess.Popen(
            [*command, str(HERE / script), *map(str, arguments), str(file)], stderr=subprocess.PIPE
        )
        for command, file in zip(commands, files)
    ]
    for process, command in zip(running, commands):
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} {script} failed:\n{errors.decode()[-3000:]}")
    return files


def flows(folder):
    """Returns a table of the results of whole models, and what is not within one step."""
    ours, theirs = (np.load(f) for f in both("flows.py", [], folder, "flows.npz"))
    lines, wrong = ["| model | elements | largest difference | equal |", "|---|---|---|---|"], []
    for key in theirs.files:
        a, b = ours[key].astype(np.float64), theirs[key].astype(np.float64)
        if a.shape != b.shape:
            wrong.append(f"{key}: shape {a.shape} instead of {b.shape}")
            continue
        difference, near = np.abs(a - b).max(), np.isclose(a, b, rtol=1e-4, atol=1e-4).mean()
        lines.append(f"| {key} | {a.size} | {difference:.3g} | {100 * near:.1f} % |")
        # Training moves weights by what rounding to another step changes in a gradient.
        allowed = 3.01 if "qat" in key else 1.01
        if difference > allowed:
            wrong.append(f"{key}: a difference of {difference:.3g}")
    return "\n".join(lines), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--no-accuracy", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = []
        for file in both("calls.py", [options.seed, options.count], folder, "calls.pickle"):
            with open(f"{file}", "rb") as f:
                results.append(pickle.load(f))
        table = compared(*results)
        models, wrong = flows(folder)
        wrong += fails(table)
    parts = [
        f"# Quantisation beside PyTorch\n\nSeed {options.seed}, {options.count} calls.",
        report(table),
        models,
    ]
    if not options.no_accuracy:
        accuracy = subprocess.run([*OURS, str(HERE / "accuracy.py")], stdout=subprocess.PIPE, text=True)
        parts.append("```\n" + accuracy.stdout + "```")
        if accuracy.returncode:
            wrong.append("accuracy: a flow loses more than it may, or failed")
    text = "\n\n".join([*parts, f"{len(wrong)} faults\n" + "\n".join(f"- {w}" for w in wrong)]) + "\n"
    print(text)
    if options.report:
        options.report.write_text(text, encoding="utf-8")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
