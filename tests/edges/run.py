"""Every operator at the edges of every dtype, against the peer's answers.

    python tests/edges/run.py [--only REGEX] [--dtypes float32,int64] [--all | --lines 6]
        derives the calls from the registry, has the peer answer them, replays them in Facula and prints what
        differs. --only takes full names of operators ("max.dim"), matched as a whole.
    python tests/edges/run.py --replay RECORDING.zip ...
        replays what was recorded before (--keep RECORDING.zip keeps it).

docs/robustness.md says what is derived and how it is compared.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance"), str(HERE.parent / "python")]
import calls as derived  # noqa: E402
import facula._C as C  # noqa: E402
from compare import compare  # noqa: E402
from processes import run  # noqa: E402
from record import unpack  # noqa: E402

import facula  # noqa: E402

PEER = HERE.parents[1] / ".peer" / "bin" / "python"
STATUS = ("equal", "explained", "different", "wider", "crash", "none")


def write_calls(path, only, dtypes):
    """The calls of the operators that match; how many."""
    total = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        for case, facts in derived.operators():
            if only and not re.fullmatch(only, case.name):
                continue
            blob, n = derived.record(case, facts, dtypes)
            z.writestr(case.name, blob)
            total += n
    return total


def declared(name):
    """The differences that the definition declares: (expression for the beginning of a line, reason)."""
    try:
        return [tuple(d) for d in C.inspect_operator(name).get("differences", ())]
    except RuntimeError:
        return []


def replay(path, jobs, limit, only=""):
    """Yields (name, family, [(call, status, lines, reasons)]) by operator; lines are those not explained."""
    with zipfile.ZipFile(path) as z:
        records = {n: unpack(z.read(n)) for n in z.namelist() if not only or re.fullmatch(only, n)}

    def work(name, done):
        record, data = records[name]
        facula.set_num_threads(1)
        refused = set()
        for k, (call, answer) in enumerate(zip(record["calls"], record["answers"])):
            if k < done:
                continue
            if call["group"] in refused:
                yield {"status": "different", "lines": {}}
                continue
            status, lines = compare(record, call, answer, data)
            if call["label"] == "ordinary" and status == "different" and any(" error: " in s for s in lines):
                if "error" not in answer:
                    refused.add(call["group"])
            yield {"status": status, "lines": dict(list(lines.items())[:400])}

    for name, answers in run(work, list(records), jobs, limit):
        record, _ = records[name]
        rules = declared(name)
        out = []
        for call, a in zip(record["calls"], answers):
            if "crash" in a:
                a = {
                    "status": "different",
                    "lines": {f"{call['dtype']} crash: {a['crash']} with {call['label']} {call['group']}": 1},
                }
            lines, reasons = {}, collections.Counter()
            for line, n in a["lines"].items():
                reason = next((r for r in rules if re.match(r[0], line)), None)
                if reason:
                    reasons[reason] += n
                else:
                    lines[line] = n
            status = "explained" if a["status"] == "different" and reasons and not lines else a["status"]
            out.append((call, status, lines, reasons))
        yield name, record["family"], out


def table(results):
    rows = collections.defaultdict(collections.Counter)
    for family, outcome in results.values():
        for key in (family, "all"):
            rows[key]["operators"] += 1
            for _, status, _, _ in outcome:
                rows[key][status] += 1
                rows[key]["calls"] += status in STATUS[:3]
    lines = [
        "| family | operators | calls | equal | explained | different | equal or explained |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, r in sorted(rows.items(), key=lambda x: (x[0] == "all", x[0])):
        good = 100 * (r["equal"] + r["explained"]) / max(r["calls"], 1)
        lines.append(
            f"| {key} | {r['operators']} | {r['calls']} | {r['equal']} | {r['explained']} | "
            f"{r['different']} | {good:.2f} % |"
        )
    return lines, rows["all"]


def kinds(outcome):
    """Lines of one operator, those together that say the same but for dtype, numbers and place."""
    out = {}
    for _, _, lines, _ in outcome:
        for line, n in lines.items():
            dtype, rest = line.split(" ", 1)
            head = re.split(r" (?:at|with) ", rest)[0]
            key = re.sub(r"-?\d[\d.e+-]*", "#", head)[:70]
            have = out.setdefault(key, [0, line, set()])
            have[0] += n
            have[2].add(dtype)
    return out


def print_operator(name, outcome, limit):
    bad = sum(s == "different" for _, s, _, _ in outcome)
    if not bad:
        return
    print(f"{name}: {bad} of {len(outcome)} calls differ")
    for n, line, dtypes in sorted(kinds(outcome).values(), key=lambda x: -x[0])[:limit]:
        print(f"    {n:5} x {line[:230]}   [{' '.join(sorted(dtypes))}]")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="a regular expression that full names must match as a whole")
    p.add_argument("--dtypes", default="", help="only these, with commas between")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=60, help="seconds for one call")
    p.add_argument("--lines", type=int, default=6, help="kinds of difference printed of an operator")
    p.add_argument("--all", action="store_true", help="print every difference")
    p.add_argument("--replay", help="a recording to replay, instead of asking the peer")
    p.add_argument("--keep", help="where to keep the recording")
    p.add_argument("--open", help="a file to write the differences left into, by family")
    a = p.parse_args()
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        recording = a.replay or a.keep or f"{folder}/edges.zip"
        if not a.replay:
            n = write_calls(f"{folder}/calls.zip", a.only, a.dtypes.split(",") if a.dtypes else None)
            print(f"{n} calls derived in {time.time() - started:.0f} s", flush=True)
            command = [PEER, HERE / "answer.py", f"{folder}/calls.zip", recording, "--jobs", str(a.jobs)]
            subprocess.run(
                command, check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            )
        started, results = time.time(), {}
        for name, family, outcome in replay(recording, a.jobs, a.limit, a.only):
            results[name] = family, outcome
            if a.all:
                for _, _, lines, _ in outcome:
                    for line, n in lines.items():
                        print(f"{name}: {n} x {line}")
            elif not a.open:
                print_operator(name, outcome, a.lines)
    lines, everything = table(results)
    print("\n".join(lines))
    print(
        f"replayed in {time.time() - started:.0f} s; {everything['wider']} calls that the peer does not take,"
        f" {everything['crash']} at which it crashes, {everything['none']} without a twin"
    )
    if a.open:
        with open(a.open, "w") as f:
            sys.stdout = f
            print("\n".join(lines), "\n")
            for family in sorted({f for f, _ in results.values()}):
                print(f"== {family}")
                for name, (of, outcome) in sorted(results.items()):
                    if of == family:
                        print_operator(name, outcome, a.lines)
        sys.stdout = sys.__stdout__
    return everything["different"] > 0


if __name__ == "__main__":
    sys.exit(main())
