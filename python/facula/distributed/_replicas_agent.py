"""The agent of a node whose processes are replicas (``facula.distributed.elastic.Replicas``): the others go
on when one fails, which is started again alone. The nodes do not meet: each starts its processes, and these
meet at the store of the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from ._agent import Agent, ChildFailedError, _Child, _Round
from ._presence import Presence
from ._stores import DistNetworkError, DistStoreError, PrefixStore

__all__ = ["ReplicasAgent"]


class ReplicasAgent(Agent):
    """Starts the processes of this node, and those that fail again."""

    def _run_rounds(self) -> dict[int, int]:
        """Runs until no process is left. Raises ChildFailedError if none of this node has succeeded."""
        c, s = self.config, PrefixStore("replicas", self.shared)
        node = s.add("joined", 1) - 1
        if c.rdzv_backend.startswith("etcd"):
            self._serve_processes(s, node)
        place = _Round(0, node, [c.nproc_per_node] * max(c.min_nodes, node + 1), *self.master)
        present = Presence(s, node, max(c.max_nodes, node + 1), "torchrun", "node", "the job had ended")
        self._meeting, self._restarts = False, 0
        self._start(place)
        running, done = list(self.children), {}
        while running:
            time.sleep(min(0.02, c.monitor_interval))
            if self.signal is not None:
                self._stop(self.signal)
                raise SystemExit(128 + self.signal)
            for child in list(running):
                self._recorders.look(child.process.pid)
                code = child.process.poll()
                if code is None:
                    continue
                running.remove(child)
                if code:
                    running += self._again(place, child, s)
                else:
                    done[child.rank] = 0
                    s.set("finished", "1")
        if not done:
            raise ChildFailedError(self._program(), self._causes())
        self._wait_for_nodes(s, present)
        return done

    def _again(self, place: _Round, failed: _Child, s: PrefixStore) -> list[_Child]:
        """Starts a process in the place of one that has failed, unless that happened too often or others have
        reached the end.
        """
        self.failures.append(self._failure_of(failed))
        print(self._verdict([failed]), file=sys.stderr)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(failed.process.pid, signal.SIGKILL)  # processes that it started
        if self._restarts >= self.config.max_restarts or s.check(["finished"]):
            return []
        self._restarts += 1
        text = f"local rank {failed.local_rank} is started again alone"
        print(
            f"[facula.distributed.run] {text}, {self._restarts} of {self.config.max_restarts}",
            file=sys.stderr,
        )
        child = self._started(place, failed.local_rank, self._restarts)
        self.children[self.children.index(failed)] = child
        return [child]

    def _wait_for_nodes(self, s: PrefixStore, present: Presence) -> None:
        """Waits until the other nodes have ended or are gone, if this one serves their store."""
        with contextlib.suppress(DistNetworkError, DistStoreError):
            s.add("ended", 1)
            while self._served is not None and s.add("ended", 0) + len(present.lost()) < s.add("joined", 0):
                time.sleep(0.05)
            present.leave()
