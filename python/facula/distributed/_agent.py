"""The agent of a node: it meets the agents of other nodes, starts the processes of this one with their
places in the environment, watches them, and starts all again after a failure.

The agents share a store. A round is one attempt to run all processes: the agents that take part register, the
first one closes the round, and every one derives all ranks from the numbers of processes per node. A failure
is written to the store before any process is ended, so that the other agents end theirs. An agent that dies,
or cannot be reached, while the agents meet or while processes run, is a failure as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from .. import _C
from ._presence import PeerLostError, Presence
from ._stores import DistNetworkError, DistStoreError, PrefixStore, Store, TCPStore
from .status import memories_of_groups

__all__ = ["Agent", "ChildFailedError", "LaunchConfig", "ProcessFailure"]

GRACE = 2.0  # seconds between SIGTERM and SIGKILL


@dataclass
class LaunchConfig:
    """How to start the processes of this node. See the options of ``facula.distributed.run``."""

    replicas: bool = False
    min_nodes: int = 1
    max_nodes: int = 1
    nproc_per_node: int = 1
    run_id: str = "none"
    role: str = "default"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "static"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 0
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_dir: str | None = None
    redirects: str = "0"
    tee: str = "0"
    local_addr: str | None = None
    local_ranks_filter: set[int] | None = None
    node_rank: int = 0
    log_line_prefix_template: str | None = None
    logs_specs: Any = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: Any = None
    duplicate_stderr_filters: Any = None


@dataclass
class ProcessFailure:
    """A process that ended with an error."""

    local_rank: int
    rank: int
    pid: int
    exitcode: int
    error_file: str
    message: str
    host: str
    time: str

    def __str__(self) -> str:
        cause = self.message
        if self.exitcode < 0:
            cause = f"Signal {-self.exitcode} ({signal.Signals(-self.exitcode).name})"
        lines = [
            f"  time      : {self.time}",
            f"  host      : {self.host}",
            f"  rank      : {self.rank} (local_rank: {self.local_rank})",
            f"  exitcode  : {self.exitcode} (pid: {self.pid})",
            f"  traceback : {cause}",
        ]
        return "\n".join(lines)


class ChildFailedError(Exception):
    """A process of the job failed and no restart is left. ``failures`` has the root cause first."""

    def __init__(self, name: str, failures: list[ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        super().__init__(self._text())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        return self.failures[0].rank, self.failures[0]

    def _text(self) -> str:
        root, *others = self.failures
        line, thin = "=" * 60, "-" * 60
        rest = "\n".join(f"[{k}]:\n{f}" for k, f in enumerate(others, 1)) or "  <NO_OTHER_FAILURES>"
        return (
            f"\n{line}\n{self.name} FAILED\n{thin}\nFailures:\n{rest}\n{thin}\n"
            f"Root Cause (first observed failure):\n[0]:\n{root}\n{line}"
        )


@dataclass
class _Round:
    number: int
    node: int
    counts: list[int]  # of processes of each node
    master: str
    port: int

    @property
    def world_size(self) -> int:
        return sum(self.counts)

    @property
    def first_rank(self) -> int:
        return sum(self.counts[: self.node])


class _Child:
    def __init__(self, process: subprocess.Popen, local_rank: int, rank: int, error_file: str) -> None:
        self.process, self.local_rank, self.rank, self.error_file = process, local_rank, rank, error_file
        self.copies: list[threading.Thread] = []
        self.ended: float | None = None


def _address_towards(host: str, port: int) -> str:
    """Returns the address of this host from which it reaches another one."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as s:
        s.connect(address)
        return str(s.getsockname()[0])


