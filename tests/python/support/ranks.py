"""Runs a function in several processes that form a group."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import facula

TIMEOUT = 120  # seconds


def _main(folder, rank, size):
    import importlib

    import facula.distributed as dist

    sys.path[:0] = [str(Path(__file__).parents[1])]
    name, function, args, init = pickle.loads(Path(folder, "call").read_bytes())
    call = getattr(importlib.import_module(name), function)
    try:
        if init:
            limit = timedelta(seconds=TIMEOUT / 2)
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=limit
            )
        answer = ("result", call(rank, *args))
        if init and dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:
        answer = ("error", type(error).__name__, str(error), traceback.format_exc())
    Path(folder, f"answer.{rank}.new").write_bytes(pickle.dumps(answer))
    os.rename(Path(folder, f"answer.{rank}.new"), Path(folder, f"answer.{rank}"))


def outcomes(size, function, *args, init=True, environment=None):
    """Calls ``function(rank, *args)`` in ``size`` processes; returns ("result", value), ("error", type, text,
    traceback) or ("ended", status) of each.
    """
    with tempfile.TemporaryDirectory() as folder:
        module = Path(sys.modules[function.__module__].__file__).stem
        Path(folder, "call").write_bytes(pickle.dumps((module, function.__name__, args, init)))
        variables = {
            **os.environ,
            **(environment or {}),
            "PYTHONPATH": str(Path(facula.__file__).parents[1]),
            "OMP_NUM_THREADS": "1",
        }
        program = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r}); from support "
            "import ranks; ranks._main"
        )
        started = [
            subprocess.Popen([sys.executable, "-c", f"{program}({folder!r}, {r}, {size})"], env=variables)
            for r in range(size)
        ]
        try:
            for process in started:
                process.wait(TIMEOUT)
        finally:
            for process in started:
                process.kill()
                process.wait()
        return [
            pickle.loads(path.read_bytes())
            if (path := Path(folder, f"answer.{r}")).exists()
            else ("ended", started[r].returncode)
            for r in range(size)
        ]


def results(size, function, *args, **options):
    """The results of ``function(rank, *args)``; raises if a process failed."""
    answers = outcomes(size, function, *args, **options)
    for rank, answer in enumerate(answers):
        assert answer[0] == "result", f"rank {rank}: {answer[-1]}"
    return [answer[1] for answer in answers]
