"""A store in an etcd server (3.4 or newer), by the JSON gateway of its version 3 interface.

The keys of a job hang on a lease that its processes renew. They vanish a minute after the last process has
ended, so that the name of a job can be used again.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

from ._stores import ACTIONS, DistNetworkError, DistStoreError, Store, default_pg_timeout

__all__ = ["EtcdStore"]

LEASE = 60  # seconds
MOST_OPERATIONS = 100  # of a transaction; the server's limit is 128


def _encoded(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def _after(prefix: str) -> str:
    """Returns the end of the range of keys that start with ``prefix``."""
    raw = prefix.encode()
    return _encoded(raw[:-1] + bytes([raw[-1] + 1]))


class EtcdStore(Store):
    """The store of all processes that name the same server, ``host:port``, and the same prefix.

    ``protocol="https"`` encrypts; ``cacert``, ``cert`` and ``key`` are the paths of PEM files.
    """

    def __init__(
        self,
        endpoint: str = "localhost:2379",
        prefix: str = "/facula/default",
        timeout: timedelta = default_pg_timeout,
        protocol: str = "http",
        cacert: str | None = None,
        cert: str | None = None,
        key: str | None = None,
    ) -> None:
        if protocol not in ("http", "https"):
            raise ValueError(f"EtcdStore: the protocol is http or https, not {protocol!r}")
        host, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "2379")
        self.host, self.port, self.prefix, self.timeout = host.strip("[]"), int(port), prefix + "/", timeout
        self._context: ssl.SSLContext | None = None
        if protocol == "https":
            self._context = ssl.create_default_context(cafile=cacert)
            if cert:
                self._context.load_cert_chain(cert, key)
        self._lock, self._process = threading.Lock(), os.getpid()
        self._connection: http.client.HTTPConnection | None = None
        self._lease = self._leased()
        threading.Thread(target=_renew, args=(weakref.ref(self),), daemon=True).start()

    # ---- requests

    def _opened(self) -> http.client.HTTPConnection:
        if self._connection is None or self._process != os.getpid():
            self._process = os.getpid()
            if self._context is not None:
                self._connection = http.client.HTTPSConnection(
                    self.host, self.port, timeout=10, context=self._context
                )
            else:
                self._connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        return self._connection

    def _ask(self, path: str, **body: Any) -> dict[str, Any]:
        with self._lock:
            try:
                connection = self._opened()
                connection.request("POST", f"/v3/{path}", json.dumps(body))
                response = connection.getresponse()
                status, answer = response.status, json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError) as error:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                reason = str(error) or type(error).__name__
                raise DistNetworkError(
                    f"EtcdStore: {self.host}:{self.port} does not answer: {reason}"
                ) from error
        if status != 200:
            raise DistStoreError(
                f"EtcdStore: {path} at {self.host}:{self.port}: {answer.get('error', status)}"
            )
        return dict(answer)

    # ---- the lease of the job

    def _leased(self) -> str:
        """Returns the lease of the job, which the first process creates."""
        name = _encoded(self.prefix + "lease")
        while True:
            stored = self._ask("kv/range", key=name).get("kvs")
            if stored:
                lease = base64.b64decode(stored[0]["value"]).decode()
                if self._renewed(lease):
                    return lease
                time.sleep(0.05)  # the server is about to remove its keys
                continue
            lease = str(self._ask("lease/grant", TTL=LEASE)["ID"])
            self._ask(
                "kv/txn",
                compare=[{"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": "0"}],
                success=[{"request_put": {"key": name, "value": _encoded(lease), "lease": lease}}],
            )

    def _renewed(self, lease: str) -> bool:
        return int(self._ask("lease/keepalive", ID=lease).get("result", {}).get("TTL", 0)) > 0

    # ---- actions

    def _apply(self, action: str, *args: Any) -> Any:
        if action == "_names":
            answer = self._ask(
                "kv/range", key=_encoded(self.prefix), range_end=_after(self.prefix), keys_only=True
            )
            names = [base64.b64decode(kv["key"]).decode() for kv in answer.get("kvs", [])]
            return [n.removeprefix(self.prefix) for n in names if n != self.prefix + "lease"]
        if action == "_missing":
            return [key for key in args if key not in self._present(list(args))]
        if action == "_set":
            self._ask("kv/put", **self._put(*args))
            return None
        return self._changed(action, *args)

    def _put(self, key: str, value: bytes) -> dict[str, Any]:
        return {"key": _encoded(self.prefix + key), "value": _encoded(value), "lease": self._lease}

    def _present(self, keys: list[str]) -> set[str]:
        present = set()
        for begin in range(0, len(keys), MOST_OPERATIONS):
            some = keys[begin : begin + MOST_OPERATIONS]
            ranges = [{"request_range": {"key": _encoded(self.prefix + k), "count_only": True}} for k in some]
            answers = self._ask("kv/txn", success=ranges)["responses"]
            present |= {k for k, a in zip(some, answers) if int(a["response_range"].get("count", 0))}
        return present

    def _changed(self, action: str, key: str, *rest: Any) -> Any:
        """Applies an action to one value. It is repeated if another process changed the value in between."""
        name = _encoded(self.prefix + key)
        while True:
            stored = self._ask("kv/range", key=name).get("kvs", [])
            values = {key: base64.b64decode(stored[0].get("value", ""))} if stored else {}
            before = dict(values)
            result = ACTIONS[action](values, key, *rest)
            if values == before:
                return result
            if key in values:
                change = {"request_put": self._put(key, values[key])}
            else:
                change = {"request_delete_range": {"key": name}}
            revision = stored[0]["mod_revision"] if stored else "0"
            unchanged = {"key": name, "target": "MOD", "result": "EQUAL", "mod_revision": revision}
            if self._ask("kv/txn", compare=[unchanged], success=[change]).get("succeeded"):
                return result

    def clone(self) -> Store:
        """Returns a store of the same values with a separate timeout and connection."""
        import copy

        other = copy.copy(self)
        other._lock, other._connection = threading.Lock(), None
        return other

    def __repr__(self) -> str:
        return f"EtcdStore({self.host}:{self.port}, prefix={self.prefix.removesuffix('/')})"


def _renew(reference: weakref.ref[EtcdStore]) -> None:
    while True:
        time.sleep(LEASE / 4)
        store = reference()
        if store is None:
            return
        with contextlib.suppress(DistNetworkError, DistStoreError):  # the next operation reports it
            store._renewed(store._lease)
        del store
