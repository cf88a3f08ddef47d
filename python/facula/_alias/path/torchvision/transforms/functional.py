"""Transforms of images: PIL's, or tensors ``[..., C, H, W]``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_PIL = {
    InterpolationMode.NEAREST: Image.Resampling.NEAREST,
    InterpolationMode.NEAREST_EXACT: Image.Resampling.NEAREST,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
    InterpolationMode.BOX: Image.Resampling.BOX,
    InterpolationMode.HAMMING: Image.Resampling.HAMMING,
    InterpolationMode.LANCZOS: Image.Resampling.LANCZOS,
}
_SAMPLES = {"I": np.int32, "I;16": np.int16, "F": np.float32}


def _check(img: Any, name: str) -> bool:
    """Returns whether the image is a tensor; raises TypeError if it is not an image."""
    if isinstance(img, Tensor):
        return True
    if isinstance(img, Image.Image):
        return False
    raise TypeError(f"{name}: img should be PIL Image or Tensor. Got {type(img)}")


def get_dimensions(img: Any) -> list[int]:
    """Returns channels, height, width."""
    if _check(img, "get_dimensions"):
        return [1 if img.dim() == 2 else img.shape[-3], img.shape[-2], img.shape[-1]]
    return [len(img.getbands()), img.height, img.width]


def get_image_size(img: Any) -> list[int]:
    """Returns width, height."""
    return get_dimensions(img)[:0:-1]


def pil_to_tensor(pic: Image.Image) -> Tensor:
    """Returns ``[C, H, W]`` with an image's samples, unscaled."""
    if not isinstance(pic, Image.Image):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    samples = np.array(pic, _SAMPLES.get(pic.mode, np.uint8), copy=True)
    return torch.from_numpy(samples.reshape(pic.height, pic.width, -1)).permute(2, 0, 1).contiguous()


def to_tensor(pic: Any) -> Tensor:
    """Converts a PIL image or an array ``[H, W, C]`` to ``[C, H, W]``; bytes are divided by 255."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        t = torch.from_numpy(pic if pic.ndim == 3 else pic[:, :, None]).permute(2, 0, 1).contiguous()
    elif isinstance(pic, Image.Image):
        t = pil_to_tensor(pic)
        if pic.mode == "1":
            return t.to(torch.get_default_dtype())
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    return t.to(torch.get_default_dtype()).div(255) if t.dtype == torch.uint8 else t


def to_pil_image(pic: Any, mode: str | None = None) -> Image.Image:
    """Converts a tensor ``[C, H, W]`` or an array ``[H, W, C]`` to an image; fractions become bytes."""
    if isinstance(pic, Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        pic = pic if pic.dim() == 3 else pic.unsqueeze(0)
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        pic = pic.permute(1, 2, 0).numpy()
    return Image.fromarray(pic[:, :, 0] if pic.ndim == 3 and pic.shape[2] == 1 else pic, mode)


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """``(tensor - mean) / std`` for each channel."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    m, s = (torch.as_tensor(v, dtype=tensor.dtype) for v in (mean, std))
    if (s == 0).any():
        raise ValueError(
            f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero."
        )
    m, s = (v.reshape(-1, 1, 1) if v.dim() == 1 else v for v in (m, s))
    return (tensor if inplace else tensor.clone()).sub_(m).div_(s)


def resize(
    img: Any,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """Resizes an image to height and width ``size``; one number is the length of the shorter side."""
    if _check(img, "resize"):
        raise NotImplementedError("resize: tensors are not resized yet, only PIL images")
    _, height, width = get_dimensions(img)
    if isinstance(size, int) or len(size) == 1:
        short = size if isinstance(size, int) else size[0]
        ratio = short / min(height, width)
        new = [int(short * v / min(height, width)) for v in (height, width)]
        if max_size is not None and max(new) > max_size:
            new = [int(max_size * v / max(new)) for v in new]
        if ratio == 1 and max_size is None:
            return img
    else:
        if max_size is not None:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge"
            )
        new = list(size)
    return img.resize((new[1], new[0]), _PIL[interpolation])


def pad(img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Adds borders: one width for all, two for left/right and top/bottom, or left, top, right and bottom."""
    p = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = p * 4 if len(p) == 1 else p * 2 if len(p) == 2 else p
    if _check(img, "pad"):
        mode = {"edge": "replicate"}.get(padding_mode, padding_mode)
        flat = img.reshape(-1, *img.shape[-3:])
        out = torch.nn.functional.pad(
            flat, [left, right, top, bottom], mode, fill if mode == "constant" else 0
        )
        return out.reshape(*img.shape[:-2], *out.shape[-2:])
    if padding_mode == "constant":
        return ImageOps.expand(img, (left, top, right, bottom), fill)
    mode = {"edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}[padding_mode]
    samples = np.asarray(img)
    return Image.fromarray(np.pad(samples, [(top, bottom), (left, right), (0, 0)][: samples.ndim], mode))


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """Returns a part; pixels outside of the image are 0."""
    if not _check(img, "crop"):
        return img.crop((left, top, left + width, top + height))
    h, w = img.shape[-2:]
    inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
    borders = [max(-left, 0), max(-top, 0), max(left + width - w, 0), max(top + height - h, 0)]
    return pad(inside, borders) if any(borders) else inside


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """Returns the centre; a smaller image gets borders of 0."""
    size = [output_size] * 2 if isinstance(output_size, int) else [*output_size, *output_size][:2]
    _, h, w = get_dimensions(img)
    if size[0] > h or size[1] > w:
        more = [max(s - v, 0) for s, v in zip(size, (h, w))]
        img = pad(img, [more[1] // 2, more[0] // 2, (more[1] + 1) // 2, (more[0] + 1) // 2])
        _, h, w = get_dimensions(img)
    return crop(img, round((h - size[0]) / 2), round((w - size[1]) / 2), size[0], size[1])


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    return resize(crop(img, top, left, height, width), size, interpolation)


def hflip(img: Any) -> Any:
    return img.flip(-1) if _check(img, "hflip") else img.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def vflip(img: Any) -> Any:
    return img.flip(-2) if _check(img, "vflip") else img.transpose(Image.Transpose.FLIP_TOP_BOTTOM)


def _enhanced(img: Any, name: str, kind: Any, factor: float) -> Any:
    if _check(img, name):
        raise NotImplementedError(f"{name}: tensors are not supported yet, only PIL images")
    return kind(img).enhance(factor)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    return _enhanced(img, "adjust_brightness", ImageEnhance.Brightness, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    return _enhanced(img, "adjust_contrast", ImageEnhance.Contrast, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    return _enhanced(img, "adjust_saturation", ImageEnhance.Color, saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Rotates hues by ``hue_factor`` of a circle, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if _check(img, "adjust_hue"):
        raise NotImplementedError("adjust_hue: tensors are not supported yet, only PIL images")
    if img.mode in ("1", "I", "F", "L"):
        return img
    h, s, v = img.convert("HSV").split()
    turned = np.asarray(h) + np.array(int(hue_factor * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(turned, "L"), s, v)).convert(img.mode)
