"""Grids of images, and files of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ._absent import naming

__getattr__ = naming(__name__)


def _batch(tensor: Tensor | Sequence[Tensor]) -> Tensor:
    """``[N, 3, H, W]`` of one image or several, of one channel or three."""
    t = tensor if isinstance(tensor, Tensor) else torch.stack(list(tensor))
    if not 2 <= t.dim() <= 4:
        raise TypeError(f"make_grid: expected images of 2, 3 or 4 dimensions, got shape {tuple(t.shape)}")
    t = t.reshape((1,) * (4 - t.dim()) + tuple(t.shape))
    return t.expand(-1, 3, -1, -1) if t.size(1) == 1 else t


def _scaled(image: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """The image with ``value_range``, or its own range, moved to 0 .. 1."""
    low, high = value_range or (float(image.min()), float(image.max()))
    return (image.clamp(low, high) - low) / max(high - low, 1e-5)


@torch.no_grad()
def make_grid(
    tensor: Tensor | Sequence[Tensor],
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Images side by side, ``nrow`` in a row, with ``padding`` pixels of ``pad_value`` around each."""
    images = _batch(tensor)
    if normalize:
        images = (
            torch.stack([_scaled(image, value_range) for image in images])
            if scale_each
            else _scaled(images, value_range)
        )
    if images.size(0) == 1:
        return images[0].clone()
    columns = min(nrow, images.size(0))
    rows = math.ceil(images.size(0) / columns)
    height, width = images.size(2) + padding, images.size(3) + padding
    grid = images.new_full((images.size(1), rows * height + padding, columns * width + padding), pad_value)
    for k, image in enumerate(images):
        top, left = k // columns * height + padding, k % columns * width + padding
        grid[:, top : top + image.size(1), left : left + image.size(2)] = image
    return grid


@torch.no_grad()
def save_image(tensor: Tensor | Sequence[Tensor], fp: Any, format: str | None = None, **options: Any) -> None:
    """Writes the grid of the images, whose values are from 0 to 1, as a picture."""
    grid = make_grid(tensor, **options).mul(255).add(0.5).clamp(0, 255)
    Image.fromarray(grid.permute(1, 2, 0).to(torch.uint8).numpy()).save(fp, format=format)
