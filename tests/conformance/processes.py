"""Work in processes of their own, which may crash or hang: what answers the calls of an operator, on either
side of a comparison.
"""

import json
import os
import select
import signal
import sys
import time


def start(work, name, done):
    """A process that writes the answers of work(name, done) into a pipe, a line each."""
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return pid, out
    try:
        os.close(out)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        with os.fdopen(into, "w") as f:
            try:
                for answer in work(name, done):
                    f.write(json.dumps(answer) + "\n")
                    f.flush()
                f.write("end\n")
            except Exception as e:  # noqa: BLE001  a fault of `work` itself: told, not lost
                f.write(json.dumps({"crash": f"{type(e).__name__}: {e}"}) + "\nagain\n")
    finally:
        os._exit(0)


def run(work, names, jobs, limit):
    """Yields (name, answers): all that `work(name, done)` yields, `done` of which are there already. Where a
    process dies, or gives no answer for `limit` seconds, {"crash": why} stands for the answer it was at and
    another goes on behind it.
    """
    waiting, running = [(name, []) for name in names], {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, answers = waiting.pop(0)
            pid, out = start(work, name, len(answers))
            running[out] = [name, answers, pid, time.time(), b""]
        ready, _, _ = select.select(list(running), [], [], 1)
        for out in list(running):
            task = running[out]
            name, answers, pid, since, rest = task
            why = None
            if out in ready:
                piece = os.read(out, 1 << 20)
                *lines, task[4] = (rest + piece).split(b"\n")
                task[3] = time.time()
                finished = bool(lines) and lines[-1] == b"end"
                failed = bool(lines) and lines[-1] == b"again"
                answers += [json.loads(line) for line in lines if line not in (b"end", b"again")]
                if not piece and not finished:
                    why = "the process ended"
            else:
                finished = failed = False
                if time.time() - since > limit:
                    os.kill(pid, signal.SIGKILL)
                    why = f"took more than {limit:g} s"
            if not finished and not failed and why is None:
                continue
            os.close(out)
            del running[out]
            _, status = os.waitpid(pid, 0)
            if finished:
                yield name, answers
                continue
            if os.WIFSIGNALED(status) and why == "the process ended":
                why += f" with signal {os.WTERMSIG(status)}"
            if not failed:
                answers.append({"crash": why})
            waiting.insert(0, (name, answers))
