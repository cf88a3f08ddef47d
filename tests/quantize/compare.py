"""Compares the results of two runs of calls.py: ``python compare.py OURS THEIRS``."""

from __future__ import annotations

import pickle
import sys
from collections import defaultdict

import numpy as np


def differences(ours, theirs):
    """Returns (elements, equal elements, largest difference in steps); a text if they do not correspond."""
    if theirs[0] == "error":
        return None  # the peer has no such call
    if ours[0] != theirs[0]:
        return f"{ours[0]} instead of {theirs[0]}: {ours[1] if ours[0] == 'error' else ''}"
    a, b = np.asarray(ours[1]), np.asarray(theirs[1])
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
    if ours[0] == "quantized" and not np.allclose(ours[2], theirs[2], rtol=1e-6):
        return f"scale {ours[2]} instead of {theirs[2]}"
    if ours[0] == "quantized" and ours[3] != theirs[3]:
        return f"zero point {ours[3]} instead of {theirs[3]}"
    if a.size == 0:
        return 0, 0, 0
    if a.dtype.kind == "f":
        # One step of an input that is quantised inside moves all sums that it is part of.
        largest = max(1.0, float(np.abs(b).max()))
        near, step = np.isclose(a, b, rtol=1e-5, atol=1e-5 * largest), np.abs(a - b).max() <= 0.02 * largest
        return a.size, int(near.sum()), 0 if near.all() else 1 if step else 2
    steps = np.abs(a.astype(np.int64) - b.astype(np.int64))
    return a.size, int((steps == 0).sum()), int(steps.max())


def compared(ours, theirs):
    """Returns by operator: calls, refused ones, elements, equal ones, largest difference, faults."""
    table = defaultdict(lambda: [0, 0, 0, 0, 0, []])
    for k, (name, result) in theirs.items():
        row = table[name]
        row[0] += 1
        d = differences(ours[k][1], result)
        if d is None:
            row[1] += 1
        elif isinstance(d, str):
            row[5].append(f"call {k}: {d}")
        else:
            row[2] += d[0]
            row[3] += d[1]
            row[4] = max(row[4], d[2])
            if d[2] > 1:
                row[5].append(f"call {k}: a difference of {d[2]} steps")
    return dict(table)


def report(table):
    lines = [
        "| operator | calls | refused by the peer | elements | equal | largest difference | faults |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (calls, refused, elements, equal, largest, faults) in table.items():
        share = f"{100 * equal / elements:.2f} %" if elements else "-"
        lines.append(f"| {name} | {calls} | {refused} | {elements} | {share} | {largest} | {len(faults)} |")
    return "\n".join(lines)


def fails(table):
    """Returns what is not as it has to be: within one step, and 99 % equal."""
    found = []
    for name, (calls, refused, elements, equal, _, faults) in table.items():
        found += [f"{name}: {f}" for f in faults]
        if elements and equal < 0.99 * elements:
            found.append(f"{name}: only {100 * equal / elements:.2f} % of the elements are equal")
        if calls and refused == calls:
            found.append(f"{name}: the peer refuses all calls")
    return found


if __name__ == "__main__":
    results = []
    for file in sys.argv[1:3]:
        with open(file, "rb") as f:
            results.append(pickle.load(f))
    rows = compared(*results)
    print(report(rows))
    wrong = fails(rows)
    print("\n".join(wrong[:60]))
    print(f"{sum(r[0] for r in rows.values())} calls, {len(wrong)} faults")
    sys.exit(bool(wrong))
