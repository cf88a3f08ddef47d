"""Replacements for functions that the real torchvision uses from its shared libraries, which are linked
with PyTorch's: the finder returns this module for those modules of torchvision that load them and
register their operators.

``nms`` and ``deform_conv2d`` are implemented here, files of images are read and written by PIL;
torchvision has ``roi_align`` in Python too. Other operators are absent, and an AttributeError names them.
"""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

import facula
from facula import Tensor, library
from facula.serialization import replacing


def _has_ops() -> bool:
    """Returns False: torchvision's own operators are absent, and it uses its Python implementations."""
    return False


def _assert_has_ops() -> None:
    """torchvision calls this before each operator, which it then looks up by name."""


def _check_cuda_version() -> int:
    return -1


def _load_library(name: str) -> bool:
    return name == "image"  # its operators are below


def _register_custom_op() -> None:
    """Has no effect: torchvision registers exporters of its operators here."""


def _boxes(name: str, dets: Tensor, scores: Tensor) -> None:
    if dets.dim() != 2 or dets.size(1) != 4:
        raise RuntimeError(f"{name}: boxes should be a 2d tensor of 4 columns, got {tuple(dets.shape)}")
    if scores.dim() != 1 or scores.size(0) != dets.size(0):
        raise RuntimeError(
            f"{name}: scores should be a 1d tensor of {dets.size(0)} elements, one a box, "
            f"got {tuple(scores.shape)}"
        )


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Returns the boxes that no better one overlaps by more than the threshold, best first."""
    _boxes("nms", dets, scores)
    boxes, selected = dets.detach().numpy(), []
    left = scores.detach().sort(descending=True, stable=True)[1].numpy()
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while left.size:
        best, left = left[0], left[1:]
        selected.append(best)
        low, high = np.maximum(boxes[best, :2], boxes[left, :2]), np.minimum(boxes[best, 2:], boxes[left, 2:])
        width, height = np.maximum(high - low, 0).T
        common = width * height
        with np.errstate(invalid="ignore", divide="ignore"):
            left = left[~(common / (areas[best] + areas[left] - common) > iou_threshold)]
    return facula.tensor(np.array(selected, np.int64))


def _bilinear(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Interpolates ``x`` [n, c, h, w] at positions [n, p], with zeros outside: [n, c, p]."""
    (channels, height, width), flat = x.shape[1:], x.flatten(2)
    top, left = rows.floor(), columns.floor()
    row_fraction, column_fraction = rows - top, columns - left
    total: Any = 0
    for i, of_row in ((0, 1 - row_fraction), (1, row_fraction)):
        for j, of_column in ((0, 1 - column_fraction), (1, column_fraction)):
            r, c = top + i, left + j
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            place = facula.where(inside, r * width + c, 0).long()
            share = facula.where(inside, of_row * of_column, 0)
            total = total + flat.gather(2, place[:, None].expand(-1, channels, -1)) * share[:, None]
    return total


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """A convolution that reads each element of its kernel at a position shifted by ``offset`` (row,
    column).
    """
    (n, channels, h, w), (out, _, kh, kw) = input.shape, weight.shape
    oh = (h + 2 * pad_h - dilation_h * (kh - 1) - 1) // stride_h + 1
    ow = (w + 2 * pad_w - dilation_w * (kw - 1) - 1) // stride_w + 1
    for name, tensor, wanted in (
        ("offset", offset, (n, offset_groups * 2 * kh * kw, oh, ow)),
        ("mask", mask, (n, offset_groups * kh * kw, oh, ow) if use_mask else tuple(mask.shape)),
        ("weight", weight, (out, channels // groups, kh, kw)),
        ("bias", bias, (out,)),
    ):
        if tuple(tensor.shape) != wanted:
            raise RuntimeError(f"deform_conv2d: {name} should have shape {wanted}, got {tuple(tensor.shape)}")
    if channels % groups or out % groups or channels % offset_groups:
        raise RuntimeError(
            f"deform_conv2d: channels {channels} and {out} should be divisible by the groups, {groups} and "
            f"{offset_groups}"
        )
    many, taps = n * offset_groups, kh * kw
    moved = offset.reshape(many, taps, 2, oh, ow)
    down = facula.arange(kh).repeat_interleave(kw) * dilation_h
    across = facula.arange(kw).repeat(kh) * dilation_w
    rows = moved[:, :, 0] + (down[:, None] + facula.arange(oh) * stride_h - pad_h)[:, :, None]
    columns = moved[:, :, 1] + (across[:, None] + facula.arange(ow) * stride_w - pad_w)[:, None, :]
    read = _bilinear(input.reshape(many, -1, h, w), rows.flatten(1), columns.flatten(1))
    if use_mask:
        read = read * mask.reshape(many, 1, -1)
    read = read.reshape(n, groups, channels // groups * taps, oh * ow)
    result = weight.reshape(groups, out // groups, -1) @ read
    return result.reshape(n, out, oh, ow) + bias[:, None, None]


_MODES = (None, "L", "LA", "RGB", "RGBA")  # torchvision.io.ImageReadMode


def _decode(
    name: str, formats: tuple[str, ...], data: Tensor, mode: int, apply_exif_orientation: bool = False
) -> Tensor:
    from PIL import Image, ImageOps

    if data.dtype != facula.uint8 or data.dim() != 1 or not data.numel():
        raise RuntimeError(
            f"{name}: needs a 1d uint8 tensor of at least one byte, got {data.dtype} {tuple(data.shape)}"
        )
    try:
        image: Any = Image.open(io.BytesIO(data.numpy().tobytes()), formats=formats)
        if image.format == "JPEG" and mode == 1:
            image.draft("L", image.size)  # reads brightness directly from the file
        image.load()
    except OSError as e:
        raise RuntimeError(f"{name}: {e}") from e
    if apply_exif_orientation:
        image = ImageOps.exif_transpose(image)
    if image.mode in ("P", "1") or (
        _MODES[mode] and image.mode != _MODES[mode] and not image.mode.startswith("I")
    ):
        transparent = "RGBA" if "transparency" in image.info else "L" if image.mode == "1" else "RGB"
        image = image.convert(_MODES[mode] or transparent)
    pixels = np.asarray(image)
    return facula.tensor(np.ascontiguousarray(np.moveaxis(np.atleast_3d(pixels), 2, 0)))


def decode_image(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    if bytes(data[:4].tolist()) == b"GIF8":
        return decode_gif(data)
    return _decode("decode_image", ("JPEG", "PNG", "WEBP"), data, mode, apply_exif_orientation)


def decode_jpeg(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    return _decode("decode_jpeg", ("JPEG",), data, mode, apply_exif_orientation)


def decode_png(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    return _decode("decode_png", ("PNG",), data, mode, apply_exif_orientation)


def decode_webp(data: Tensor, mode: int) -> Tensor:
    return _decode("decode_webp", ("WEBP",), data, mode)


def decode_gif(data: Tensor) -> Tensor:
    """Several images become a batch."""
    from PIL import Image, ImageSequence

    image = Image.open(io.BytesIO(data.numpy().tobytes()), formats=("GIF",))
    frames = [np.asarray(f.convert("RGB")).transpose(2, 0, 1) for f in ImageSequence.Iterator(image)]
    return facula.tensor(np.stack(frames) if len(frames) > 1 else frames[0])


def _encode(name: str, image: Tensor, **options: Any) -> Tensor:
    from PIL import Image

    if image.dtype != facula.uint8 or image.dim() != 3 or image.size(0) not in (1, 3):
        raise RuntimeError(
            f"{name}: needs a uint8 tensor [1 or 3, H, W], got {image.dtype} {tuple(image.shape)}"
        )
    pixels, file = image.numpy().transpose(1, 2, 0), io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[..., 0] if image.size(0) == 1 else pixels)).save(
        file, **options
    )
    return _bytes(file.getvalue())


def encode_png(image: Tensor, compression_level: int) -> Tensor:
    return _encode("encode_png", image, format="PNG", compress_level=compression_level)


def encode_jpeg(image: Tensor, quality: int) -> Tensor:
    return _encode("encode_jpeg", image, format="JPEG", quality=quality)


def _bytes(data: bytes) -> Tensor:
    return facula.tensor(np.frombuffer(data, np.uint8).copy())


def read_file(filename: str) -> Tensor:
    if not os.path.isfile(filename):
        raise RuntimeError(f"[Errno 2] No such file or directory: '{filename}'")
    with open(filename, "rb") as file:
        return _bytes(file.read())


def write_file(filename: str, data: Tensor) -> None:
    with replacing(filename, "write_file") as file:
        file.write(data.numpy().tobytes())


_IMAGE = "(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor"
for _f, _schema in (
    (read_file, "(str filename) -> Tensor"),
    (write_file, "(str filename, Tensor data) -> ()"),
    (decode_image, _IMAGE),
    (decode_jpeg, _IMAGE),
    (decode_png, _IMAGE),
    (decode_webp, "(Tensor data, int mode) -> Tensor"),
    (decode_gif, "(Tensor data) -> Tensor"),
    (encode_png, "(Tensor data, int compression_level) -> Tensor"),
    (encode_jpeg, "(Tensor data, int quality) -> Tensor"),
):
    library.define("image::" + _f.__name__, _schema)
    library.impl("image::" + _f.__name__, "CPU", _f)
library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
library.impl("torchvision::nms", "CPU", nms)
library.define(
    "torchvision::deform_conv2d",
    "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)
library.impl("torchvision::deform_conv2d", "CompositeImplicitAutograd", deform_conv2d)
