"""Programs that other people wrote, unmodified, with Facula and with its peer.

    python tests/programs/run.py [--only REGEX] [--offline] [--missing] [--report FILE] [--jobs N]

programs.toml lists repositories, commits and command lines with small settings. Each library runs a program
in a fresh work tree (sources.py) with small data (data.py) and the same random numbers, which
site/sitecustomize.py draws. What the two runs print is compared, numbers within a tolerance. ``--offline``
runs the programs that need no clone.
"""

import argparse
import concurrent.futures
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import sources

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER = Path(os.environ.get("FACULA_PEER", ROOT / ".peer" / "bin" / "python"))
PACKAGES = Path(os.environ.get("FACULA_PROGRAM_PACKAGES", ROOT / ".programs"))
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
PASSED = ("equal", "runs")


@dataclass
class Program:
    """One command line of the list; a setting's name is its key in programs.toml."""

    title: str
    run: str  # the arguments of Python; several commands, one a line, run one after another
    repository: str = ""  # empty: a program of an installed package, or of this repository
    commit: str = ""
    folder: str = "."  # in which it runs
    under: list[str] = field(
        default_factory=list
    )  # the paths of the repository that it needs; all of them if empty
    path: list[str] = field(default_factory=list)  # folders of the repository that Python imports from
    data: list[str] = field(default_factory=list)  # calls of data.py, relative to the folder
    settings: dict[str, str] = field(default_factory=dict)  # environment variables
    steps: int = 0  # of all its optimizers, after which it ends; 0: it ends by itself
    ignore: str = ""  # a regular expression: printed text that is not compared
    random: str = ""  # why its numbers are not compared
    tolerance: float = 1e-3
    minutes: float = 5


@dataclass
class Outcome:
    status: int | None  # None: more than the minutes
    output: str
    errors: str

    def failure(self):
        if self.status == 0:
            return None
        lines = [line for line in self.errors.strip().splitlines() if line.strip()]
        return "takes too long" if self.status is None else (lines or [f"exit status {self.status}"])[-1]


def programs():
    listed = []
    for repository in tomllib.loads((HERE / "programs.toml").read_text())["repository"]:
        common = {k: v for k, v in repository.items() if k not in ("name", "program")}
        if "commit" in repository:
            common["repository"] = repository["name"]
        for entry in repository["program"]:
            entry = common | entry
            entry["title"] = f"{repository['name']} {entry.get('title', entry.get('folder', ''))}".strip()
            listed.append(Program(**entry))
    return listed


def environment(program, tree, paths):
    path = [HERE / "site", *paths, *(tree / p for p in program.path), PACKAGES]
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("FACULA_PROGRAM")},
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore",
        "PROGRAM_NUMBERS": "1",
        "PROGRAM_STEPS": str(program.steps),
        "MPLBACKEND": "Agg",
        "OMP_WAIT_POLICY": "passive",
        "TQDM_DISABLE": "1",
        "WANDB_MODE": "disabled",
        "HF_HUB_OFFLINE": "1",
        "YOLO_CONFIG_DIR": str(tree),
        "YOLOV5_CONFIG_DIR": str(tree),
        "YOLO_OFFLINE": "true",
        **program.settings,
    }


