"""Boxes ``(x1, y1, x2, y2)``, one a row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._absent import naming

__getattr__ = naming(__name__)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that no better one overlaps by more than the threshold, best first."""
    from facula._alias import vision

    return vision.nms(boxes, scores, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """``nms`` among boxes of the same category, which ``idxs`` gives."""
    kept = [rows[nms(boxes[rows], scores[rows], iou_threshold)] for rows in map(_rows(idxs), idxs.unique())]
    if not kept:
        return torch.empty(0, dtype=torch.int64)
    all_kept = torch.cat(kept)
    return all_kept[scores[all_kept].argsort(descending=True, stable=True)]


def _rows(idxs: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda category: (idxs == category).nonzero()[:, 0]


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """The intersection over the union of each pair of boxes, ``[n, m]``."""
    low = torch.maximum(boxes1[:, None, :2], boxes2[:, :2])
    high = torch.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
    common = (high - low).clamp(min=0).prod(2)
    return common / (box_area(boxes1)[:, None] + box_area(boxes2) - common)
