"""Modules whose parameters lie in parts, one a process: a program has one process, so no module is one."""

from __future__ import annotations

from typing import Any

from ..nn.modules.module import Module

__all__ = ["FullyShardedDataParallel"]
__path__: list[str] = []  # for the modules that PyTorch divides it into


class FullyShardedDataParallel(Module):
    """What libraries ask ``isinstance`` of before they unwrap or save: no module is one."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "FullyShardedDataParallel: parameters in parts over processes are not supported; a process group "
            "has one process, for which DistributedDataParallel or the module alone serves"
        )