class _Recorders:
    """The shared memory of the groups of this node's processes, which stays readable after they have died."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}  # (process, inode) to a descriptor of this process

    def look(self, pid: int) -> None:
        """Opens the memory of groups that the process has created since the last look."""
        for inode, path in memories_of_groups(pid):
            if (pid, inode) not in self._open:
                with contextlib.suppress(OSError):
                    self._open[pid, inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, pid: int) -> list[dict[str, Any]]:
        """Returns, for each group of the process, its state and its recorded operations."""
        groups = []
        for (owner, _), descriptor in self._open.items():
            path = f"/proc/self/fd/{descriptor}"
            with contextlib.suppress(RuntimeError):
                if owner == pid and (facts := _C.read_group_memory(path))["pid"] == pid:
                    groups.append({**facts, "records": json.loads(_C.read_group_records(path))})
        return groups

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _last_operation(group: dict[str, Any]) -> str:
    records = sorted(group["records"], key=lambda r: r["sequence"])
    if not records:
        return "had called no collective"
    last = records[-1]
    verb = {"completed": "had completed", "failed": "had failed in", "started": "was in"}[last["state"]]
    return f"{verb} collective {last['sequence']}, {last['operation']} at {last['site']}"


def std_of(text: str, local_rank: int) -> int:
    """Returns the streams of a process (0 none, 1 stdout, 2 stderr, 3 both) in "3" or "0:1,1:2"."""
    if ":" not in text:
        return int(text)
    pairs = (part.split(":") for part in text.split(","))
    return {int(k): int(v) for k, v in pairs}.get(local_rank, 0)


def _host_of(endpoint: str, default: int) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
    return (host or "localhost").strip("[]"), int(port or default)


def _is_here(host: str) -> bool:
    """Returns whether a host is this one: a socket can be bound to its address."""
    if host in ("localhost", socket.gethostname(), socket.getfqdn()):
        return True
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as s:
            s.bind(address)
            return True
    return False


class Agent:
    def __init__(
        self, config: LaunchConfig, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        self.config, self.command = config, command
        self.environment = environment if environment is not None else dict(os.environ)
        self.children: list[_Child] = []
        self.signal: int | None = None
        self._own_logs = config.log_dir is None
        self._logs = config.log_dir or tempfile.mkdtemp(prefix="facula_run_")
        self.failures: list[ProcessFailure] = []
        self._meeting = True  # no process runs
        self._lost = ""  # which other node was lost, in the last round
        self._recorders = _Recorders()
        self.store: Store
        self._served: TCPStore | None = None  # the store of the processes, if this agent serves it
        self._present: Presence | None = None  # in the round, if there are several nodes

    # ---- meeting

    def _connect(self) -> None:
        c = self.config
        seconds = c.rdzv_timeout if c.rdzv_timeout > 0 else float(c.rdzv_configs.get("timeout", 900))
        limit = timedelta(seconds=seconds)
        if c.rdzv_backend.startswith("etcd"):
            return self._connect_etcd(limit)
        host, port = _host_of(c.rdzv_endpoint, 29500 if c.rdzv_backend == "static" else 29400)
        asked = c.rdzv_configs.get("is_host")
        if c.rdzv_backend == "static":
            serves = c.node_rank == 0
        elif asked is not None:
            serves = str(asked).lower() in ("1", "true", "yes")
        else:
            serves = _is_here(host)
        host = "127.0.0.1" if host == "localhost" and c.max_nodes == 1 else host
        if serves:
            try:
                store = TCPStore(host, port, None, True, limit, wait_for_workers=False)
            except DistNetworkError:
                if c.rdzv_backend == "static" or port == 0:
                    raise
                serves = False  # another agent of this host serves it
        if not serves:
            store = TCPStore(host, port, None, False, limit)
        store._served_by = "node 0" if c.rdzv_backend == "static" else "the launcher at the endpoint"
        self.store, self.host, self.master = store, host, (host, store.port)
        self._served = store if serves else None
        self.shared = PrefixStore(f"rendezvous/{c.run_id}", self.store)
        self.shared.set_timeout(limit)

    def _connect_etcd(self, limit: timedelta) -> None:
        from ._etcd import EtcdStore

        c = self.config
        host, port = _host_of(c.rdzv_endpoint, 2379)
        options = {k: str(v) for k, v in c.rdzv_configs.items() if k in ("protocol", "cacert", "cert", "key")}
        self.store = EtcdStore(f"{host}:{port}", f"/facula/{c.run_id}", limit, **options)
        self.host = c.local_addr or _address_towards(host, port)
        self.shared = PrefixStore("rendezvous", self.store)
        self.shared.set_timeout(limit)

    def _serve_processes(self, s: PrefixStore, node: int) -> None:
        """Serves the store of the processes from node 0, if agents meet at a server of others."""
        if self._served is None and node == 0:
            self._served = TCPStore(self.host, 0, None, True, self.shared.timeout, wait_for_workers=False)
        if node == 0:
            assert self._served is not None
            s.set("master", f"{self._served.host}:{self._served.port}")
        host, _, port = self._awaited(s, ["master"])[0].decode().rpartition(":")
        self.master = host, int(port)

    def _check_round(self, s: PrefixStore) -> None:
        """Raises PeerLostError if the round has failed."""
        if self._present is not None:
            self._present.check()
        if s.check(["failed"]):
            raise PeerLostError("torchrun: another node has given the round up", -1)

    def _awaited(self, s: PrefixStore, keys: list[str]) -> list[bytes]:
        """Returns values of the round when all are set."""
        if self._present is None:
            return [s.get(key) for key in keys]
        return self._present.gather(keys, lambda: self._check_round(s))

    def _meet(self, number: int) -> _Round:
        """Takes part in a round: returns the place of this node."""
        c, s = self.config, PrefixStore(str(number), self.shared)
        s.set_timeout(self.shared.timeout)
        node = c.node_rank if c.rdzv_backend == "static" else s.add("joined", 1) - 1
        event = f"the nodes of round {number} had met"
        if c.max_nodes > 1:
            self._present = Presence(s, node, max(c.max_nodes, node + 1), "torchrun", "node", event)
        s.set(f"node/{node}", json.dumps([c.nproc_per_node, c.local_addr or socket.gethostname()]))
        nodes = self._closed(s, node)
        if self._present is not None:
            self._present.narrow(nodes)
        if node >= nodes:
            if self._present is not None:
                self._present.leave()
            raise RuntimeError(
                f"torchrun: the round has {nodes} nodes already; this one would be number {node + 1}"
            )
        if c.rdzv_backend.startswith("etcd"):
            self._serve_processes(s, node)
        facts = [json.loads(f) for f in self._awaited(s, [f"node/{k}" for k in range(nodes)])]
        return _Round(number, node, [f[0] for f in facts], *self.master)

    def _closed(self, s: PrefixStore, node: int) -> int:
        """Returns the number of nodes of a round, which node 0 decides."""
        c = self.config
        if c.rdzv_backend == "static" or c.min_nodes == c.max_nodes:
            return c.max_nodes
        if node:
            return int(self._awaited(s, ["nodes"])[0])
        self._awaited(s, [f"node/{c.min_nodes - 1}"])
        end = time.monotonic() + float(c.rdzv_configs.get("last_call_timeout", 30))
        while s.add("joined", 0) < c.max_nodes and time.monotonic() < end:
            self._check_round(s)
            time.sleep(0.05)
        nodes = min(s.add("joined", 0), c.max_nodes)
        s.set("nodes", str(nodes))
        return nodes

    def _place(self, number: int) -> _Round | None:
        """Returns the place of this node in the round; None if another node was lost before all had met."""
        try:
            return self._meet(number)
        except PeerLostError as error:
            with contextlib.suppress(DistNetworkError, DistStoreError):
                PrefixStore(str(number), self.shared).set("failed", str(error.number))
            print(f"[facula.distributed.run] {error}", file=sys.stderr)
            self._lost = str(error)
            return None

    def _current_round(self) -> tuple[int, int]:
        """Returns the number of the round to join, and how many restarts there were."""
        number, restarts = self.shared.compare_set("round", "", "0 0").split()
        return int(number), int(restarts)

    def _next_round(self, number: int, restarts: int) -> int:
        """Returns the number of the round after this one; a node that comes later joins it."""
        wanted = f"{number + 1} {restarts}"
        current = self.shared.compare_set("round", "", wanted)
        while int(current.split()[0]) <= number:
            current = self.shared.compare_set("round", current, wanted)
        return number + 1

    # ---- processes

    def _environment_of(self, place: _Round, local_rank: int, error_file: str) -> dict[str, str]:
        c, rank = self.config, place.first_rank + local_rank
        names: dict[str, Any] = {
            "RANK": rank,
            "LOCAL_RANK": local_rank,
            "GROUP_RANK": place.node,
            "ROLE_RANK": rank,
            "ROLE_NAME": c.role,
            "WORLD_SIZE": place.world_size,
            "LOCAL_WORLD_SIZE": c.nproc_per_node,
            "GROUP_WORLD_SIZE": len(place.counts),
            "ROLE_WORLD_SIZE": place.world_size,
            "MASTER_ADDR": place.master,
            "MASTER_PORT": place.port,
            "TORCHELASTIC_RESTART_COUNT": place.number,
            "TORCHELASTIC_MAX_RESTARTS": c.max_restarts,
            "TORCHELASTIC_RUN_ID": c.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_ERROR_FILE": error_file,
        }
        if c.nproc_per_node > 1 and "OMP_NUM_THREADS" not in self.environment:
            names["OMP_NUM_THREADS"] = max(1, (os.cpu_count() or 1) // c.nproc_per_node)
        return {**self.environment, **{k: str(v) for k, v in names.items()}}

    def _start(self, place: _Round) -> None:
        self.children = []
        for local_rank in range(self.config.nproc_per_node):
            self.children.append(self._started(place, local_rank, place.number))

    def _started(self, place: _Round, local_rank: int, attempt: int) -> _Child:
        """Starts one process."""
        c = self.config
        folder = os.path.join(self._logs, c.run_id.replace("/", "_"), f"attempt_{attempt}", str(local_rank))
        os.makedirs(folder, exist_ok=True)
        error_file = os.path.join(folder, "error.json")
        into, tee = std_of(c.redirects, local_rank), std_of(c.tee, local_rank)
        pipes: list[tuple[str, Any]] = []
        streams: dict[str, Any] = {}
        for bit, name in ((1, "stdout"), (2, "stderr")):
            path = os.path.join(folder, f"{name}.log")
            if tee & bit:
                streams[name] = subprocess.PIPE
                pipes.append((name, path))
            elif into & bit:
                streams[name] = open(path, "wb")  # noqa: SIM115
        environment = self._environment_of(place, local_rank, error_file)
        # Each process has a session: what it starts ends with it, and this agent passes Ctrl-C on to it.
        process = subprocess.Popen(self.command, env=environment, start_new_session=True, **streams)
        for stream in streams.values():
            if stream is not subprocess.PIPE:
                stream.close()
        child = _Child(process, local_rank, place.first_rank + local_rank, error_file)
        for name, path in pipes:
            copy = threading.Thread(target=self._copy, args=(child, name, path), daemon=True)
            copy.start()
            child.copies.append(copy)
        return child

    def _copy(self, child: _Child, name: str, path: str) -> None:
        """Writes a stream of a process to its file, and to that of this process with a prefix."""
        shown = self.config.local_ranks_filter is None or child.local_rank in self.config.local_ranks_filter
        ours = sys.stdout if name == "stdout" else sys.stderr
        with open(path, "wb") as file:
            for line in getattr(child.process, name):
                file.write(line)
                file.flush()
                if shown:
                    ours.write(f"[{self.config.role}{child.rank}]:{line.decode(errors='replace')}")
                    ours.flush()

    def _stop(self, how: int = signal.SIGTERM) -> None:
        """Ends all processes: by the signal, and after a while by SIGKILL."""
        for child in self.children:
            if child.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.send_signal(how)
                    child.process.send_signal(signal.SIGCONT)
        end = time.monotonic() + GRACE
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, end - time.monotonic()))
            if child.process.poll() is None:
                child.process.kill()
                child.process.wait()
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGKILL)  # processes that it started
            for copy in child.copies:
                copy.join(1)
        self._recorders.close()

    def _verdict(self, children: list[_Child]) -> str:
        """Returns what each of the processes did last, and writes the flight recorders to the logs."""
        lines = []
        for child in children:
            code = child.process.poll()
            state = "alive" if code is None else f"ended with {code}"
            for group in self._recorders.read(child.process.pid):
                who = f"rank {group['rank']} of {group['size']} (pid {child.process.pid}, {state})"
                lines.append(f"  {who}: {_last_operation(group)}")
                path = os.path.join(os.path.dirname(child.error_file), "flight_recorder.json")
                with open(path, "a") as file:
                    file.write(json.dumps(group) + "\n")
        return "\n".join(["[facula.distributed.run] a process failed", *lines])

    def _failure_of(self, child: _Child) -> ProcessFailure:
        message = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        if os.path.exists(child.error_file):
            with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
                with open(child.error_file) as file:
                    told = json.load(file)["message"]
                message = told if isinstance(told, str) else told["extraInfo"]["py_callstack"]
        now = datetime.now().strftime("%Y-%m-%d_%H:%M:%S")
        code = int(child.process.returncode)
        host = socket.gethostname()
        pid = child.process.pid
        return ProcessFailure(child.local_rank, child.rank, pid, code, child.error_file, message, host, now)

    # ---- the job

    def _watch(self, place: _Round) -> bool:
        """Returns True when all processes have succeeded, False when one of any node has failed."""
        s = PrefixStore(str(place.number), self.shared)
        if self._present is not None:
            self._present.event = "its processes had ended"
        checked = looked = time.monotonic()
        while True:
            if time.monotonic() - looked > 0.05:
                looked = time.monotonic()
                for child in self.children:
                    self._recorders.look(child.process.pid)
            if self.signal is not None:
                return False
            codes = [c.process.poll() for c in self.children]
            if any(code for code in codes):
                with contextlib.suppress(DistNetworkError, DistStoreError):
                    s.set("failed", str(place.node))
                time.sleep(0.05)  # processes that die of the same cause are counted as well
                failed = [c for c in self.children if c.process.poll()]
                self.failures = [self._failure_of(c) for c in failed]
                return False
            if all(code == 0 for code in codes):
                return True
            if len(place.counts) > 1 and time.monotonic() - checked > min(
                0.2, self.config.monitor_interval * 2
            ):
                checked = time.monotonic()
                if not self._others_run(s):
                    return False
            time.sleep(min(0.02, self.config.monitor_interval))

    def _others_run(self, s: PrefixStore) -> bool:
        """Returns False if a process or the agent of another node has failed."""
        try:
            self._check_round(s)
            return True
        except PeerLostError as error:
            if error.number >= 0:
                s.set("failed", str(error.number))
                print(f"[facula.distributed.run] {error}", file=sys.stderr)
                self._lost = str(error)
        except (DistNetworkError, DistStoreError) as error:  # the agent that serves the store is gone
            print(f"[facula.distributed.run] {error}", file=sys.stderr)
            self._lost = str(error)
        return False

    def _handle(self, number: int, frame: Any) -> None:
        self.signal = number
        if self._meeting:
            raise SystemExit(128 + number)

    def run(self) -> dict[int, int]:
        """Runs the job; returns the exit status of each rank of this node. Raises ChildFailedError."""
        handlers = {}
        if threading.current_thread() is threading.main_thread():
            names = [n.strip() for n in self.config.signals_to_handle.split(",") if n.strip()]
            handlers = {n: signal.signal(getattr(signal, n), self._handle) for n in names}
        try:
            self._connect()
            return self._run_rounds()
        finally:
            self._stop()
            for name, handler in handlers.items():
                signal.signal(getattr(signal, name), handler)
            if self._own_logs:
                shutil.rmtree(self._logs, ignore_errors=True)

    def _run_rounds(self) -> dict[int, int]:
        number, restarts = self._current_round()
        while True:
            self._lost, self._meeting = "", True
            place = self._place(number)
            self._meeting = False
            if place is not None:
                self._start(place)
                if self._watch(place):
                    self._leave(place)
                    return {c.rank: 0 for c in self.children}
                if self.signal is None:
                    print(self._verdict(self.children), file=sys.stderr)
            self._stop(self.signal or signal.SIGTERM)
            if self.signal is not None:
                raise SystemExit(128 + self.signal)
            if self._present is not None:
                self._present.leave()
            if place is not None or self.config.min_nodes == self.config.max_nodes:
                restarts = self._counted(restarts)
            number = self._next_round(number, restarts)

    def _counted(self, restarts: int) -> int:
        """Returns the number of restarts with this one; raises if there were as many as are allowed."""
        most = self.config.max_restarts
        if restarts >= most:
            raise ChildFailedError(self._program(), self._causes())
        print(f"[facula.distributed.run] restart {restarts + 1} of {most}", file=sys.stderr)
        return restarts + 1

    def _program(self) -> str:
        return next((c for c in self.command[1:] if not c.startswith("-")), self.command[0])

    def _causes(self) -> list[ProcessFailure]:
        now, host = datetime.now().strftime("%Y-%m-%d_%H:%M:%S"), socket.gethostname()
        cause = self._lost or "a process of another node failed"
        other = ProcessFailure(-1, -1, -1, 1, "", cause, host, now)
        return self.failures or [other]

    def _leave(self, place: _Round) -> None:
        """Waits until the other nodes have finished, since this one may serve their store."""
        if len(place.counts) == 1:
            return
        s = PrefixStore(str(place.number), self.shared)
        with contextlib.suppress(DistNetworkError, DistStoreError, PeerLostError):
            s.set(f"done/{place.node}", "1")
            if self._served is not None:
                s.wait([f"done/{k}" for k in range(len(place.counts))], timedelta(seconds=300))
            if self._present is not None:
                self._present.leave()
