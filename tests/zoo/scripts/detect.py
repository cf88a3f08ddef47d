"""Boxes: anchors, overlaps, suppression, a pyramid of features, focal and generalised losses, matching, RoI by grid_sample, precision."""

import itertools
import math
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

rng = np.random.RandomState(4)
torch.set_printoptions(precision=3, sci_mode=False, linewidth=100)


class Detections(NamedTuple):
    boxes: Tensor
    scores: Tensor
    labels: Tensor


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tuple[Tensor, Tensor]:
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, :, 0] * wh[:, :, 1]
    union = box_area(boxes1)[:, None] + box_area(boxes2) - inter
    return inter / union, union


def generalized_box_iou(boxes1, boxes2):
    assert (boxes1[:, 2:] >= boxes1[:, :2]).all()
    iou, union = box_iou(boxes1, boxes2)
    lt, rb = torch.min(boxes1[:, None, :2], boxes2[:, :2]), torch.max(boxes1[:, None, 2:], boxes2[:, 2:])
    area = (rb - lt).clamp(min=0).prod(dim=2)
    return iou - (area - union) / area


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    keep, order = [], scores.argsort(descending=True)
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i].unsqueeze(0), boxes[order[1:]])[0].squeeze(0)
        order = order[1:][(iou <= threshold).nonzero(as_tuple=False).squeeze(1)]
    return torch.tensor(keep, dtype=torch.int64)


def cxcywh(x: Tensor) -> Tensor:
    x0, y0, x1, y1 = x.unbind(-1)
    return torch.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0], dim=-1)


def xyxy(x):
    c, s = x.split(2, dim=-1)
    return torch.cat([c - s / 2, c + s / 2], dim=-1)


def encode(reference, anchors, weights=(1.0, 1.0, 1.0, 1.0)):
    a, r = cxcywh(anchors), cxcywh(reference)
    return torch.cat([(r[:, :2] - a[:, :2]) / a[:, 2:], torch.log(r[:, 2:] / a[:, 2:])], 1) * torch.as_tensor(
        weights
    )


def decode(deltas, anchors):
    a = cxcywh(anchors)
    return xyxy(
        torch.cat(
            [
                a[:, :2] + deltas[:, :2] * a[:, 2:],
                a[:, 2:] * deltas[:, 2:].clamp(max=math.log(1000 / 16)).exp(),
            ],
            1,
        )
    )


class AnchorGenerator(nn.Module):
    def __init__(self, sizes=((4.0,), (8.0,)), aspect_ratios=(0.5, 1.0, 2.0)):
        super().__init__()
        self.cell_anchors = [self.generate(s, aspect_ratios) for s in sizes]

    @staticmethod
    def generate(scales, ratios, dtype=torch.float32):
        scales, ratios = torch.as_tensor(scales, dtype=dtype), torch.as_tensor(ratios, dtype=dtype)
        h = torch.sqrt(ratios)
        ws, hs = ((1 / h)[:, None] * scales[None, :]).view(-1), (h[:, None] * scales[None, :]).view(-1)
        return (torch.stack([-ws, -hs, ws, hs], dim=1) / 2).round()

    def forward(self, features: List[Tensor], size: int) -> Tensor:
        anchors = []
        for f, base in zip(features, self.cell_anchors):
            stride = size // f.shape[-1]
            shifts = torch.arange(0, f.shape[-1], dtype=torch.float32) * stride
            y, x = torch.meshgrid(shifts, shifts, indexing="ij")
            shift = torch.stack((x.reshape(-1), y.reshape(-1)) * 2, dim=1)
            anchors.append((shift.view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4))
        return torch.cat(anchors)


