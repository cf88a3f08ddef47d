"""Key-value stores that threads and processes share: in memory, in a file, or over TCP.

A subclass defines one primitive, ``_apply``, which changes the values atomically; all public methods use
it.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from .. import _C

default_pg_timeout = timedelta(minutes=30)
Values = dict[str, bytes]


class DistError(RuntimeError):
    """An error of communication."""


class DistBackendError(DistError):
    pass


class DistNetworkError(DistError):
    pass


class DistStoreError(DistError):
    pass


class QueueEmptyError(DistError):
    pass


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"Store: expected a text or bytes, got {type(value).__name__}")
    return value.encode() if isinstance(value, str) else bytes(value)


# The atomic actions on the values: functions of them and of arguments that JSON can represent.
def _set(values: Values, key: str, value: bytes) -> None:
    values[key] = value


def _get(values: Values, key: str) -> bytes | None:
    return values.get(key)


def _add(values: Values, key: str, amount: int) -> int:
    text = values.get(key, b"0")
    try:
        total = int(text) + amount
    except ValueError as error:
        raise ValueError(f"Store.add: {key!r} holds {text!r}, which is no number") from error
    values[key] = str(total).encode()
    return total


def _compare_set(values: Values, key: str, expected: bytes, desired: bytes) -> bytes:
    if values.get(key, b"") == expected:
        values[key] = desired
    return values.get(key, expected)


def _append(values: Values, key: str, value: bytes) -> None:
    values[key] = values.get(key, b"") + value


def _missing(values: Values, *keys: str) -> list[str]:
    return [k for k in keys if k not in values]


def _delete(values: Values, key: str) -> bool:
    return values.pop(key, None) is not None


def _hold(values: Values, key: str) -> None:
    """The server of a TCPStore sets the key to the reason when the client that holds it dies or cannot be
    reached, unless it was dropped before. Other stores do nothing.
    """


def _drop(values: Values, key: str) -> None:
    """Ends a hold."""


def _names(values: Values) -> list[str]:
    return list(values)


MOST_BYTES = 1 << 28  # of a request: a value of 192 MB
TOKEN = "FACULA_JOB_TOKEN"  # the environment variable with the secret that clients show to a TCPStore

ACTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (_set, _get, _add, _compare_set, _append, _missing, _delete, _hold, _drop, _names)
}


class Store:
    """A key-value store. Calls that wait raise DistStoreError after ``timeout``."""

    timeout: timedelta = default_pg_timeout

    def _apply(self, action: str, *args: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}: a store of its own makes its values by _apply")

    def set_timeout(self, timeout: timedelta) -> None:
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._apply("_set", key, _bytes(value))

    def get(self, key: str) -> bytes:
        """Returns the value; waits until it is set."""
        self.wait([key])
        return bytes(self._apply("_get", key))

    def add(self, key: str, amount: int) -> int:
        """Adds to a number and returns the sum."""
        return int(self._apply("_add", key, amount))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets the value if it equals the expected one, and returns the resulting value."""
        return bytes(self._apply("_compare_set", key, _bytes(expected_value), _bytes(desired_value)))

    def append(self, key: str, value: str | bytes) -> None:
        self._apply("_append", key, _bytes(value))

    def check(self, keys: list[str]) -> bool:
        return not self._apply("_missing", *keys)

    def delete_key(self, key: str) -> bool:
        return bool(self._apply("_delete", key))

    def list_keys(self) -> list[str]:
        return list(self._apply("_names"))

    def num_keys(self) -> int:
        return len(self.list_keys())

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        for key, value in zip(keys, values):
            self.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys are set; raises DistStoreError after the timeout."""
        limit = self.timeout if timeout is None else timeout
        end, pause = time.monotonic() + limit.total_seconds(), 0.001
        while missing := self._apply("_missing", *keys):
            if time.monotonic() > end:
                milliseconds = round(limit.total_seconds() * 1000)
                raise DistStoreError(f"wait timeout after {milliseconds}ms, keys: {', '.join(missing)}")
            self._pause(pause)
            pause = min(2 * pause, 0.1)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until ``world_size`` processes have arrived; the last one releases the others."""
        if self.add(key, 1) == world_size:
            self.set(f"{key}/open", "1")
        self.wait([f"{key}/open"], timeout)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> Store:
        """Returns a store of the same values with a separate timeout."""
        import copy

        return copy.copy(self)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self.set(f"{key}/{self.add(f'{key}/pushed', 1)}", value)

    def queue_len(self, key: str) -> int:
        return self.add(f"{key}/pushed", 0) - self.add(f"{key}/popped", 0)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        if not block and self.queue_len(key) <= 0:
            raise QueueEmptyError("queue is empty")
        item = f"{key}/{self.add(f'{key}/popped', 1)}"
        value = self.get(item)
        self.delete_key(item)
        return value


