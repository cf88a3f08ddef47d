"""What the library tells about its work, on standard error: what ``FACULA_LOG`` does, at runtime."""

from __future__ import annotations

from . import _C


def areas() -> dict[str, str]:
    """Every area of the log, and what its lines tell."""
    return {name: doc for name, doc in (line.split(None, 1) for line in _C._log_help().splitlines())}


def set_logs(**on: bool) -> None:
    """Logs the areas given as true, and no others; ``all=True`` stands for every area.

    >>> facula.set_logs(ops=True)
    >>> facula.set_logs()  # nothing any more
    """
    known = [*areas(), "all"]
    if unknown := [name for name in on if name not in known]:
        raise ValueError(
            f"set_logs: there is no area '{unknown[0]}' to log\n  hint: areas are {', '.join(known)}"
        )
    chosen = sorted(on, key=lambda name: name != "all")  # all=True, ops=False: all but one
    _C._set_logs(",".join(["-all", *(("+" if on[name] else "-") + name for name in chosen)]))
