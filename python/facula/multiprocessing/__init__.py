"""Python's multiprocessing. Tensors in shared memory (``Tensor.share_memory_``) are shared with other
processes; a tensor that passes through a queue, a pipe or the arguments of a process moves to shared
memory.
"""

from multiprocessing import *  # noqa: F403
from multiprocessing.reduction import ForkingPickler as _ForkingPickler

from .._C import Tensor as _Tensor
from .._shared import reduced_for_process as _reduced
from ..nn.parameter import Parameter as _Parameter
from .spawn import ProcessContext as ProcessContext
from .spawn import ProcessExitedException as ProcessExitedException
from .spawn import ProcessRaisedException as ProcessRaisedException
from .spawn import SpawnContext as SpawnContext
from .spawn import spawn as spawn
from .spawn import start_processes as start_processes

for _kind in (_Tensor, _Parameter):
    _ForkingPickler.register(_kind, _reduced)


def get_all_sharing_strategies() -> set[str]:
    """Returns how processes share tensors: through files."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Has no effect; raises ValueError for a name that is not a strategy of PyTorch's."""
    if new_strategy not in ("file_system", "file_descriptor"):
        raise ValueError(
            f"set_sharing_strategy: {new_strategy!r} is neither 'file_system' nor 'file_descriptor'"
        )