class HashStore(Store):
    """A store for the threads of one process."""

    def __init__(self) -> None:
        self._values: Values = {}
        self._changed = threading.Condition()

    def _apply(self, action: str, *args: Any) -> Any:
        with self._changed:
            result = ACTIONS[action](self._values, *args)
            if action not in ("_get", "_missing", "_names"):
                self._changed.notify_all()
            return result

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)


def _encoded(value: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _decoded(value: Any) -> Any:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value


class FileStore(Store):
    """A store for all processes that name the same file. The file is locked during each change."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self._path = os.fspath(file_name)
        self._inode: tuple[int, int] | None = None  # of the file at which the processes meet
        with self._locked():
            pass  # creates the file, and reports an invalid path here

    @property
    def path(self) -> str:
        return self._path

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        """Opens and locks the file, which is created if this store has not used it before."""
        import fcntl

        creates = os.O_CREAT if self._inode is None else 0
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | creates, 0o666)
            except FileNotFoundError as error:
                if creates:
                    raise
                raise self._lost() from error
            with open(descriptor, "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                facts = os.fstat(descriptor)
                if not facts.st_nlink and creates:
                    continue  # removed by processes that met there before
                if not facts.st_nlink or self._inode not in (None, (facts.st_dev, facts.st_ino)):
                    raise self._lost()
                self._inode = facts.st_dev, facts.st_ino
                yield file
                return

    def _lost(self) -> DistStoreError:
        return DistStoreError(f"FileStore: {self._path} was removed while processes met there")

    def _leave(self, world_size: int) -> None:
        """The last of the processes removes the file."""
        if self.add("left", 1) % world_size == 0:
            os.unlink(self._path)
        self._inode = None

    def _apply(self, action: str, *args: Any) -> Any:
        with self._locked() as file:
            text = file.read()
            try:
                values = {k: _decoded(v) for k, v in json.loads(text or "{}").items()}
            except (ValueError, AttributeError, KeyError) as error:
                raise DistStoreError(f"FileStore: {self._path} holds no values of a store") from error
            before = dict(values)
            result = ACTIONS[action](values, *args)
            if values != before:
                file.seek(0)
                file.truncate()
                file.write(json.dumps({k: _encoded(v) for k, v in values.items()}))
            return result


class _Server:
    """Serves a HashStore: a line requests an action, a line answers with an error or the result."""

    def __init__(self, host: str, port: int) -> None:
        self.values, self.token = HashStore(), os.environ.get(TOKEN, "")
        self._socket = socket.create_server((host, port))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=_accept, args=(self._socket, self.values, self.token), daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the end of the process may have closed the socket already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket") and contextlib is not None and contextlib.suppress is not None:
            self.close()  # otherwise the interpreter ends, and closes it


_shared_servers: weakref.WeakValueDictionary[tuple[str, int], _Server] = weakref.WeakValueDictionary()


def _server(host: str, port: int, multi_tenant: bool) -> _Server:
    """Returns a new server; with ``multi_tenant`` the one that serves another store of this process there."""
    running = _shared_servers.get((host, port)) if multi_tenant else None
    if running is not None:
        return running
    started = _Server(host, port)
    if multi_tenant:
        _shared_servers[host, started.port] = started
    return started


def _accept(listening: socket.socket, values: HashStore, token: str) -> None:
    with contextlib.suppress(OSError):  # the socket was closed
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection, values, token), daemon=True).start()


def _shows(token: str, stream: Any) -> bool:
    """Returns whether the client sends the token of the job first, if there is one."""
    return not token or hmac.compare_digest(stream.readline(4096).strip(), token.encode())


def _answer(connection: socket.socket, values: HashStore, token: str) -> None:
    with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
        if _shows(token, stream):
            _answer_all(connection, stream, values)


def _answer_all(connection: socket.socket, stream: Any, values: HashStore) -> None:
    """Answers requests until the connection ends."""
    while line := stream.readline(MOST_BYTES):
        if not line.endswith(b"\n"):
            return  # too long, or the end of the connection
        held, pid = None, 0
        try:
            action, *args = json.loads(line)
            if action == "_hold":
                held, pid = str(args[0]), _pid_here(*args[1:])
                answer = ["", [_identity(), os.getpid()]]
            else:
                answer = ["", _encoded(_performed(values, action, *args))]
        except Exception as error:
            answer = [str(error) or type(error).__name__, None]
        stream.write(json.dumps(answer).encode() + b"\n")
        stream.flush()
        if held is not None and not answer[0]:
            return _mark_when_lost(connection, values, held, pid)


def _identity() -> str:
    """Returns a text that differs between processes that do not see each other's numbers and network."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]
            return "/".join([file.read().strip(), socket.gethostname(), *spaces])
    except OSError:
        return ""


def _pid_here(identity: Any, pid: Any) -> int:
    """Returns the number of another process if it is on this host, and 0 otherwise."""
    return int(pid) if identity and identity == _identity() else 0


def _mark_when_lost(connection: socket.socket, values: HashStore, key: str, pid: int) -> None:
    """Sets the key if the client is lost. Nothing but heartbeats follows on this connection."""
    pulse = _C.Pulse(connection.fileno(), -1, pid)
    ended = select.poll()
    ended.register(pulse, select.POLLIN)
    ended.poll()
    if how := pulse.how():
        values._apply("_set", key, how.encode())


def _performed(values: HashStore, action: str, *args: Any) -> Any:
    """Performs a request, whose arguments may be of any type."""
    keys, rest = (args, ()) if action == "_missing" else (args[:1], args[1:])
    kinds = {"_set": (bytes,), "_add": (int,), "_compare_set": (bytes, bytes), "_append": (bytes,)}
    rest = tuple(map(_decoded, rest))
    if action not in ACTIONS or not all(isinstance(k, str) for k in keys):
        raise ValueError("TCPStore: the request is not one of a store")
    expected = kinds.get(action, ())
    if len(rest) != len(expected) or not all(map(isinstance, rest, expected)):
        raise ValueError(f"TCPStore: {action} takes other arguments")
    return values._apply(action, *keys, *rest)


class TCPStore(Store):
    """A store for all clients of the master, which serves it as long as it lives. Port 0 selects a free
    port.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        if master_listen_fd is not None:
            raise NotImplementedError("TCPStore: master_listen_fd; the store opens its own socket")
        self.timeout, self.host, self._server = timeout, host_name, None
        self._pulses: dict[str, Any] = {}  # by the keys that this client holds
        self._served_by = ""
        if is_master:
            try:
                self._server = _server(host_name, port, multi_tenant)
            except OSError as error:
                raise DistNetworkError(
                    f"TCPStore: cannot serve {host_name}:{port}: {os.strerror(error.errno or 0)}"
                ) from error
            port = self._server.port
        self.port, self._lock = port, threading.Lock()
        self._socket = self._connected()
        self._file = self._socket.makefile("rb")
        if world_size is not None and not multi_tenant and self.add("init/", 1) > world_size:
            raise DistStoreError(f"TCPStore: more than the {world_size} processes of world_size came")
        if is_master and wait_for_workers and world_size:
            self._wait_for(world_size)

    def _connected(self) -> socket.socket:
        end = time.monotonic() + self.timeout.total_seconds()
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), self.timeout.total_seconds())
                if token := os.environ.get(TOKEN):
                    connection.sendall(token.encode() + b"\n")
                return connection
            except OSError as error:
                if time.monotonic() > end:
                    raise DistNetworkError(
                        f"The client socket has timed out after {1000 * self.timeout.total_seconds():.0f}ms "
                        f"while trying to connect to ({self.host}, {self.port})."
                    ) from error
                time.sleep(0.05)

    def _wait_for(self, world_size: int) -> None:
        end = time.monotonic() + self.timeout.total_seconds()
        while (came := self.add("init/", 0)) < world_size:
            if time.monotonic() > end:
                raise DistStoreError(f"TCPStore: {came} of {world_size} processes came within {self.timeout}")
            time.sleep(0.01)

    def _apply(self, action: str, *args: Any) -> Any:
        if action == "_hold":
            return self._hold(*args)
        if action == "_drop":
            pulse = self._pulses.pop(args[0], None)
            return pulse.leave() if pulse is not None else None
        with self._lock:
            return self._answer_of(self._socket, self._file, action, *args)

    def _answer_of(self, connection: socket.socket, file: Any, action: str, *args: Any) -> Any:
        who = f"TCPStore: {self.host}:{self.port}"
        if self._served_by:
            who += f", which {self._served_by} serves,"
        try:
            connection.sendall(json.dumps([action, *map(_encoded, args)]).encode() + b"\n")
            line = file.readline()
        except (ConnectionResetError, BrokenPipeError):
            line = b""
        except OSError as error:
            raise DistNetworkError(f"{who} {self._loss() or f'does not answer: {error}'}") from error
        if not line:
            raise DistNetworkError(f"{who} {self._loss() or 'closed the connection'}")
        problem, result = json.loads(line)
        if problem:
            raise ValueError(problem)
        return _decoded(result)

    def _hold(self, key: str) -> None:
        """Opens a connection for heartbeats. When the server is lost, requests to it raise."""
        with self._connected() as connection, connection.makefile("rb") as file:
            server = self._answer_of(connection, file, "_hold", key, _identity(), os.getpid())
            self._pulses[key] = _C.Pulse(connection.fileno(), self._socket.fileno(), _pid_here(*server))

    def _loss(self) -> str:
        """Returns how the server went, if heartbeats tell."""
        return next((how for p in self._pulses.values() if (how := p.how())), "")

    def clone(self) -> Store:
        """Returns another connection to the same values."""
        return TCPStore(self.host, self.port, None, False, self.timeout)

    def list_keys(self) -> list[str]:
        return [k for k in super().list_keys() if k != "init/"]

    def num_keys(self) -> int:
        return len(super().list_keys())

    def __del__(self) -> None:
        if contextlib is None or contextlib.suppress is None:
            return  # the interpreter ends
        self._server = None  # closes it with its last store
        if connection := getattr(self, "_socket", None):
            self._file.close()
            connection.close()

    def __repr__(self) -> str:
        return f"TCPStore(host={self.host}, port={self.port}, server={self._server is not None})"


class PrefixStore(Store):
    """A view of another store: keys are prefixed with ``prefix`` and a slash."""

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix, self._store, self.timeout = prefix, store, store.timeout

    @property
    def underlying_store(self) -> Store:
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        return getattr(self._store, "_underlying_non_prefix_store", self._store)

    def _apply(self, action: str, *args: Any) -> Any:
        start = f"{self._prefix}/"
        if action == "_names":
            return [k.removeprefix(start) for k in self._store._apply(action) if k.startswith(start)]
        keys = len(args) if action == "_missing" else 1
        result = self._store._apply(action, *(start + k for k in args[:keys]), *args[keys:])
        return [k.removeprefix(start) for k in result] if action == "_missing" else result
