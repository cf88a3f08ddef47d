"""What libraries take from PyTorch's inner home of annotations for scripts, which run plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from .jit import export as export
from .jit import ignore as ignore
from .jit import is_scripting as is_scripting
from .jit import unused as unused

T = TypeVar("T")
Final = Final

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = list


def _copy_to_script_wrapper(fn: T) -> T:
    return fn


def weak_module(cls: T) -> T:
    return cls


def weak_script_method(fn: T) -> T:
    return fn


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str,
    func_name: str,
) -> Callable:
    """One of two functions, as the argument ``arg_name`` says."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        said = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if said else if_false)(*args, **kwargs)

    chosen.__name__, chosen.__module__ = func_name or "fn", module_name or __name__
    return chosen