def run_command(command, folder, variables, seconds):
    """An Outcome. What the command starts ends with it."""
    process = subprocess.Popen(
        command, cwd=folder, env=variables, text=True, errors="replace", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        status = None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if status is None:
        output, errors = process.communicate()
    return Outcome(status, output, errors)


def run_program(program, interpreter, paths):
    """The Outcome of a program in a fresh work tree."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary, "tree")
        tree.mkdir()
        if program.repository:
            clone = sources.git_directory(program.repository, sources.CLONES)
            sources.write_tree(clone, program.commit, tree, program.under)
        else:
            for path in program.under:
                shutil.copytree(ROOT / path, tree / path)
            (tree / program.folder).mkdir(parents=True, exist_ok=True)
        folder, variables = tree / program.folder, environment(program, tree, paths)
        maker = {**variables, "PROGRAM_NUMBERS": "", "PYTHONPATH": str(PACKAGES)}
        for line in program.data:
            made = run_command([PEER, HERE / "data.py", *shlex.split(line)], folder, maker, 60)
            if made.status != 0:
                raise RuntimeError(f"data.py {line}: {made.errors}")
        total = Outcome(0, "", "")
        for line in program.run.strip().splitlines():
            done = run_command([*interpreter, *shlex.split(line)], folder, variables, 60 * program.minutes)
            total = Outcome(done.status, total.output + done.output, total.errors + done.errors)
            if done.status != 0:
                break
        return Outcome(total.status, total.output.replace(temporary, ""), total.errors.replace(temporary, ""))


def parts(program, output):
    """Text between numbers, and the numbers, of what is compared."""
    if program.ignore:
        output = re.sub(program.ignore, "", output)
    output = "\n".join(line.rstrip() for line in output.splitlines() if line.strip())
    return NUMBER.split(output), NUMBER.findall(output)


def apart(a, b, tolerance):
    """Do two printed numbers differ by more than the tolerance and the last digit that is printed?"""
    x, y = float(a), float(b)
    if x == y or (x != x and y != y):
        return False
    digits = min(len(text.partition("e")[0].partition(".")[2]) for text in (a, b))
    exponent = int(a.lower().partition("e")[2] or 0)
    last = 2 * 10.0 ** (exponent - digits) if "." in a else 0
    return not abs(x - y) <= tolerance * max(abs(x), abs(y)) + last


def compare(program, ours, theirs):
    """Status and detail."""
    if failure := theirs.failure():
        return "peer fails", failure
    if failure := ours.failure():
        return "fails", failure
    if program.random:
        return "runs", program.random
    (text, numbers), (text_there, numbers_there) = parts(program, ours.output), parts(program, theirs.output)
    if text != text_there:
        k = next(
            (k for k, pair in enumerate(zip(text, text_there)) if pair[0] != pair[1]),
            min(len(text), len(text_there)),
        )
        mine, other = ((t[k] if k < len(t) else "the end").strip()[:60] for t in (text, text_there))
        return "differs", f"prints {mine!r} where the peer prints {other!r}"
    pairs = list(zip(numbers, numbers_there))
    wrong = [pair for pair in pairs if apart(*pair, program.tolerance)]
    if wrong:
        return (
            "differs",
            f"{len(wrong)} of {len(pairs)} numbers, first {wrong[0][0]} where the peer has {wrong[0][1]}",
        )
    return "equal", f"{len(pairs)} numbers"


def measure(program):
    import facula

    package = Path(facula.__file__).parent
    theirs = run_program(program, [PEER], [])
    if theirs.status != 0:
        return *compare(program, theirs, theirs), theirs, theirs
    ours = run_program(program, [sys.executable, "-m", "facula.torch"], [package.parent])
    return *compare(program, ours, theirs), ours, theirs


def recorded(report):
    """The rows of an earlier report."""
    rows = {}
    for line in report.read_text().splitlines() if report and report.exists() else ():
        if line.startswith("| ") and not line.startswith("| program "):
            title, status, detail = (cell.strip() for cell in line.strip("| ").split(" | ", 2))
            rows[title] = status, detail
    return rows


def in_words(counts):
    return ", ".join(f"{n} {status}" for status, n in counts.most_common())


def write(report, listed, results):
    rows = [(p.title, *results[p.title]) for p in listed if p.title in results]
    counts = Counter(status for _, status, _ in rows)
    text = [
        "# Programs",
        "",
        "Written by `make programs`: programs that other people wrote, unmodified, behind",
        "`python -m facula.torch` and with PyTorch, with the same small data and the same random numbers.",
        "*equal*: both print the same text, and numbers within 1e-3 or the tolerance that the list gives;",
        "*runs*: its numbers cannot be compared, for the reason given. `tests/programs/programs.toml` lists",
        "repositories, commits and command lines. Each row is of the program's last run.",
        "",
        f"{len(rows)} of {len(listed)} programs were run: {in_words(counts)}.",
        "",
        "| program | result | |",
        "|---|---|---|",
        *(f"| {title} | {status} | {detail.replace('|', '/')} |" for title, status, detail in rows),
    ]
    report.write_text("\n".join(text) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="a regular expression that titles are searched for")
    parser.add_argument("--offline", action="store_true", help="only programs that need no clone")
    parser.add_argument(
        "--missing", action="store_true", help="only programs that the report has not as passed"
    )
    parser.add_argument("--report", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="a folder for what the programs print")
    a = parser.parse_args()
    listed, results = programs(), recorded(a.report)
    chosen = [p for p in listed if re.search(a.only, p.title) and not (a.offline and p.repository)]
    if a.missing:
        chosen = [p for p in chosen if results.get(p.title, ("",))[0] not in PASSED]
    if a.logs:
        a.logs.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        waiting = {pool.submit(measure, p): p for p in chosen}
        for done in concurrent.futures.as_completed(waiting):
            title = waiting[done].title
            status, detail, ours, theirs = done.result()
            results[title] = status, detail
            print(f"{title}: {status}; {detail}", flush=True)
            if a.logs:
                log = a.logs / re.sub(r"\W+", "_", title)
                log.with_suffix(".ours").write_text(ours.output + "\n---- errors\n" + ours.errors)
                log.with_suffix(".theirs").write_text(theirs.output + "\n---- errors\n" + theirs.errors)
            if a.report:  # after each: an interrupted run loses nothing
                write(a.report, listed, results)
    counts = Counter(results[p.title][0] for p in chosen)
    print(f"{len(chosen)} programs: {in_words(counts)}")
    return any(results[p.title][0] not in PASSED for p in chosen)


if __name__ == "__main__":
    sys.exit(main())
