"""Runs a function in several processes that form a group. The processes are forks of this one."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

TIMEOUT = 240  # seconds; the machine may be busy
# Seconds within which something happens that does not wait for a timeout, on a busy machine as well. How soon
# it happens on an idle one is measured by tests/distributed/hosts.py.
SOON = TIMEOUT / 8


def _run_rank(folder, rank, size, function, args, init, environment):
    import facula
    import facula.distributed as dist

    os.environ |= environment
    facula.set_num_threads(1)
    try:
        if init:
            limit = timedelta(seconds=TIMEOUT / 2)
            method = f"file://{folder}/store"
            dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size, timeout=limit)
        answer = ("result", function(rank, *args))
        if init and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:
        answer = ("error", type(error).__name__, str(error), traceback.format_exc())
    Path(folder, f"answer.{rank}.new").write_bytes(pickle.dumps(answer))
    os.rename(Path(folder, f"answer.{rank}.new"), Path(folder, f"answer.{rank}"))


def _fork(folder, rank, *rest):
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        try:
            _run_rank(folder, rank, *rest)
            sys.stderr.flush()
        finally:
            os._exit(0)
    return pid


def outcomes(size, function, *args, init=True, environment=None):
    """Calls ``function(rank, *args)`` in ``size`` processes; returns ("result", value), ("error", type, text,
    traceback) or ("ended", status) of each.
    """
    with tempfile.TemporaryDirectory() as folder:
        pids = [_fork(folder, r, size, function, args, init, environment or {}) for r in range(size)]
        left, codes, end = set(pids), {}, time.monotonic() + TIMEOUT
        while left and time.monotonic() < end:
            for pid in list(left):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    left.discard(pid)
                    codes[pid] = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            codes[pid] = "late"
        return [
            pickle.loads(path.read_bytes())
            if (path := Path(folder, f"answer.{r}")).exists()
            else ("ended", codes[pid])
            for r, pid in enumerate(pids)
        ]


def results(size, function, *args, **options):
    """The results of ``function(rank, *args)``; raises if a process failed."""
    answers = outcomes(size, function, *args, **options)
    for rank, answer in enumerate(answers):
        assert answer[0] == "result", f"rank {rank}: {answer[-1]}"
    return [answer[1] for answer in answers]
