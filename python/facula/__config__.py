"""Build configuration as text for reports; ``python -m facula.info`` prints more."""

from __future__ import annotations

import os

from . import _C

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Returns compiler, build type, libraries and processor."""
    from . import info, version

    rows = [
        f"Facula {version.__version__} built with:",
        "{compiler}, {type}".format(**_C._build()),
        info.libraries(),
        f"CPU: {info.processor()}",
    ]
    return "\n  - ".join(rows) + "\n"


def parallel_info() -> str:
    """Returns the number of threads of operators, and the setting that determines it."""
    rows = [
        f"get_num_threads() : {_C.get_num_threads()}",
        f"processors : {os.cpu_count()}",
        *(f"{name} : {os.environ.get(name, '[not set]')}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
    ]
    return "\n".join(rows) + "\n"
