"""Replays in Facula what dump.py recorded, each operator in a process of its own with a time limit, and
prints what holds.

    python tests/conformance/replay.py RECORDING.zip [--only REGEX] [--jobs 2] [--limit 60] [--report
    docs/conformance.md] [--verbose]

Without --known the exit status tells whether every required operator passes; with it, whether nothing fails
that passed before. After mending: replay.py tests/golden/conformance.zip --known tests/golden/conformance.txt
--write-known.

A call passes when value, shape, dtype, gradient and, for results that share the memory of their input,
strides agree; as a function, as a method and in place. A wrong call passes when it raises an error of the
same type. An operator passes when all of its calls do.
"""

import argparse
import collections
import json
import os
import re
import select
import signal
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
from record import NAMESPACES, REQUIRED, Reader, base, find, flat, gradients, unpack, widened

import facula

# Per dtype: absolute and relative tolerance of values; gradients get ten times as much.
TOLERANCES = {
    "float32": (1e-5, 1e-5),
    "float64": (1e-7, 1e-7),
    "bfloat16": (1e-2, 1.6e-2),
    "complex64": (1e-5, 1e-5),
    "float16": (1e-3, 1e-3),
    "complex128": (1e-7, 1e-7),
}
# Types of errors (PyTorch's, ours) that may stand for each other.
ACCEPTED = {("RuntimeError", "IndexError"), ("AcceleratorError", "RuntimeError")}


def numpy(x):
    x = x.detach()
    if x.dtype == facula.bfloat16:
        x = x.to(facula.float32)
    return x.numpy()


def expected(t, reader):
    return widened(t["T"], reader.array(t)).reshape(t["shape"])


def compare(what, got, t, reader, tolerances, scale=1):
    """A line that says what differs, or None."""
    if "value" in t:
        want = reader.value(t["value"])
        same = got == want or (got != got and want != want)
        return None if same else f"{what}: {got!r:.40} for {want!r:.40}"
    if not isinstance(got, facula.Tensor):
        return f"{what}: a {type(got).__name__} for a tensor"
    dtype = str(got.dtype).split(".")[1]
    if dtype != t["T"]:
        return f"{what}: dtype {dtype} for {t['T']}"
    if list(got.shape) != t["shape"]:
        return f"{what}: shape {list(got.shape)} for {t['shape']}"
    if "at" not in t:
        return None
    if t.get("view") and got.numel() > 1:
        a, b = ([s for s, n in zip(x, t["shape"]) if n > 1] for x in (got.stride(), t["strides"]))
        if a != b:
            return f"{what}: strides {list(got.stride())} for {t['strides']}"
    atol, rtol = (
        scale * max(x, y) for x, y in zip(TOLERANCES.get(dtype, (0, 0)), tolerances.get(dtype, (0, 0)))
    )
    got, want = numpy(got), expected(t, reader)
    with np.errstate(all="ignore"):
        near = np.isclose(got, want, atol=atol, rtol=rtol, equal_nan=True)
    if near.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~near)[0])
    return f"{what}: value {got[at]} for {want[at]} at {list(at)}"


def attempt(f, case, data, with_gradient=False):
    r = Reader(facula, data, with_gradient)
    args, kwargs = r.value(case["args"]), r.value(case["kwargs"])
    return args, flat(facula, f(*args, **kwargs)), r


def check(f, case, data, tolerances):
    """The first difference of one call."""
    try:
        what = "result"
        _, got, r = attempt(f, case, data, "gradients" in case)
        if len(got) != len(case["results"]):
            return f"{len(got)} results for {len(case['results'])}"
        for x, t in zip(got, case["results"]):
            if (line := compare(what, x, t, r, tolerances)) is not None:
                return line
        if "gradients" in case:
            what = "gradient"
            for g, t in zip(
                gradients(facula, got, r.leaves) or [None] * len(case["gradients"]), case["gradients"]
            ):
                if t is None or g is None:
                    zero = t is None or not expected(t, r).any()
                    if not (zero and (g is None or not numpy(g).any())):
                        given, theirs = ("none" if x is None else "one" for x in (g, t))
                        return f"gradient: {given} where PyTorch has {theirs}"
                elif (line := compare(what, g, t, r, tolerances, 10)) is not None:
                    return line
        for what in (case.get("method"), case.get("inplace")):
            g = what and getattr(facula.Tensor, what, None)
            if what and g is None:
                return f"no method {what}"
            if g:
                args, got, r = attempt(g, case, data)
                for x, t in zip(got, case["results"]):
                    if (line := compare(f"Tensor.{what}", x, t, r, tolerances)) is not None:
                        return line
    except Exception as e:  # noqa: BLE001  any error is a finding
        return f"{what}: {type(e).__name__}: {' '.join(str(e).split())[:160]}"
    return None


