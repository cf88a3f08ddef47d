"""The mean of parameters over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .... import _C
from ....nn.parameter import Parameter
from ... import _collectives as collective
from ..._groups import _rank_not_in_group, _resolve

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Any], process_group: Any) -> None:
    """Replaces parameters by their means over the group."""
    if _rank_not_in_group(process_group):
        return
    params = list(params)
    if not params:
        return
    with _C.GradMode(False):
        flat = _C.functions.cat([p.detach().reshape(-1) for p in params])
        flat /= _resolve(process_group).size()
        collective.all_reduce(flat, group=process_group)
        begin = 0
        for p in params:
            p.detach().copy_(flat[begin : begin + p.numel()].view(p.shape))
            begin += p.numel()


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """Returns the parameters with gradients of a list, or of an optimizer's parameter groups."""
    chosen = []
    for param in params:
        if isinstance(param, Parameter):
            chosen += [param] if param.grad is not None else []
        elif isinstance(param, dict):
            chosen += [p for p in param["params"] if p.grad is not None]
        else:
            raise NotImplementedError(f"Parameter input of type {type(param)} is not supported")
    return chosen


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    average_parameters(get_params_to_average(params), process_group)
