"""Padding of ``facula.nn.functional``, and rearrangements of channels and pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions


def _is_channels_last(images: Tensor) -> bool:
    last = _C.channels_last
    return images.dim() == 4 and not images.is_contiguous() and images.is_contiguous(memory_format=last)


def _sources(n: int, before: int, after: int, mode: str, device: Any) -> Tensor:
    """The index in [0, n) that each place of the padded dimension copies."""
    if mode == "circular":  # negative padding crops first
        low, high = max(-before, 0), n - max(-after, 0)
        return _f.arange(-max(before, 0), high - low + max(after, 0), device=device) % (high - low) + low
    at = _f.arange(-before, n + after, device=device)
    if mode == "replicate":
        return at.clamp(0, n - 1)
    return (n - 1) - ((at.abs() - (n - 1)).abs())  # reflect: the edge itself is not repeated


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads the last dimensions; ``pad`` = (before, after) of the last one, then of the one before, ...

    ``mode``: 'constant' with ``value``; 'reflect', 'replicate' or 'circular' for the last one to three
    dimensions of a batched or single image.

    >>> F.pad(facula.tensor([[1, 2, 3]]), (2, 1), mode="reflect")
    tensor([[3, 2, 1, 2, 3, 2]])
    """
    if mode == "constant":
        return _f.constant_pad_nd(input, list(pad), 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    rank, dims = input.dim(), len(pad) // 2
    if len(pad) % 2 or not 1 <= dims <= 3 or rank not in (dims + 1, dims + 2):
        raise NotImplementedError(
            f"pad: mode '{mode}' pads the last 1, 2 or 3 of 2-3, 3-4 or 4-5 dimensions; got a shape "
            f"{list(input.shape)} and pad of {len(pad)} numbers"
        )
    limit = {"reflect": 1, "replicate": 0, "circular": 0}[mode]
    for k in range(dims):
        before, after = pad[2 * k], pad[2 * k + 1]
        n = input.shape[-1 - k]
        if n == 0 and (before > 0 or after > 0):
            raise RuntimeError(
                f"pad: mode '{mode}' can't pad the empty dimension {rank - 1 - k} of {list(input.shape)}"
            )
        if mode != "replicate" and (before > n - limit or after > n - limit):
            what = "less than" if mode == "reflect" else "at most"
            raise RuntimeError(
                f"pad: padding size should be {what} the corresponding input dimension for mode "
                f"'{mode}', but got "
                f"padding ({before}, {after}) at dimension {rank - 1 - k} of input {list(input.shape)}"
            )
    last = mode != "circular" and _is_channels_last(input)
    if last:  # and so is the result
        input = input.movedim(1, -1)
    for k in range(dims):
        before, after = pad[2 * k], pad[2 * k + 1]
        if before or after:
            d = rank - 1 - k - last
            input = _f.index_select(input, d, _sources(input.shape[d], before, after, mode, input.device))
    return input.movedim(-1, 1) if last else input


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """``[*, C r^2, H, W]`` to ``[*, C, H r, W r]``.  Shi et al., 2016."""
    if upscale_factor <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {upscale_factor}")
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got {input.dim()}"
        )
    *lead, c, h, w = input.shape
    r = upscale_factor
    if c % (r * r):
        raise RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(lead)
    if _is_channels_last(input):
        x = input.movedim(1, -1).reshape([*lead, h, w, c // (r * r), r, r]).permute(0, 1, 4, 2, 5, 3)
        return x.reshape([*lead, h * r, w * r, c // (r * r)]).movedim(-1, 1)
    x = input.reshape([*lead, c // (r * r), r, r, h, w])
    return x.permute([*range(n), n, n + 3, n + 1, n + 4, n + 2]).reshape([*lead, c // (r * r), h * r, w * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """``[*, C, H r, W r]`` to ``[*, C r^2, H, W]``: the inverse of pixel_shuffle."""
    if downscale_factor <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {downscale_factor}")
    if input.dim() < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got {input.dim()}"
        )
    *lead, c, h, w = input.shape
    r = downscale_factor
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but input "
            f"{list(input.shape)} is not by {r}"
        )
    n = len(lead)
    if _is_channels_last(input):
        x = input.movedim(1, -1).reshape([*lead, h // r, r, w // r, r, c]).permute(0, 1, 3, 5, 2, 4)
        return x.reshape([*lead, h // r, w // r, c * r * r]).movedim(-1, 1)
    x = input.reshape([*lead, c, h // r, r, w // r, r])
    return x.permute([*range(n), n, n + 2, n + 4, n + 1, n + 3]).reshape([*lead, c * r * r, h // r, w // r])


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels ``[N, C, ...]`` in groups of C / groups, dealt out one of each group in turn.  Zhang et
    al., 2018.
    """
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if input.dim() < 3:
        raise RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}"
        )
    n, c, *rest = input.shape
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
        )
    return input.reshape([n, groups, c // groups, *rest]).transpose(1, 2).reshape(input.shape)
