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
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance"), str(HERE.parent / "python")]
import calls as derived  # noqa: E402
from compare import compare  # noqa: E402
from declared import by_operator  # noqa: E402
from part import write_part  # noqa: E402
from processes import run  # noqa: E402
from record import unpack  # noqa: E402
from ways import PROCESSORS  # noqa: E402

import facula  # noqa: E402

PEER = HERE.parents[1] / ".peer" / "bin" / "python"
HEADER = "# Written by Facula: calls at the edges whose answers still differ"
COUNTED = ("equal", "elsewhere", "rounded", "nearer", "explained", "different")
STATUS = (*COUNTED, "wider", "crash", "unset", "none")


def write_calls(path, only, dtypes):
    """The calls of the operators that match; how many."""
    total = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        for name, case, facts, form in derived.operators():
            if only and not re.fullmatch(only, name):
                continue
            blob, n = derived.record(case, facts, form, dtypes)
            z.writestr(name, blob)
            total += n
    return total


DECLARED = by_operator()


def declared(name):
    """The differences that are declared for an operator."""
    name = derived.PUBLIC[name].op.full_name if name in derived.PUBLIC else name
    return DECLARED.get(name, [])


def replay(path, jobs, limit, only="", which=None):
    """Yields (name, family, [(call, status, lines, reasons)]) by operator; lines are those not explained, or
    the way of an answer elsewhere. `which`: numbers of calls by operator, only these.
    """
    with zipfile.ZipFile(path) as z:
        names = [n for n in z.namelist() if re.fullmatch(only or ".*", n) and (which is None or n in which)]
        records = {n: unpack(z.read(n)) for n in names}

    def numbers(name):
        return which[name] if which is not None else range(len(records[name][0]["calls"]))

    def work(name, done):
        record, data = records[name]
        facula.set_num_threads(1)
        refused = {}  # groups whose ordinary call we refuse, and how: so are all
        for k in numbers(name)[done:]:
            call, answer = record["calls"][k], record["answers"][k]
            if call["group"] in refused:
                yield {"status": "different", "lines": refused[call["group"]]}
                continue
            status, lines = compare(record, call, answer, data)
            if call["label"] == "ordinary" and status == "different" and any(" error: " in s for s in lines):
                if "error" not in answer:
                    refused[call["group"]] = lines
            yield {"status": status, "lines": dict(list(lines.items())[:400])}

    for name, answers in run(work, list(records), jobs, limit):
        record, _ = records[name]
        rules = declared(name)
        calls = (record["calls"][k] for k in numbers(name))
        yield name, record["family"], [judged(call, a, rules) for call, a in zip(calls, answers)]


def judged(call, a, rules):
    """(call, status, lines, reasons), lines without those that a rule explains."""
    if "crash" in a:
        line = f"{call['dtype']} crash: {a['crash']} with {call['label']} {call['group']}"
        a = {"status": "different", "lines": {line: 1}}
    if a["status"] != "different":
        return call, a["status"], a["lines"], {}
    lines, reasons = {}, collections.Counter()
    for line, n in a["lines"].items():
        reason = next((r for r in rules if re.match(r.where, line)), None)
        if reason:
            reasons[reason] += n
        else:
            lines[line] = n
    return call, "explained" if reasons and not lines else "different", lines, reasons


