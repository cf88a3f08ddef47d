"""Replicas: data-parallel training that goes on when processes fail, and takes in new ones.

The processes meet over a store that outlives each of them, such as that of the launcher. A meeting ends when
every process of the last group has come or was lost, and makes a group of those that are there and of the
new ones. Then all of them take the state of the process that has completed the most steps.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ... import _C, _queries
from ...nn.modules.module import Module
from ...nn.parallel.distributed import DistributedDataParallel
from .. import _groups
from .._collectives import all_gather_into_tensor, all_reduce
from .._constants import ReduceOp
from .._objects import broadcast_object_list
from .._rendezvous import rendezvous
from .._stores import DistError, HashStore, PrefixStore, Store, TCPStore, default_pg_timeout
from ..utils import _sync_module_states

__all__ = ["Replicas"]

POLL = 0.25  # seconds between two looks for new processes


class Replicas:
    """Trains ``module`` by as many processes as there are at each step. ``state`` are further objects with
    ``state_dict`` and ``load_state_dict``, such as the optimizer.

    ``run(step)`` calls ``step()``, which does one step of training with ``.module``, a
    DistributedDataParallel. If another process dies in it, or cannot be reached, the others do the step
    again, with the parameters, buffers and random numbers as they were. A process that comes later takes the
    state of one that has trained. ``steps`` is the number of completed steps, ``rank`` and ``size`` are those
    of the current step: ``step`` selects its part of the data by them.

    The processes meet at ``store``, or at that of the launcher
    (``python -m facula.distributed.run --replicas``). The first step waits for ``WORLD_SIZE`` of the
    environment, later ones for ``min_size`` processes. ``options`` are those of DistributedDataParallel.

    ``step`` has to do its collectives before it changes parameters, as backward does. RuntimeError is raised
    if no process is left whose parameters are those of a completed step. A failure without a loss of a
    process, such as a disagreement, is raised too.

    >>> from facula.distributed.elastic import Replicas
    >>> net = nn.Linear(2, 1)
    >>> replicas = Replicas(net, store=facula.distributed.HashStore())
    >>> replicas.run(lambda: replicas.module(facula.ones(1, 2)).sum().backward())
    >>> replicas.steps, replicas.rank, replicas.size
    (1, 0, 1)
    >>> replicas.close()
    """

    def __init__(
        self,
        module: Module,
        *state: Any,
        store: Store | None = None,
        min_size: int = 1,
        timeout: timedelta = default_pg_timeout,
        **options: Any,
    ) -> None:
        self.steps, self.rank, self.size = 0, 0, 0
        self._state, self._min_size, self._timeout = state, min_size, timeout
        self._first_size = int(os.environ.get("WORLD_SIZE", "1")) if store is None else min_size
        if store is None:
            store = next(rendezvous("env://", timeout=timeout))[0]
        server = getattr(store, "_underlying_non_prefix_store", store)
        if not isinstance(server, (TCPStore, HashStore)):
            raise ValueError(
                "Replicas: the processes have to meet at a TCPStore, whose server notices when one is lost; "
                f"got {type(server).__name__}"
            )
        self._store = PrefixStore("replicas", store)
        self._store.set_timeout(timeout)
        self._me = self._store.add("processes", 1) - 1
        self._place = int(os.environ.get("RANK", self._me))  # among processes that come to the same meeting
        self._store._apply("_hold", f"gone/{self._me}")
        self._meeting = 0
        self._members: list[int] = []
        self._lineage = 0  # a number that processes with the same history share
        self._torn = False  # the parameters are not those of a completed step
        self._looked = 0.0
        alone = _groups._group_alone()
        options = {"init_sync": False, **options}
        self.module = DistributedDataParallel(module, process_group=alone, **options)

    # ---- steps

    def run(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns the result of ``step(*args, **kwargs)``, done by all processes that are there."""
        if not self._members or self._others_wait():
            self._meet(None)
        while True:  # on all processes, the step is the first thing after a meeting
            before = self._saved()
            try:
                result = step(*args, **kwargs)
            except RuntimeError as error:
                if not self._group_has_failed():
                    raise
                self._restore(before)
                self._meet(error)
                continue
            self.steps += 1
            return result

    def close(self) -> None:
        """Leaves the others, who go on. Ends the default group."""
        self._store.set(f"gone/{self._me}", "left")
        self._store._apply("_drop", f"gone/{self._me}")
        self._members = []
        if _groups.is_initialized():
            _groups.destroy_process_group()

    def _group_has_failed(self) -> bool:
        group = _groups._world.default_pg
        return group is None or bool(group._failure())

    def _others_wait(self) -> bool:
        """Returns on all ranks whether a process waits to be taken in, for which the first rank looks."""
        now, waits = time.monotonic(), 0
        if self.rank == 0 and now - self._looked > POLL:
            self._looked = now
            waits = int(self._store.check([f"meeting/{self._meeting + 1}"]))
        if self.size == 1:
            return bool(waits)
        flag = _C.tensor([waits])
        try:
            all_reduce(flag, ReduceOp.MAX)
        except RuntimeError as error:
            if not self._group_has_failed():
                raise
            self._meet(error)
            return False
        return bool(flag.item())

    # ---- what a step may change before it fails

    def _versions(self) -> list[int]:
        return [p._version for p in self.module.parameters()]

    def _saved(self) -> tuple[Any, ...]:
        buffers = [b.detach().clone() for b in self.module.buffers()]
        return self._versions(), buffers, _queries.get_rng_state()

    def _restore(self, before: tuple[Any, ...]) -> None:
        versions, buffers, random = before
        self._torn = self._versions() != versions
        with _C.GradMode(False):
            for buffer, saved in zip(self.module.buffers(), buffers):
                buffer.copy_(saved)
        _queries.set_rng_state(random)

    # ---- meetings

    def _meet(self, cause: RuntimeError | None) -> None:
        """Makes a group of the processes that are there, which then have the same state. Raises ``cause`` if
        they are those of the last group.
        """
        while True:
            old = list(self._members)
            if _groups.is_initialized():
                _groups._abort_process_group()
            self._members = self._gathered(self._meeting + 1)
            self._meeting += 1
            if cause is not None and self._members == old:
                raise cause
            if self._me not in self._members:
                continue  # it came too late
            self.rank, self.size = self._members.index(self._me), len(self._members)
            try:
                _groups.init_process_group(
                    "gloo",
                    store=PrefixStore(f"group/{self._meeting}", self._store),
                    rank=self.rank,
                    world_size=self.size,
                    timeout=self._timeout,
                )
                self.module._rejoin(_groups._get_default_group())
                return self._share_state()
            except RuntimeError as error:
                if not self._group_has_failed():
                    raise
                cause = error

    def _gathered(self, number: int) -> list[int]:
        """Takes part in a meeting and returns its members, by their numbers, in the order of their ranks."""
        store, end = self._store, time.monotonic() + self._timeout.total_seconds()
        old = json.loads(store.get(f"members/{number - 1}")) if number > 1 else []
        store.append(f"meeting/{number}", f"{self._me}:{self._place} ")
        while not store.check([f"members/{number}"]):
            came = [entry.split(b":") for entry in store.get(f"meeting/{number}").split()]
            places = {int(k): int(place) for k, place in came}
            here = self._alive(list(places))
            complete = not [k for k in self._alive(old) if k not in here]
            if complete and len(here) >= (self._first_size if number == 1 else self._min_size):
                order = [k for k in old if k in here] + sorted(
                    (k for k in here if k not in old), key=lambda k: (places[k], k)
                )
                store.compare_set(f"members/{number}", "", json.dumps(order))
                break
            if time.monotonic() > end:
                raise DistError(
                    f"Replicas: {len(here)} processes came within {self._timeout}, and {self._min_size} are "
                    "needed"
                )
            store._pause(0.01)
        return [int(k) for k in json.loads(store.get(f"members/{number}"))]

    def _alive(self, processes: list[int]) -> list[int]:
        marks = {f"gone/{k}": k for k in processes}
        return [marks[m] for m in self._store._apply("_missing", *marks)] if marks else []

    # ---- state

    def _share_state(self) -> None:
        """Gives all ranks the state of the first one among those with the most steps."""
        own = _C.tensor([self._lineage, self.steps, int(self._torn)])
        table = _C.functions.empty(3 * self.size, dtype=own.dtype)
        all_gather_into_tensor(table, own)
        rows = [table.tolist()[3 * r : 3 * r + 3] for r in range(self.size)]
        intact = [r for r, row in enumerate(rows) if not row[2]]
        if not intact:
            raise RuntimeError(
                "Replicas: a process was lost after all others had changed parameters, so that no one has "
                "those of a completed step. Do the collectives of a step before optimizer.step()"
            )
        source = max(intact, key=lambda r: (rows[r][1], -r))
        if self._lineage and all(row == rows[source] for row in rows):
            return
        takes = self.rank != source and (rows[self.rank] != rows[source] or not self._lineage)
        self._torn = takes  # until it has everything
        _sync_module_states(self.module.module, _groups._get_default_group(), src=source)
        told: list[Any] = [None]
        if self.rank == source:
            lineage = self._lineage or secrets.randbits(62) + 1
            told = [(lineage, self.steps, [s.state_dict() for s in self._state])]
        broadcast_object_list(told, source)
        self._lineage, self.steps, states = told[0]
        for object, state in zip(self._state if takes else (), states):
            object.load_state_dict(state)
        self._torn = False
