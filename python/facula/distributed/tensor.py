"""Tensors in parts, one a process: a program has one process, so none is in parts, and none is made."""

from __future__ import annotations

from typing import Any

from .. import _C

__all__ = ["DTensor"]


class DTensor(_C.Tensor):
    """What libraries ask ``isinstance`` of before they save or count: no tensor is one."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "DTensor: tensors in parts over processes are not supported; a process group has one process"
        )