def table(results):
    rows = collections.defaultdict(collections.Counter)
    for family, outcome in results.values():
        for key in (family, "all"):
            rows[key]["operators"] += 1
            for _, status, _, _ in outcome:
                rows[key][status] += 1
                rows[key]["calls"] += status in COUNTED
    lines = [
        "| family | operators | calls | equal here | elsewhere | rounded | nearer | explained | different "
        "| here or elsewhere | with rounded and nearer |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, r in sorted(rows.items(), key=lambda x: (x[0] == "all", x[0])):
        good = r["equal"] + r["elsewhere"]
        shares = (f"{100 * n / max(r['calls'], 1):.2f} %" for n in (good, good + r["rounded"] + r["nearer"]))
        counts = (str(r[s]) for s in ("operators", "calls", *COUNTED))
        lines.append(f"| {' | '.join([key, *counts, *shares])} |")
    return lines, rows["all"]


def ways_table(results):
    """How the answers elsewhere came about, by family."""
    counts = collections.defaultdict(collections.Counter)
    for family, outcome in results.values():
        for _, status, lines, _ in outcome:
            if status in ("elsewhere", "rounded"):
                (way,) = lines
                counts[way][family] += 1
    out = ["| the peer answers so | calls | families |", "|---|---|---|"]
    for way, families in sorted(counts.items(), key=lambda x: -x[1].total()):
        inside = ", ".join(f"{f} {n}" for f, n in families.most_common())
        out.append(f"| {way} | {families.total()} | {inside} |")
    return out


def kinds(outcome):
    """Lines of one operator, those together that say the same but for dtype, numbers and place."""
    out = {}
    for _, status, lines, _ in outcome:
        for line, n in lines.items() if status == "different" else ():
            dtype, rest = line.split(" ", 1)
            head = re.split(r" (?:at|with) ", rest)[0]
            key = re.sub(r"-?\d[\d.e+-]*", "#", head)[:70]
            have = out.setdefault(key, [0, line, set()])
            have[0] += n
            have[2].add(dtype)
    return sorted(out.values(), key=lambda x: -x[0])


def differing(outcome):
    return sum(s == "different" for _, s, _, _ in outcome)


def summary(name, outcome, limit):
    """What is left of one operator."""
    if not differing(outcome):
        return []
    lines = [f"{name}: {differing(outcome)} of {len(outcome)} calls differ"]
    for n, line, dtypes in kinds(outcome)[:limit]:
        lines.append(f"    {n:5} x {line[:230]}   [{' '.join(sorted(dtypes))}]")
    return lines


def by_family(results, limit):
    lines = []
    for family in sorted({f for f, _ in results.values()}):
        inside = [
            line
            for name, (of, outcome) in sorted(results.items())
            if of == family
            for line in summary(name, outcome, limit)
        ]
        lines += [f"== {family}", *inside] if inside else []
    return lines


def explanations(results):
    """(operator, expression, reason, calls) of each declared difference; 0 calls where nothing shows it."""
    out = []
    for name, (_, outcome) in sorted(results.items()):
        for rule in declared(name):
            seen = [call for call, _, _, reasons in outcome if rule in reasons]
            out.append((name, *rule, len(seen)))
    return out


def unused(results):
    """The declared differences that no call shows, as lines."""
    return [f"{name}: {where}" for name, where, _, calls in explanations(results) if not calls]


def closing_line(everything, seconds):
    beside = (
        f"{everything['wider']} in dtypes that the peer does not take",
        f"{everything['crash']} at which it crashes",
        f"{everything['unset']} in which it leaves a result as memory was",
        f"{everything['none']} without a twin",
    )
    return f"{everything['calls']} calls replayed in {seconds:.0f} s; beside them {', '.join(beside)}"


def report(results, seconds):
    lines, everything = table(results)
    lines = [
        "# Edges",
        "",
        "Written by `make edges`: how Facula answers calls with special values that are derived from the",
        'registry, beside PyTorch\'s answers ([robustness.md](robustness.md), "Edges").',
        "",
        *lines,
        "",
        closing_line(everything, seconds) + ".",
        "",
        "## Equal elsewhere",
        "",
        "Equal, as a whole, to what PyTorch answers to the same call on another processor, through another",
        "library or with its operands otherwise in memory (`tests/edges/ways.py`); not to its answer here.",
        "*Rounded* (`in a wider dtype`): to what it answers to the same numbers in float64 or complex128,",
        "rounded to the dtype of the call. *Nearer*: each element is that of PyTorch's answer here, or no",
        "further from that in a wider dtype than PyTorch's is.",
        "",
        *ways_table(results),
        "",
        "## Explained by a declaration in tests/edges/*.txt",
        "",
    ]
    for name, where, why, calls in explanations(results):
        lines.append(f"- `{name}` ({calls} calls), `{where}`: {why}")
    lines += ["", "## Different", ""]
    for family in sorted({f for f, _ in results.values()}):
        for name, (of, outcome) in sorted(results.items()):
            if of == family and differing(outcome):
                lines.append(f"- `{name}` ({differing(outcome)} of {len(outcome)})")
                for n, line, dtypes in kinds(outcome)[:4]:
                    text = line[:200].replace("|", "\\|")
                    lines.append(f"    - {n} x `{text}` in {', '.join(sorted(dtypes))}")
    crashes = [
        f"- `{name}`, {call['group']}, {call['label']}"
        for name, (_, outcome) in sorted(results.items())
        for call, status, _, _ in outcome
        if status == "crash"
    ]
    lines += ["", "## Where the peer crashes or takes too long, and Facula does not", "", *crashes]
    absent = sorted(n for n, (_, outcome) in results.items() if all(s == "none" for _, s, _, _ in outcome))
    lines += ["", "## Without a twin", "", " ".join(f"`{n}`" for n in absent)]
    return "\n".join(lines) + "\n"


def identity(name, call):
    return f"{name} {call['group']} {call['form']}: {call['label']}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="", help="a regular expression that full names must match as a whole")
    p.add_argument("--dtypes", default="", help="only these, with commas between")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=20, help="seconds for one call")
    p.add_argument("--lines", type=int, default=6, help="kinds of difference printed of an operator")
    p.add_argument("--all", action="store_true", help="print every difference")
    p.add_argument("--replay", help="a recording to replay, instead of asking the peer")
    p.add_argument("--again", action="store_true", help="add the peer's other answers to that recording")
    p.add_argument("--keep", help="where to keep the recording")
    p.add_argument("--part", help="where to put a part of the recording, for the ordinary tests")
    p.add_argument("--report", help="the file to write, in Markdown")
    p.add_argument("--open", help="a file to write the differences left into, by family")
    p.add_argument("--unused", action="store_true", help="print the declared differences that no call shows")
    p.add_argument("--differing", help="a file to write the numbers of calls into that are not equal")
    p.add_argument("--known", help="a file with the calls that differ so far: only others count")
    p.add_argument("--write-known", action="store_true", help="write that file")
    a = p.parse_args()
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        recording = a.replay or a.keep or f"{folder}/edges.zip"
        if not a.replay:
            n = write_calls(f"{folder}/calls.zip", a.only, a.dtypes.split(",") if a.dtypes else None)
            print(f"{n} calls derived in {time.time() - started:.0f} s", flush=True)
            answer(f"{folder}/calls.zip", recording, a)
        started = time.time()
        results = replayed(recording, a)
        if a.again or not a.replay:
            answer_elsewhere(recording, results, folder, a)
        if a.part:
            write_part(recording, a.part, whole=not a.only)
    seconds = time.time() - started
    if a.differing:
        Path(a.differing).write_text(json.dumps(not_equal(results)))
    print_differences(results, a)
    lines, everything = table(results)
    print("\n".join(lines))
    print(closing_line(everything, seconds))
    if a.unused:
        print("\n".join(["declared differences that no call shows:", *unused(results)]))
    if a.open:
        Path(a.open).write_text("\n".join([*lines, "", *by_family(results, a.lines)]) + "\n")
    if a.report:
        Path(a.report).write_text(report(results, seconds))
    return conclude(results, everything, a)


