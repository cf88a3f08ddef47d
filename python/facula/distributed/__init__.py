"""Training by several processes: groups of ranks, their collectives and messages, and where they meet.

>>> import facula.distributed as dist
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> x = facula.ones(2)
>>> dist.all_reduce(x)
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import sys

from . import _collectives, _constants, _groups, _objects
from ._collectives import *  # noqa: F403
from ._collectives import _all_gather_base as _all_gather_base
from ._collectives import _coalescing_manager as _coalescing_manager
from ._collectives import _CoalescingManager as _CoalescingManager
from ._collectives import _reduce_scatter_base as _reduce_scatter_base
from ._constants import *  # noqa: F403
from ._constants import _make_nccl_premul_sum as _make_nccl_premul_sum
from ._groups import *  # noqa: F403
from ._groups import _abort_process_group as _abort_process_group
from ._groups import _get_default_group as _get_default_group
from ._groups import _get_default_store as _get_default_store
from ._groups import _get_default_timeout as _get_default_timeout
from ._groups import _get_global_rank as _get_global_rank
from ._groups import _get_group_size as _get_group_size
from ._groups import _get_process_group_name as _get_process_group_name
from ._groups import _get_process_group_store as _get_process_group_store
from ._groups import _rank_not_in_group as _rank_not_in_group
from ._groups import _resolve_process_group as _resolve_process_group
from ._groups import _world as _world
from ._objects import *  # noqa: F403
from ._objects import _object_to_tensor as _object_to_tensor
from ._objects import _tensor_to_object as _tensor_to_object
from ._process_group import AllToAllOptions as AllToAllOptions
from ._process_group import AllgatherOptions as AllgatherOptions
from ._process_group import AllreduceCoalescedOptions as AllreduceCoalescedOptions
from ._process_group import AllreduceOptions as AllreduceOptions
from ._process_group import BarrierOptions as BarrierOptions
from ._process_group import BroadcastOptions as BroadcastOptions
from ._process_group import GatherOptions as GatherOptions
from ._process_group import ReduceOptions as ReduceOptions
from ._process_group import ReduceScatterOptions as ReduceScatterOptions
from ._process_group import ScatterOptions as ScatterOptions
from ._process_group import ProcessGroup as ProcessGroup
from ._process_group import Work as Work
from ._reducer import BuiltinCommHookType as BuiltinCommHookType
from ._reducer import GradBucket as GradBucket
from ._rendezvous import register_rendezvous_handler as register_rendezvous_handler
from ._rendezvous import rendezvous as rendezvous
from ._stores import DistBackendError as DistBackendError
from ._stores import DistError as DistError
from ._stores import DistNetworkError as DistNetworkError
from ._stores import DistStoreError as DistStoreError
from ._stores import FileStore as FileStore
from ._stores import HashStore as HashStore
from ._stores import PrefixStore as PrefixStore
from ._stores import QueueEmptyError as QueueEmptyError
from ._stores import Store as Store
from ._stores import TCPStore as TCPStore
from ._stores import default_pg_timeout as default_pg_timeout

distributed_c10d = sys.modules[__name__]  # PyTorch's module of these functions

from .device_mesh import DeviceMesh as DeviceMesh  # noqa: E402
from .device_mesh import init_device_mesh as init_device_mesh  # noqa: E402

__all__ = [
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "HashStore",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "Store",
    "TCPStore",
    "Work",
    "init_device_mesh",
    "register_rendezvous_handler",
    "rendezvous",
]
__all__ += _collectives.__all__
__all__ += _constants.__all__
__all__ += _groups.__all__
__all__ += _objects.__all__
