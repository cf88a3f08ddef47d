"""Python's multiprocessing. Tensors in shared memory (``Tensor.share_memory_``) are the same in forked
processes.
"""

from multiprocessing import *  # noqa: F403

from .spawn import ProcessContext as ProcessContext
from .spawn import ProcessExitedException as ProcessExitedException
from .spawn import ProcessRaisedException as ProcessRaisedException
from .spawn import SpawnContext as SpawnContext
from .spawn import spawn as spawn
from .spawn import start_processes as start_processes


def get_all_sharing_strategies() -> set[str]:
    """How processes share tensors: through files."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Changes nothing; ValueError for a name that is no strategy of PyTorch's."""
    if new_strategy not in ("file_system", "file_descriptor"):
        raise ValueError(
            f"set_sharing_strategy: {new_strategy!r} is neither 'file_system' nor 'file_descriptor'"
        )
