"""Settings of PyTorch's compiler of graphs: they are kept and change nothing."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

coordinate_descent_tuning = False
cpp = SimpleNamespace(threads=-1)
epilogue_fusion = True
fx_graph_cache = True
max_autotune = False
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=True)


def __getattr__(name: str) -> Any:
    if name == "patch":
        from .._dynamo.config import patch_of

        return patch_of(sys.modules[__name__])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
