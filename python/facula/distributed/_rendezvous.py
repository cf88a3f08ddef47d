"""The meeting points of the processes of a job: URLs, and the handlers that turn them into stores, ranks and
sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

from ._stores import FileStore, PrefixStore, Store, TCPStore, default_pg_timeout

__all__ = ["register_rendezvous_handler", "rendezvous"]

Meeting = Iterator[tuple[Store, int, int]]
_handlers: dict[str, Callable[..., Meeting]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Meeting]) -> None:
    """Registers ``handler(url, **kwargs)``, which yields stores, ranks and world sizes, for URLs of this
    scheme.
    """
    if scheme in (*_handlers, "env", "tcp", "file", "etcd"):
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def _needed(url: str, what: str, value: int, variable: str | None = None) -> int:
    if value >= 0:
        return value
    if variable is None:
        raise ValueError(f"Error initializing torch.distributed using {url}: {what} parameter missing")
    if variable not in os.environ:
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {variable} "
            "expected, "
            "but not set"
        )
    return int(os.environ[variable])


def _tcp(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    """Returns the store of a job: rank 0 serves it, except under a launcher that does."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        agents = TCPStore(host, port, None, False, timeout)
        agents._served_by = "a launcher"
        return PrefixStore(f"/worker/attempt_{attempt}", agents)
    store = TCPStore(host, port, size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)
    store._served_by = "rank 0"
    return store


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Meeting:
    """Yields (store, rank, world size) for a URL: ``env://``, ``tcp://host:port``, ``file:///path``,
    ``etcd://host:port/job``.

    The query may have the rank and the world size: ``tcp://10.0.0.1:23456?rank=0&world_size=2``.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`init_method` must be a string. {url}: {type(url)}")
    if not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    parts = urlparse(url)
    query = {k: v[0] for k, v in parse_qs(parts.query).items()}
    place, size = int(query.get("rank", rank)), int(query.get("world_size", world_size))
    timeout = kwargs.get("timeout", default_pg_timeout)
    if parts.scheme in _handlers:
        yield from _handlers[parts.scheme](url, **kwargs)
        return
    if parts.scheme == "env":
        place, size = _needed(url, "rank", place, "RANK"), _needed(url, "world size", size, "WORLD_SIZE")
        for variable in ("MASTER_ADDR", "MASTER_PORT"):
            if variable not in os.environ:
                raise ValueError(
                    "Error initializing torch.distributed using env:// rendezvous: environment variable "
                    f"{variable} "
                    "expected, but not set"
                )
        store: Store = _tcp(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), place, size, timeout)
    elif parts.scheme == "tcp":
        if parts.port is None:
            raise ValueError(f"Error initializing torch.distributed using {url}: port number missing")
        place, size = _needed(url, "rank", place), _needed(url, "world size", size)
        store = _tcp(str(parts.hostname), parts.port, place, size, timeout)
    elif parts.scheme == "file":
        path = parts.path or parts.netloc
        if not path:
            raise ValueError(f"Error initializing torch.distributed using {url}: path missing")
        place, size = _needed(url, "rank", place), _needed(url, "world size", size)
        store = FileStore(path if path[:2] != "//" else path[1:], size)
    elif parts.scheme == "etcd":
        from ._etcd import EtcdStore

        place, size = _needed(url, "rank", place), _needed(url, "world size", size)
        store = EtcdStore(parts.netloc, f"/facula{parts.path or '/default'}", timeout)
    else:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    yield store, place, size