def check_error(f, case, data):
    try:
        attempt(f, case, data)
    except Exception as e:  # noqa: BLE001
        kind = type(e).__name__
        if kind == case["error"] or (case["error"], kind) in ACCEPTED:
            return None
        return f"{kind} for {case['error']} ({case['text'][:70]}): {' '.join(str(e).split())[:70]}"
    return f"no error for {case['error']}: {case['text'][:100]}"


def replay(blob):
    record, data = unpack(blob)
    f = find(facula, record["name"])
    if f is None:
        return None
    passed, failures = 0, []
    for case in record["cases"]:
        facula.manual_seed(0)
        line = check(f, case, data, record["tolerances"])
        passed += line is None
        if line is not None:
            failures.append(f"{case['dtype']} sample {case['sample']}: {line}")
    for k, case in enumerate(record["errors"]):
        line = check_error(f, case, data)
        passed += line is None
        if line is not None:
            failures.append(f"error {k}: {line}")
    return {"passed": passed, "calls": len(record["cases"]) + len(record["errors"]), "failures": failures}


def start(blob):
    """A process that replays one operator and writes its answer into a pipe."""
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return pid, out
    try:
        os.close(out)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        facula.set_num_threads(1)
        with os.fdopen(into, "w") as f:
            f.write(json.dumps(replay(blob)))
    finally:
        os._exit(0)


def run(archive, names, jobs, limit):
    """Yields (name, answer): None where Facula has no such operator, and a failure where the process died
    or took too long.
    """
    waiting, running = list(names), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            pid, out = start(archive.read(name))
            running[out] = (name, pid, time.time(), bytearray())
        ready, _, _ = select.select(list(running), [], [], 1)
        for out in list(running):
            name, pid, since, text = running[out]
            done, why = False, None
            if out in ready:
                piece = os.read(out, 1 << 16)
                text += piece
                done, why = not piece, "the process ended"
            elif time.time() - since > limit:
                os.kill(pid, signal.SIGKILL)
                done, why, text = True, f"took more than {limit} s", b""
            if done:
                os.close(out)
                _, status = os.waitpid(pid, 0)
                del running[out]
                if os.WIFSIGNALED(status) and why == "the process ended":
                    why += f" with signal {os.WTERMSIG(status)}"
                yield name, json.loads(text) if text else {"passed": 0, "calls": 1, "failures": [why]}


def namespace(name):
    return next((n for n in NAMESPACES if name.startswith(n + ".")), "facula")


def table(results):
    rows = collections.defaultdict(lambda: [0, 0, 0, 0, 0])
    for name, r in results.items():
        for key in (namespace(name), "all"):
            row = rows[key]
            row[0] += 1
            if r:
                row[1] += 1
                row[2] += not r["failures"]
                row[3] += r["passed"]
                row[4] += r["calls"]
    lines = ["| namespace | in the database | in Facula | passed | calls passed |", "|---|---|---|---|---|"]
    for key, (a, b, c, d, e) in sorted(rows.items(), key=lambda x: (x[0] == "all", x[0])):
        lines.append(f"| {key} | {a} | {b} | {c} | {d}/{e} |")
    return lines


# Differences that stay, each with its reason: (operator, expression for the failures, reason) by line of
# differences.txt.
DIFFERENCES = [
    line.split(" | ") for line in (Path(__file__).parent / "differences.txt").read_text().splitlines()
]


def reason_for(name, failures):
    """Why an operator differs, if that explains all of its failures."""
    known = [(pattern, why) for n, pattern, why in DIFFERENCES if re.fullmatch(n, name)]
    return (
        "; ".join(why for _, why in known)
        if known and all(any(re.search(p, f) for p, _ in known) for f in failures)
        else None
    )


