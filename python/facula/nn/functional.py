"""Functions of neural networks. Operators are bound directly; the other functions add PyTorch's argument
conventions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _C, _namespace

Tensor = _C.Tensor
_f = _C.functions

# Every operator that is bound to nn.functional is available here under its own name.
globals().update(
    {name: getattr(_C.nn_functional, name) for name in dir(_C.nn_functional) if not name.startswith("__")}
)
from . import _forms  # noqa: E402
from . import _reduction as _Reduction  # noqa: E402
from . import grad as grad  # noqa: E402
from ._forms import *  # noqa: E402, F403

if TYPE_CHECKING:
    from ._grouped import grouped_mm as grouped_mm
    from ._losses import *
    from ._resample import *
    from ._scaled import ScalingType as ScalingType
    from ._scaled import SwizzleType as SwizzleType
    from ._scaled import scaled_mm as scaled_mm
else:
    from ._grouped import grouped_mm
    from ._losses import linear_cross_entropy, triplet_margin_with_distance_loss
    from ._resample import (
        affine_grid,
        upsample,
        upsample_bilinear,
        upsample_nearest,
    )
    from ._scaled import ScalingType, SwizzleType, scaled_mm

tanh, sigmoid = _f.tanh, _f.sigmoid
has_torch_function, handle_torch_function = _C.has_torch_function, _C.handle_torch_function


def has_torch_function_unary(tensor: object) -> bool:
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: object) -> bool:
    return has_torch_function(args)


class _BroadcastingList:
    """Annotations of PyTorch's compiler for a number that stands for a list: ``BroadcastingList2[int]``."""

    def __getitem__(self, types: object) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingList()


def assert_int_or_pair(arg: list[int], arg_name: str, message: str) -> None:
    if not isinstance(arg, int) and len(arg) != 2:
        raise AssertionError(message.format(arg_name))


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable,
    if_false: Callable,
    module_name: str,
    func_name: str,
) -> Callable:
    """Dispatches to one of two functions by the value of an argument."""

    def f(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    f.__name__ = f.__qualname__ = func_name
    f.__doc__ = if_true.__doc__ if if_true.__doc__ is not None else if_false.__doc__
    return f


GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
logsigmoid = _C.nn_functional.log_sigmoid


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor; None for None."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """Converts a mask to numbers to add: -inf where a boolean mask is True."""
    if mask is None:
        return None
    floating = mask.is_floating_point()
    if mask.dtype != _C.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both "
            "instead.",
            stacklevel=2,
        )
    if floating:
        return mask
    return _C.functions.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


for _name in _forms.__all__:  # report this module as their home
    globals()[_name].__module__ = __name__
_namespace.overridable(globals())
_namespace.assignable(
    globals(),
    """
    batch_norm ctc_loss glu gumbel_softmax layer_norm local_response_norm pad rms_norm sigmoid softsign tanh
    tanhshrink
    """,
)

if TYPE_CHECKING:  # for type checkers: the operators, which are bound here under their own names
    from .._C.nn_functional import *  # noqa: F403
