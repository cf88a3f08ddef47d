"""Training that survives failures of processes: ``Replicas`` go on without those that fail, and take new ones
in. The launcher, ``facula.distributed.run``, can start all processes again instead.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Replicas"]


def __getattr__(name: str) -> Any:
    if name == "Replicas":  # its module needs facula.nn, which needs facula.distributed
        from .replicas import Replicas

        return Replicas
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