def explanations(results):
    """The operators all of whose failures are differences that stay, with the reason."""
    return {
        n: why
        for n, r in sorted(results.items())
        if r and r["failures"] and (why := reason_for(n, r["failures"]))
    }


def required_line(results):
    wanted = [n for n in results if base(n) in REQUIRED]
    good = sum(1 for n in wanted if results[n] and not results[n]["failures"])
    but = sum(1 for n in explanations(results) if n in wanted)
    wished = f"Of the {len(wanted)} that every sample should pass"
    return f"{wished} {good} pass, {but} more but for differences that stay."


def report(results):
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance`: how Facula answers the calls of PyTorch's own database of operators.",
        "",
        *table(results),
        "",
        "## Operators that every sample should pass, and do not",
        "",
    ]
    wanted = [n for n in results if base(n) in REQUIRED]
    explained = explanations(results)
    for name in sorted(wanted):
        r = results[name]
        if name in explained:
            continue
        if r is None:
            lines.append(f"- `{name}`: not there")
        elif r["failures"]:
            lines.append(f"- `{name}` ({r['passed']}/{r['calls']}): " + "; ".join(reasons(r["failures"])))
    lines += ["", required_line(results), "", "## Differences that stay", ""]
    lines += [
        f"- `{n}` ({results[n]['passed']}/{results[n]['calls']}): {why}" for n, why in explained.items()
    ]
    lines += ["", "## The others that Facula has", ""]
    for name in sorted(n for n in results if base(n) not in REQUIRED):
        r = results[name]
        if r and r["failures"] and name not in explained:
            lines.append(f"- `{name}` ({r['passed']}/{r['calls']}): " + "; ".join(reasons(r["failures"])[:2]))
    missing = sorted(n for n in results if results[n] is None and base(n) not in REQUIRED)
    return "\n".join([*lines, "", "## Not there", "", " ".join(f"`{n}`" for n in missing)]) + "\n"


def reasons(failures):
    """One of each kind: samples that differ only in place or in numbers say the same."""
    kinds = {}
    for line in failures:
        kind = re.sub(r"[-\d.e+]+", "#", line.split(": ", 1)[-1])[:60]
        kinds.setdefault(kind, []).append(line)
    return [
        v[0].replace("|", "\\|") + (f" (and {len(v) - 1} like it)" if len(v) > 1 else "")
        for v in kinds.values()
    ][:4]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("recording")
    p.add_argument("--only", default="", help="a regular expression that names must match as a whole")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=120, help="seconds for an operator")
    p.add_argument("--report", help="the file to write, in Markdown")
    p.add_argument(
        "--known", help="a file with the calls that are known to fail: only others count as failures"
    )
    p.add_argument("--write-known", action="store_true", help="write that file")
    p.add_argument("--verbose", action="store_true", help="print every failure")
    a = p.parse_args()
    started = time.time()
    with zipfile.ZipFile(a.recording) as z:
        names = [n for n in z.namelist() if not a.only or re.fullmatch(a.only, n)]
        results = {}
        for name, r in run(z, names, a.jobs, a.limit):
            results[name] = r
            if r and r["failures"] and not a.known:
                print(f"{name}: {r['passed']}/{r['calls']}")
                for line in r["failures"] if a.verbose else reasons(r["failures"]):
                    print("   ", line)
    if a.report:
        Path(a.report).write_text(report(results))
    print("\n".join(table(results)))
    here = [r for r in results.values() if r]
    print(f"{time.time() - started:.0f} s")
    print(required_line(results))
    print(f"ops passed {sum(not r['failures'] for r in here)}/{len(here)}")
    if not a.known:
        return any(
            base(n) in REQUIRED and r and r["failures"] and not reason_for(n, r["failures"])
            for n, r in results.items()
        )
    calls = {f"{n} {line.split(':')[0]}": line for n, r in results.items() if r for line in r["failures"]}
    if a.write_known:
        Path(a.known).write_text("\n".join(sorted(calls)) + "\n")
    fresh = set(calls) - set(Path(a.known).read_text().splitlines())
    print("\n".join(f"{n}: {calls[n]}" for n in sorted(fresh)))
    return bool(fresh)


if __name__ == "__main__":
    sys.exit(main())