def replayed(recording, a, which=None):
    return {n: (family, o) for n, family, o in replay(recording, a.jobs, a.limit, a.only, which)}


def print_differences(results, a):
    for name, (_, outcome) in results.items():
        if a.all:
            open_ones = (lines for _, status, lines, _ in outcome if status == "different")
            lines = [f"{name}: {n} x {line}" for found in open_ones for line, n in found.items()]
        else:
            lines = summary(name, outcome, a.lines) if not (a.open or a.report or a.known) else []
        for line in lines:
            print(line)


def answer(questions, recording, a, more=(), environment=None):
    command = [PEER, HERE / "answer.py", questions, recording, "--jobs", str(a.jobs), "--limit", str(a.limit)]
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([*command, *more], check=True, env={**kept, **(environment or {})})


def not_equal(results):
    """Numbers of the calls whose answer is none of the peer's that are there, by operator."""
    out = {
        name: [k for k, x in enumerate(outcome) if x[1] in ("explained", "different")]
        for name, (_, outcome) in results.items()
    }
    return {name: numbers for name, numbers in out.items() if numbers}


def answer_elsewhere(recording, results, folder, a):
    """Asks the peer in other ways about the calls that it does not answer as we do, and judges them again."""
    ours = not_equal(results)
    asked = dict(ours)
    if a.part:  # the part is replayed with narrower vectors as well
        narrower = f"{folder}/narrower.json"
        command = [sys.executable, __file__, "--replay", recording, "--only", a.only, "--jobs", str(a.jobs)]
        subprocess.run(
            [*command, "--differing", narrower, "--report", os.devnull],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "FACULA_CPU_CAPABILITY": "avx2"},
        )
        for name, numbers in json.loads(Path(narrower).read_text()).items():
            asked[name] = sorted({*numbers, *asked.get(name, ())})
    Path(f"{folder}/again.json").write_text(json.dumps(asked))
    for processor, environment in PROCESSORS.items():
        larger = f"{folder}/larger.zip"
        more = ("--again", f"{folder}/again.json", "--processor", processor)
        answer(recording, larger, a, more, environment)
        shutil.copyfile(larger, recording)
    for name, (_, outcome) in replayed(recording, a, ours).items():
        for k, x in zip(ours[name], outcome):
            results[name][1][k] = x


def conclude(results, everything, a):
    """The exit status: 1 if anything differs that is neither declared nor known, or if no call of all shows
    what is declared.
    """
    if not a.known:
        shown_by_none = [] if a.only or a.dtypes else unused(results)
        if shown_by_none:
            print("Declared in tests/edges/*.txt, but no call shows it:", *shown_by_none, sep="\n")
        return everything["different"] > 0 or bool(shown_by_none)
    left = {
        identity(name, call): lines
        for name, (_, outcome) in results.items()
        for call, status, lines, _ in outcome
        if status == "different"
    }
    known = Path(a.known)
    if a.write_known:
        known.write_text("".join(f"{n}\n" for n in [HEADER, *sorted(left)]))
    listed = set(known.read_text().splitlines()) - {HEADER}
    print(f"{len(left)} calls differ; {len(listed)} are listed in {known.name}, which only shrinks")
    for n in sorted(set(left) - listed):
        print(f"{n}: {next(iter(left[n]), 'refused')}")
    for n in sorted(listed - set(left))[:20]:
        print(f"{n} is listed and does not differ: take it out (--write-known)")
    return bool(set(left) - listed)


if __name__ == "__main__":
    sys.exit(main())
