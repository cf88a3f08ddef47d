"""The transforms of images under their newer names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..._absent import naming
from .. import CenterCrop as CenterCrop
from .. import ColorJitter as ColorJitter
from .. import Compose as Compose
from .. import InterpolationMode as InterpolationMode
from .. import Lambda as Lambda
from .. import Normalize as Normalize
from .. import Pad as Pad
from .. import PILToTensor as PILToTensor
from .. import RandomApply as RandomApply
from .. import RandomCrop as RandomCrop
from .. import RandomHorizontalFlip as RandomHorizontalFlip
from .. import RandomResizedCrop as RandomResizedCrop
from .. import RandomVerticalFlip as RandomVerticalFlip
from .. import Resize as Resize
from .. import ToPILImage as ToPILImage
from .. import ToTensor as ToTensor
from .. import _Transform
from .. import functional as functional

__getattr__ = naming(__name__)


class ToImage(_Transform):
    """A tensor of a PIL image or array, with its numbers; a tensor as it is."""

    def __call__(self, inpt: Any) -> Any:
        if isinstance(inpt, torch.Tensor):
            return inpt
        return functional.pil_to_tensor(
            functional.to_pil_image(inpt) if isinstance(inpt, np.ndarray) else inpt
        )


class ToDtype(_Transform):
    """Another dtype; with ``scale`` the range of integers becomes 0 .. 1 of floats, and back."""

    def __init__(self, dtype: torch.dtype, scale: bool = False) -> None:
        self.dtype, self.scale = dtype, scale

    def __call__(self, inpt: Any) -> Any:
        if not self.scale or inpt.dtype.is_floating_point == self.dtype.is_floating_point:
            return inpt.to(self.dtype)
        if self.dtype.is_floating_point:
            return inpt.to(self.dtype) / torch.iinfo(inpt.dtype).max
        most = torch.iinfo(self.dtype).max
        return (inpt * (most + 1 - 1e-3)).clamp(0, most).to(self.dtype)