class FPN(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.GroupNorm(2, width), nn.SiLU(True))
        self.stages = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.ReLU6(inplace=True)) for _ in range(2)]
        )
        self.lateral = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(2)])
        self.output = nn.ModuleDict({f"p{i}": nn.Conv2d(width, width, 3, padding=1) for i in range(2)})

    def forward(self, x):
        x, c = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            c.append(x)
        top = self.lateral[1](c[1])
        low = self.lateral[0](c[0]) + F.interpolate(top, size=c[0].shape[-2:], mode="nearest")
        return [self.output["p0"](low), self.output["p1"](top)]


class RetinaHead(nn.Module):
    def __init__(self, width=8, anchors=3, classes=2):
        super().__init__()
        self.classes = classes
        self.cls_logits, self.bbox_reg = (
            nn.Conv2d(width, anchors * classes, 3, padding=1),
            nn.Conv2d(width, anchors * 4, 3, padding=1),
        )

    def forward(self, features):
        def flat(t, k):
            n, _, h, w = t.shape
            return t.view(n, -1, k, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, k)

        return torch.cat([flat(self.cls_logits(f), self.classes) for f in features], 1), torch.cat(
            [flat(self.bbox_reg(f), 4) for f in features], 1
        )


def sigmoid_focal_loss(inputs, targets, alpha=0.25, gamma=2.0, reduction="none"):
    p = torch.sigmoid(inputs)
    ce_loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce_loss * ((1 - p_t) ** gamma) * (alpha * targets + (1 - alpha) * (1 - targets))
    return loss.sum() if reduction == "sum" else loss.mean() if reduction == "mean" else loss


class Matcher:
    BELOW, BETWEEN = -1, -2

    def __call__(self, quality: Tensor) -> Tensor:
        vals, matches = quality.max(dim=0)
        all_matches = matches.clone()
        matches[vals < 0.3] = self.BELOW
        matches[(vals >= 0.3) & (vals < 0.5)] = self.BETWEEN
        best, _ = quality.max(dim=1)
        _, pred = torch.where(quality == best[:, None])
        matches[pred] = all_matches[pred]
        return matches


def make(n=4, size=32):
    images, targets = torch.zeros(n, 1, size, size), []
    for i in range(n):
        w, h = rng.randint(4, 12, 2)
        x, y = rng.randint(0, size - 12, 2)
        label = int(w > h)
        images[i, 0, y : y + h, x : x + w] = 1.0
        targets.append(
            {
                "boxes": torch.tensor([[x, y, x + w, y + h]], dtype=torch.float32),
                "labels": torch.tensor([label]),
            }
        )
    return images, targets


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head, self.anchors, self.matcher = (
            FPN(),
            RetinaHead(),
            AnchorGenerator(),
            Matcher(),
        )

    def forward(self, images, targets: Optional[List[Dict[str, Tensor]]] = None):
        features = self.backbone(images)
        logits, deltas = self.head(features)
        anchors = self.anchors(features, images.shape[-1])
        if self.training:
            losses = {"classification": [], "bbox_regression": []}
            for t, c, d in zip(targets, logits, deltas):
                matched = self.matcher(box_iou(t["boxes"], anchors)[0])
                foreground = matched >= 0
                n = max(1, foreground.sum().item())
                wanted = torch.zeros_like(c)
                wanted[foreground, t["labels"][matched[foreground]]] = 1.0
                valid = matched != Matcher.BETWEEN
                losses["classification"].append(
                    sigmoid_focal_loss(c[valid], wanted[valid], reduction="sum") / n
                )
                losses["bbox_regression"].append(
                    F.smooth_l1_loss(
                        d[foreground],
                        encode(t["boxes"][matched[foreground]], anchors[foreground]),
                        beta=1 / 9,
                        reduction="sum",
                    )
                    / n
                )
            return {k: sum(v) / len(v) for k, v in losses.items()}
        found = []
        for c, d in zip(logits.sigmoid(), deltas):
            scores, flat = c.flatten().topk(30)
            which, labels = flat // c.shape[-1], flat % c.shape[-1]
            boxes = decode(d[which], anchors[which]).clamp(0, images.shape[-1])
            keep = nms(boxes + labels[:, None] * 1000.0, scores, 0.5)[:5]
            found.append(Detections(boxes[keep], scores[keep], labels[keep]))
        return found


