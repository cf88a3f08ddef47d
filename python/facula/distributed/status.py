"""Shows what the ranks of a running job do: ``python -m facula.distributed.status [PID]``.

It reads the shared memory of the groups of a process (without a PID, of every process of this user), so that
it also shows a job that is stuck or stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from .. import _C

__all__ = ["main", "table"]


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _state(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        letter = file.read().rpartition(")")[2].split()[0]
        return {"T": "stopped", "Z": "dead", "t": "traced"}.get(letter, "alive")
    return "dead"


def memories_of_groups(pid: int) -> Iterator[tuple[int, str]]:
    """Yields the inode and a path of each group's memory that a process has open, an anonymous file. The path
    is invalid as soon as the process closes it.
    """
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            with contextlib.suppress(OSError):
                if "memfd:facula-group" in os.readlink(path):
                    yield os.stat(path).st_ino, path


def _inboxes(pid: int) -> list[dict[str, Any]]:
    """The groups of a process. A process that reads one has it open for a moment as well."""
    groups = {}
    for inode, path in memories_of_groups(pid):
        with contextlib.suppress(OSError, RuntimeError):
            groups[inode] = _C.read_group_memory(path)
    return list(groups.values())


def table(pids: list[int] | None = None) -> list[dict[str, Any]]:
    """Returns a row for each rank of each group: pid, state, group, rank, size, operations, and the one that
    it waits for.
    """
    rows = []
    for pid in _processes() if pids is None else pids:
        for facts in _inboxes(pid):
            if facts["pid"] == pid:
                rows.append({**facts, "state": _state(pid)})
    return sorted(rows, key=lambda r: (r["token"], r["rank"]))


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="facula.distributed.status", description="Shows the ranks of running jobs."
    )
    parser.add_argument("pid", nargs="*", type=int, help="processes; all of this user if none is given")
    options = parser.parse_args(args)
    rows = table(options.pid or None)
    if not rows:
        print("no process with a group of ranks", file=sys.stderr)
        sys.exit(1)
    print(f"{'job':8} {'rank':>4} {'pid':>8} {'state':8} {'done':>8} {'mean ms':>8}  doing")
    for r in rows:
        doing = (
            f"waits {r['waiting_s']:.1f} s in {r['operation']} at {r['site']}"
            if r["waiting"]
            else (f"after {r['operation']} at {r['site']}" if r["operation"] else "no collective yet")
        )
        print(
            f"{r['token'][:8]} {r['rank']:>4} {r['pid']:>8} {r['state']:8} {r['finished']:>8} "
            f"{r['mean_ms']:>8.3f}  {doing}"
        )


if __name__ == "__main__":
    main()
