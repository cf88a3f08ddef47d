"""Names that libraries import from PyTorch's internal module of script annotations; functions run
unchanged.
"""

from __future__ import annotations

from typing import Final, TypeVar

from .jit import _overload as _overload
from .jit import _overload_method as _overload_method
from .jit import export as export
from .jit import ignore as ignore
from .jit import is_scripting as is_scripting
from .jit import unused as unused
from .nn.functional import BroadcastingList1 as BroadcastingList1
from .nn.functional import BroadcastingList2 as BroadcastingList2
from .nn.functional import BroadcastingList3 as BroadcastingList3
from .nn.functional import boolean_dispatch as boolean_dispatch

T = TypeVar("T")
Final = Final
BroadcastingList4 = BroadcastingList1


def _copy_to_script_wrapper(fn: T) -> T:
    return fn


def weak_module(cls: T) -> T:
    return cls


def weak_script_method(fn: T) -> T:
    return fn
