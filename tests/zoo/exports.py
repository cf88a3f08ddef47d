"""Exports published models with a dynamic batch, on Facula and on its peer. Run by `make export ARGS=--zoo`.

    python tests/zoo/exports.py [--only REGEX] [--missing] [--peer] [--report build/exports.md]

The models are those of models.txt and the programs of bench/programs.py.

A model passes if its exported program, loaded from its file (by C++ as well), gives the model's outputs for
batches of 1, 2 and 3 within 1e-5 of the largest element. The report keeps the rows of earlier runs for models
that are not run, and the peer's results where --peer asks for them.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import run as zoo

EXPORT = Path(__file__).with_name("export_model.py")
TOLERANCE = 1e-5
HEAD = "| library | model | result | nodes | export | peer | peer's export | |"


def exported(interpreter, path, line, folder):
    """The row that export_model.py prints."""
    text, failure = zoo.output(interpreter, path, EXPORT, *line.split(maxsplit=1), folder)
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"failure": failure or "no result", "stage": "start"}


def result(row):
    if "failure" in row:
        return "fails"
    if not row["error"] <= TOLERANCE:
        return "differs"
    return "equal" if row["one"] else "not one"


def cells(ours, theirs):
    """The cells of a model's row after its name."""
    detail = f"{ours['stage']}: {ours['failure']}" if "failure" in ours else ""
    detail = f"error {ours['error']:.0e}" if result(ours) == "differs" else detail
    seconds = [f"{r['export']:.2f}" if "export" in r else "" for r in (ours, theirs)]
    peer = result(theirs) if theirs else ""
    return [result(ours), str(ours.get("nodes", "")), seconds[0], peer, seconds[1], detail.replace("|", "/")]


def recorded(report):
    rows = {}
    for line in report.read_text().splitlines() if report and report.exists() else ():
        if line.startswith("| ") and line != HEAD:
            _, library, name, *rest, _ = (cell.strip() for cell in line.split("|"))
            rows[f"{library} {name}"] = rest
    return rows


def summary(rows):
    passed = sum(row[0] == "equal" for row in rows)
    peers = [row[3] for row in rows if row[3]]
    ratios = [float(row[2]) / float(row[4]) for row in rows if row[2] and row[4]]
    text = f"{passed} of {len(rows)} models export with a dynamic batch that may be 1"
    text += f"; the peer's: {sum(p == 'equal' for p in peers)} of {len(peers)}" if peers else ""
    if ratios:
        mean = zoo.np.exp(zoo.np.mean(zoo.np.log(ratios)))
        text += f"; time of export, geometric mean of {len(ratios)}: {mean:.3f}x the peer's"
    return text


def write(report, lines, rows):
    rows = {line: rows[line] for line in lines if line in rows}
    text = [
        "# Exported models",
        "",
        "Written by `make export ARGS=--zoo`: published models, unmodified, and the programs of",
        "bench/programs.py, in eval mode, exported with a dynamic batch, saved, loaded (on Facula by C++",
        "too) and run with batches of 1, 2 and 3. *equal*:",
        "within 1e-5 of the model's outputs; *not one*: equal, but a batch of one is refused. Seconds of",
        "export.",
        "",
        summary(rows.values()) + ".",
        "",
        HEAD,
        "|---|---|---|---|---|---|---|---|",
    ]
    text += [f"| {' | '.join([*line.split(maxsplit=1), *row])} |" for line, row in rows.items()]
    report.write_text("\n".join(text) + "\n")


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="only models without a passed row")
    parser.add_argument("--peer", action="store_true", help="run the peer too")
    parser.add_argument("--report", type=Path)
    a = parser.parse_args(arguments)
    sys.path.insert(0, str(zoo.ROOT / "bench"))
    from programs import PROGRAMS

    lines = [n for n in EXPORT.with_name("models.txt").read_text().splitlines() if not n.startswith("#")]
    lines += [f"program {name}" for name in PROGRAMS]
    rows = recorded(a.report)
    chosen = [line for line in lines if re.search(a.only, line)]
    if a.missing:
        chosen = [line for line in chosen if line not in rows or rows[line][0] != "equal"]
    with tempfile.TemporaryDirectory() as temporary:
        stand_in = Path(temporary, "path")  # torchvision's stand-in, without the name torch
        stand_in.mkdir()
        (stand_in / "torchvision").symlink_to(zoo.PACKAGE / "_alias" / "path" / "torchvision")
        for line in chosen:
            with tempfile.TemporaryDirectory() as folder:
                ours = exported(zoo.ALIAS, [*zoo.ALIAS_PATH, zoo.ROOT / ".zoo"], line, folder)
                theirs = exported(zoo.PEER, [zoo.ROOT / ".zoo", stand_in], line, folder) if a.peer else {}
            rows[line] = cells(ours, theirs)
            print(f"{line}: {' '.join(rows[line])}", flush=True)
            if a.report:  # after each: an interrupted run loses nothing
                write(a.report, lines, rows)
    print(summary([rows[line] for line in chosen]))


if __name__ == "__main__":
    main()
