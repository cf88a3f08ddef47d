"""Transforms as callable objects, applied to one image per call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._absent import naming
from . import functional as functional
from .functional import InterpolationMode as InterpolationMode

F = functional
__getattr__ = naming(__name__)


class _Transform:
    """Displays its constructor's arguments."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class Compose:
    def __init__(self, transforms: Sequence[Callable]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {t}" for t in self.transforms), ")"])


class RandomApply(Compose):
    """Applies all of the transforms, or none."""

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = p

    def __call__(self, img: Any) -> Any:
        return img if self.p < torch.rand(1) else super().__call__(img)


class ToTensor(_Transform):
    def __call__(self, pic: Any) -> Any:
        return F.to_tensor(pic)


class PILToTensor(_Transform):
    def __call__(self, pic: Any) -> Any:
        return F.pil_to_tensor(pic)


class ToPILImage(_Transform):
    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)


class Lambda(_Transform):
    def __init__(self, lambd: Callable) -> None:
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)


class Normalize(torch.nn.Module):
    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: Any) -> Any:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def extra_repr(self) -> str:
        return f"mean={self.mean}, std={self.std}"


class Resize(_Transform):
    def __init__(
        self,
        size: Any,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size, self.interpolation, self.max_size, self.antialias = (
            size,
            interpolation,
            max_size,
            antialias,
        )

    def __call__(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(_Transform):
    def __init__(self, size: Any) -> None:
        self.size = size

    def __call__(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(_Transform):
    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def __call__(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomCrop(_Transform):
    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = [size, size] if isinstance(size, int) else list(size)
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = (
            padding,
            pad_if_needed,
            fill,
            padding_mode,
        )

    def __call__(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        (_, h, w), (th, tw) = F.get_dimensions(img), self.size
        if self.pad_if_needed:
            img = F.pad(img, [max(tw - w, 0), max(th - h, 0)], self.fill, self.padding_mode)
            _, h, w = F.get_dimensions(img)
        if h < th or w < tw:
            raise ValueError(f"Required crop size {(th, tw)} is larger than input image size {(h, w)}")
        top, left = (int(torch.randint(0, n + 1, (1,))) for n in (h - th, w - tw))
        return F.crop(img, top, left, th, tw)


class RandomHorizontalFlip(_Transform):
    _flip = staticmethod(F.hflip)

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return self._flip(img) if torch.rand(1) < self.p else img


class RandomVerticalFlip(RandomHorizontalFlip):
    _flip = staticmethod(F.vflip)


class RandomResizedCrop(_Transform):
    """Crops a random area and aspect ratio, from ``scale`` and ``ratio``, and resizes it.  Szegedy et
    al., 2015.
    """

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size = [size, size] if isinstance(size, int) else list(size)
        self.scale, self.ratio, self.interpolation, self.antialias = scale, ratio, interpolation, antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """Returns top, left, height and width; after ten failed tries the centre, within the ratios."""
        _, height, width = F.get_dimensions(img)
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = height * width * float(torch.empty(1).uniform_(scale[0], scale[1]))
            aspect = math.exp(float(torch.empty(1).uniform_(low, high)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top, left = (int(torch.randint(0, n + 1, (1,))) for n in (height - h, width - w))
                return top, left, h, w
        now = width / height
        w = width if now <= ratio[1] else round(height * ratio[1])
        h = height if now >= ratio[0] else round(width / ratio[0])
        return (height - h) // 2, (width - w) // 2, h, w

    def __call__(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation)


class ColorJitter(_Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        def span(value: Any, middle: float) -> tuple[float, float] | None:
            if not isinstance(value, (int, float)):
                return tuple(value)
            low = middle - value
            return None if value == 0 else (max(low, 0) if middle else low, middle + value)

        self.brightness, self.contrast = span(brightness, 1), span(contrast, 1)
        self.saturation, self.hue = span(saturation, 1), span(hue, 0)

    def __call__(self, img: Any) -> Any:
        steps = [
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        ]
        for i in torch.randperm(4).tolist():
            f, span = steps[i]
            if span is not None:
                img = f(img, float(torch.empty(1).uniform_(*span)))
        return img
