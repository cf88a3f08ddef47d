"""Quantisation of models: observers, configurations and the flows that apply them (docs/quantization.md)."""

from __future__ import annotations

from typing import Any

from .fake_quantize import *  # noqa: F403
from .fuse_modules import fuse_modules as fuse_modules
from .fuse_modules import fuse_modules_qat as fuse_modules_qat
from .fuser_method_mappings import *  # noqa: F403
from .granularity import *  # noqa: F403
from .observer import *  # noqa: F403
from .observer import _PartialWrapper as _PartialWrapper
from .qconfig import *  # noqa: F403
from .qconfig_mapping import *  # noqa: F403
from .quant_type import QuantType as QuantType
from .quantization_mappings import *  # noqa: F403
from .quantize import *  # noqa: F403
from .quantize_jit import *  # noqa: F403
from .report import report as report
from .stubs import *  # noqa: F403
from .utils import MatchAllNode as MatchAllNode
from .utils import Pattern as Pattern
from .utils import get_combined_dict as get_combined_dict

ObserverOrFakeQuantize = ObserverBase | FakeQuantizeBase  # noqa: F405


def default_eval_fn(model: Any, calib_data: Any) -> None:
    """Runs the model on pairs of data and targets, for calibration."""
    for data, _ in calib_data:
        model(data)
