"""Runs the archived suite of pytorch/torchdynamo with Facula, beside PyTorch. Run by `make dynamo-suite`.

The suite is fetched at the commit below; it imports a package torchdynamo, which is a shim of public names
here (site/torchdynamo). Of the tests that pass with PyTorch, counts those whose values are right, and of the
numbers of graphs that are right with PyTorch, those that are right.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "programs"))

import sources  # noqa: E402

REPOSITORY, COMMIT = "pytorch/torchdynamo", "91139261bb97c0b02306423d3b2f3cd88cae99bd"
MODULES = (
    "test_functions test_global test_misc test_modules test_repros test_unspec test_subgraphs "
    "test_model_output test_optimizers test_python_autograd test_recompile_ux"
).split()


def outcomes(interpreter: list[str], path: list[Path], folder: Path, modules: list[str]) -> dict[str, dict]:
    """Returns the row of each test."""
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary, "results")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [HERE / "site", *path]))}
        command = [*interpreter, str(HERE / "worker.py"), str(folder), str(results), *modules]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if not results.exists():
            raise SystemExit(done.stderr)
        rows = [json.loads(line) for line in results.read_text().splitlines()]
    if done.returncode:
        print(f"the tests ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return {row["test"]: row for row in rows}


def graphs(row: dict) -> list:
    return [c for c in row["counts"] if c[0] == "graphs"]


def compare(theirs: dict[str, dict], ours: dict[str, dict]) -> dict:
    names = [name for name, row in theirs.items() if row["passed"]]
    wrong = {n: ours.get(n, {}).get("error", "not run") for n in names if not ours.get(n, {}).get("passed")}
    counted, right, fewer, other = 0, 0, 0, []
    for name in names:
        if name in wrong:
            continue
        for t, o in zip(graphs(theirs[name]), graphs(ours[name])):
            if t[3]:
                counted, right = counted + 1, right + bool(o[3])
                fewer += not o[3] and 0 < o[1] < o[2]
                other += [] if o[3] else [f"{name}: {o[1]} graphs, expected {o[2]}"]
    return {
        "tests": len(names),
        "wrong": wrong,
        "counts": counted,
        "right": right,
        "fewer": fewer,
        "other": other,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--only", nargs="*", default=MODULES, help="modules of the suite")
    a = parser.parse_args()
    folder = ROOT / "build" / "dynamo-suite"
    if not (folder / "test").exists():
        directory = sources.git_directory(REPOSITORY, ROOT / ".clones")
        sources.write_tree(directory, COMMIT, folder, ["test"])
    tests = folder / "test" / "dynamo"
    peer = os.environ.get("FACULA_PEER", str(ROOT / ".peer" / "bin" / "python"))
    theirs = outcomes([peer, "-W", "ignore"], [], tests, a.only)
    package = [Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    ours = outcomes([sys.executable, "-W", "ignore", "-m", "facula.torch"], package, tests, a.only)
    r = compare(theirs, ours)
    for name, error in r["wrong"].items():
        print(f"{name}: {error.strip().splitlines()[-1] if error else ''}"[:200])
    print("\n".join(r["other"]))
    values = r["tests"] - len(r["wrong"])
    print(
        f"values: {values} of {r['tests']} tests that pass with PyTorch ({values / max(r['tests'], 1):.1%})"
    )
    share = r["right"] / max(r["counts"], 1)
    print(f"numbers of graphs: {r['right']} of {r['counts']} ({share:.1%}); {r['fewer']} others are smaller")
    if a.report:
        a.report.write_text(json.dumps(r, indent=1))


if __name__ == "__main__":
    main()
