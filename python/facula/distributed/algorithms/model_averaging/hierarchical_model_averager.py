"""Averages over groups of several sizes, each with a period: small groups often, all ranks seldom."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

from ..._groups import get_world_size, new_subgroups
from . import averagers, utils

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """``period_group_size_dict`` has the size of the group for each period, in increasing order."""

    def __init__(
        self, period_group_size_dict: Any = None, warmup_steps: int = 0, process_group: Any = None
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        self._periods = list(period_group_size_dict)
        if self._periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if self._periods[-1] == 1:
            warnings.warn(
                "When the maximum period in arg ``period_group_size_dict`` is 1, no need to use model "
                "averaging: only "
                "DistributedDataParallel should be used for this case.",
                stacklevel=2,
            )
        size = get_world_size(self.process_group)
        if (last := list(period_group_size_dict.values())[-1]) != size:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` {last} must be equal to the size of arg "
                f"``process_group`` {size}."
            )
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, count in period_group_size_dict.items():
            own = self.process_group
            if count != size:
                own, _ = new_subgroups(group_size=count, group=self.process_group)
            self.period_process_group_dict[period] = own
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        self.warmup_steps = warmup_steps

    def _find_process_group(self) -> Any:
        """Returns the group of the longest period that ends at this step."""
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Any) -> None:
        if self.step >= self.warmup_steps and (group := self._find_process_group()) is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
