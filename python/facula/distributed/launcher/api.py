"""Starts programs, or functions, as the processes of a job."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from .._agent import Agent, LaunchConfig

__all__ = ["LaunchConfig", "elastic_launch"]

_CHILD = (
    "import os, pickle, sys; f = open(sys.argv[1], 'rb'); sys.path[:] = pickle.load(f); call, args = "
    "pickle.load(f); "
    "result = call(*args); out = open(sys.argv[1] + '.' + os.environ['RANK'], 'wb'); pickle.dump(result, "
    "out); out.close()"
)


class elastic_launch:
    """Called with arguments, runs the program or the function in each process; a function's results are
    returned by rank.
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        entry = self._entrypoint
        if isinstance(entry, str) or entry is None:
            command = [str(entry or sys.executable), *map(str, args)]
            return dict(Agent(self._config, command).run())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "call")
            with open(path, "wb") as file:
                pickle.dump(sys.path, file)
                pickle.dump((entry, args), file)
            ranks = Agent(self._config, [sys.executable, "-u", "-c", _CHILD, path]).run()
            results = {}
            for rank in ranks:
                with open(f"{path}.{rank}", "rb") as file:
                    results[rank] = pickle.load(file)
            return results