model = Detector()
for name, p in model.named_parameters():
    p.data = torch.from_numpy(rng.randn(*p.shape).astype("f")) * (0.25 if p.dim() > 1 else 0.0) + (
        1.0 if "stem.1.weight" in name else 0.0
    )
nn.init.constant_(model.head.cls_logits.bias, -math.log((1 - 0.01) / 0.01))
print(model.backbone)
images, targets = make()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(30):
    loss_dict = model(images, targets)
    losses = sum(loss for loss in loss_dict.values())
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    if step < 3:
        print(f"step {step}", {k: round(v.item(), 3) for k, v in loss_dict.items()}, losses)
print("falls", losses.item() < 0.5)
model.eval()
with torch.no_grad():
    out = model(images)
hits = [box_iou(d.boxes[:1], t["boxes"])[0].item() for d, t in zip(out, targets)]
print("found", sum(h > 0.5 for h in hits) >= 3, type(out[0]).__name__, out[0]._fields)
a = torch.tensor([[0.0, 0, 4, 4], [2, 2, 6, 6], [10, 10, 12, 14], [0, 0, 4, 5]])
print(box_iou(a, a)[0], generalized_box_iou(a, a), sep="\n")
print(
    nms(a, torch.tensor([0.5, 0.9, 0.3, 0.6]), 0.4),
    torch.allclose(decode(encode(a, a + 1), a + 1), a, atol=1e-5),
    cxcywh(a)[1],
)


def roi_align(features, rois, size=3):
    n, c, h, w = features.shape
    lin = (torch.arange(size) + 0.5) / size
    x = rois[:, 1, None] + lin * (rois[:, 3] - rois[:, 1])[:, None]
    y = rois[:, 2, None] + lin * (rois[:, 4] - rois[:, 2])[:, None]
    grid = torch.stack(
        [(2 * x / w - 1)[:, None, :].expand(-1, size, -1), (2 * y / h - 1)[:, :, None].expand(-1, -1, size)],
        -1,
    )
    return F.grid_sample(features[rois[:, 0].long()], grid, align_corners=False, padding_mode="border")


f = torch.arange(64.0).view(1, 1, 8, 8).requires_grad_()
pooled = roi_align(f, torch.tensor([[0.0, 1, 1, 4, 4], [0, 0, 0, 8, 8]]))
pooled.max().backward()
print(pooled, f.grad.nonzero().tolist(), sep="\n")


def average_precision(scores, correct, positives):
    order = np.argsort(-scores)
    tp = torch.from_numpy(correct[order]).cumsum(0)
    precision, recall = tp / torch.arange(1, len(tp) + 1), tp / positives
    precision = torch.flip(torch.cummax(torch.flip(precision, [0]), 0).values, [0])
    return torch.trapezoid(precision, recall), precision, recall


print(*average_precision(np.array([0.9, 0.8, 0.7, 0.3]), np.array([1.0, 0.0, 1.0, 1.0]), 4))
cost = torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])
best = min(itertools.permutations(range(3)), key=lambda p: cost[range(3), p].sum().item())
print(
    best,
    cost[torch.arange(3), torch.tensor(best)].sum(),
    cost.gather(1, torch.tensor(best)[:, None]).squeeze(1),
)
masks = (torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="xy")) > 2).any(0)
ys, xs = torch.where(masks)
print(
    torch.stack([xs.min(), ys.min(), xs.max(), ys.max()]),
    masks.sum(),
    masks.float().flatten().unfold(0, 6, 6).sum(1),
)
heat = F.max_pool2d(pooled.detach(), 3, stride=1, padding=1)
print(
    (heat == pooled).sum(),
    torch.topk(pooled.flatten(1), 2).indices,
    torch.div(torch.tensor(17), 6, rounding_mode="floor"),
)
