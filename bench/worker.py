"""Times programs with one library, controlled by JSON objects on its standard input.

python worker.py LIBRARY          serve: {"prepare": {...}}, then {"round": seconds} any number of times
python worker.py LIBRARY --cold   one {"prepare": {...}}; answers with the seconds of its first run, or
                                  with the number of bytes by which its runs made the process grow
"""

import importlib
import json
import os
import statistics
import sys
import time

from rows import PROLOGUE

clock = time.perf_counter
BATCHES = 9  # batches of a round: a short disturbance affects one or two


def names_of(library, setup: str) -> dict:
    names = {"torch": library}
    exec(PROLOGUE, names)
    exec(setup, names)
    return names


def equalize(names: dict) -> None:
    """Sets the weights of a program's model, if it has one, to those of the other library."""
    if "model" in names:
        names["equalize"](names["model"])


def numbers(check: str | None, names: dict) -> list[float] | None:
    if not check:
        return None
    value = eval(check, names)
    if isinstance(value, list):
        return [float(x) for x in value]
    return [float(value.detach() if hasattr(value, "detach") else value)]


class Program:
    """A statement in a loop, compiled once. `more` runs once the weights are equal."""

    def __init__(self, library, setup: str, statement: str, more: str = ""):
        self.names = names_of(library, setup)
        equalize(self.names)
        exec(more, self.names)
        # A function, like that of timeit: local variables, including the names that the statement uses, are
        # fast.
        used = [n for n in self.names if not n.startswith("__") and n.isidentifier()]
        head = f"def run(_count, {', '.join(f'{n}={n}' for n in used)}):\n    for _ in range(_count):\n"
        exec(head + "        " + statement, self.names)
        self.run = self.names["run"]

    def seconds(self, count: int) -> float:
        start = clock()
        self.run(count)
        return clock() - start

    def rate(self, seconds: float) -> tuple[float, int]:
        """Returns the seconds of one statement, the median of batches over about that time, and its
        number of runs.
        """
        count, spent = 1, self.seconds(1)
        while spent < seconds / 10 and spent * 10 < seconds:
            count *= 4
            spent = self.seconds(count)
        total = max(1, int(count * seconds / max(spent, 1e-9)))
        batches = min(BATCHES, total)
        count = total // batches
        return statistics.median(self.seconds(count) for _ in range(batches)) / count, count * batches


def versions(library) -> dict:
    names = {"torch": "PyTorch", "facula": "Facula"}
    version = library.__version__.split("+")[0]
    return {"name": names[library.__name__], "version": version, "python": sys.version.split()[0]}


def serve(library, ask, answer) -> None:
    program = None
    for task in ask:
        try:
            if "prepare" in task:
                p, program = task["prepare"], None
                library.set_num_threads(p["threads"])
                program = Program(library, p["setup"], p["statement"], p.get("more", ""))
                check = numbers(p["check"], program.names) if p["fresh"] else None
                program.run(3)
                answer({"check": check or numbers(p["check"], program.names)})
            else:
                program.run(1)  # the other process ran meanwhile: wakes the threads and warms the caches
                seconds, count = program.rate(task["round"])
                answer({"seconds": seconds, "count": count})
        except Exception as error:  # noqa: BLE001  (reported as the row's result)
            answer({"error": f"{type(error).__name__}: {error}".splitlines()[0]})


def resident(line: str) -> int:
    """Returns the bytes of this process in memory: now ("VmRSS"), or at the peak ("VmHWM")."""
    with open("/proc/self/status") as status:
        return next(int(text.split()[1]) * 1024 for text in status if text.startswith(line + ":"))


def growth(run, count: int) -> int:
    """Returns the maximum growth of the process while `run` runs `count` times."""
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")  # resets the peak to the present size
    before = resident("VmRSS")
    for _ in range(count):
        run()
    return resident("VmHWM") - before


def cold(name: str, task: dict, answer) -> None:
    p = task["prepare"]
    if not p["imports"]:
        importlib.import_module("numpy")  # provides numbers for both libraries
    start = clock()
    library = importlib.import_module(name)
    if p["imports"]:
        exec(p["statement"], {"torch": library})
        answer({"value": clock() - start})
        return
    library.set_num_threads(p["threads"])
    if p["steps"]:
        program = Program(library, p["setup"], p["statement"], p.get("more", ""))
        answer({"value": growth(lambda: program.run(1), p["steps"])})
        return
    start = clock()
    names = names_of(library, p["setup"])
    import_time = clock() - start
    equalize(names)
    if p["checks"]:
        answer({"check": numbers(p["check"], names)})
        return
    start = clock()
    exec(p["statement"], names)
    answer({"value": clock() - start + import_time * (not p["prepared"])})


def main() -> None:
    name = sys.argv[1]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a library must not become an answer

    def answer(value: dict) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    tasks = (json.loads(line) for line in sys.stdin)
    if "--cold" in sys.argv:
        try:
            cold(name, next(tasks), answer)
        except Exception as error:  # noqa: BLE001
            answer({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        return
    try:
        library = importlib.import_module(name)
    except ImportError as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer(versions(library))
    serve(library, tasks, answer)


if __name__ == "__main__":
    main()
