"""PyTorch's names of the errors of :func:`facula.compile`."""

from __future__ import annotations

# A function that ``fullgraph=True`` does not allow to divide.
Unsupported = RuntimeError


class BackendCompilerFailed(RuntimeError):
    """A back end raised an error, which is the cause of this one."""
