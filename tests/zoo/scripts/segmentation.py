"""Segmentation: a U-Net with transposed convolutions, dice, focal and Tversky losses, confusion, a plateau schedule."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, random_split

CLASSES = 3


class Shapes(Dataset):
    """Discs and bars on a noisy ground; the border of each is to be ignored."""

    def __init__(self, count, size=30):
        rng = np.random.RandomState(0)
        self.images, self.masks = [], []
        y, x = np.mgrid[0:size, 0:size]
        for _ in range(count):
            cx, cy, r = rng.randint(8, 22, 2).tolist() + [rng.randint(4, 7)]
            mask = np.zeros((size, size), np.int64)
            d = np.hypot(x - cx, y - cy)
            mask[d < r] = 1
            at = rng.randint(2, size - 5)
            mask[at : at + 3, 2:-2] = 2
            image = np.stack([mask == 1, mask == 2, mask == 0]).astype(np.float32)
            image = image * 0.6 + rng.randn(3, size, size).astype(np.float32) * 0.3
            mask[np.abs(d - r) < 0.5] = 255
            self.images.append(image)
            self.masks.append(mask)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": torch.as_tensor(self.images[i]), "mask": torch.as_tensor(self.masks[i]).long()}


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.LeakyReLU(0.1, inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels + out_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels // 2 + out_channels, out_channels)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, width=8):
        super().__init__()
        self.inc = DoubleConv(n_channels, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), DoubleConv(width * 2**k, width * 2 ** (k + 1))) for k in range(2)
        )
        self.up1 = Up(width * 4, width * 2, bilinear=False)
        self.up2 = Up(width * 2, width)
        self.drop = nn.Dropout2d(0.0)
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down[0](x1)
        x3 = self.down[1](x2)
        return self.outc(self.drop(self.up2(self.up1(x3, x2), x1)))


def dice_loss(logits, target, smooth=1.0):
    keep = (target != 255).unsqueeze(1)
    hot = F.one_hot(target.masked_fill(target == 255, 0), CLASSES).permute(0, 3, 1, 2).float()
    p = logits.softmax(1) * keep
    hot = hot * keep
    inter = torch.einsum("bcwh,bcwh->bc", p, hot)
    union = torch.einsum("bcwh->bc", p) + torch.einsum("bcwh->bc", hot)
    return 1 - ((2 * inter + smooth) / (union + smooth)).mean()


def focal_loss(logits, target, gamma=2.0):
    ce = F.cross_entropy(logits, target, ignore_index=255, reduction="none")
    return ((1 - torch.exp(-ce)) ** gamma * ce).sum() / (target != 255).sum()


def tversky(logits, target, alpha=0.3):
    p, t = logits.softmax(1)[:, 1].flatten(1), (target == 1).flatten(1).to(logits.dtype)
    tp, fp, fn = (p * t).sum(1), (p * (1 - t)).sum(1), ((1 - p) * t).sum(1)
    return 1 - (tp / (tp + alpha * fp + (1 - alpha) * fn).clamp_min(1e-6)).mean()


def confusion(pred, target):
    keep = target.ne(255)
    at = target[keep] * CLASSES + pred[keep]
    return torch.bincount(at, minlength=CLASSES**2).view(CLASSES, CLASSES)


data = Shapes(28)
train_set, val_set = random_split(data, [24, 4], generator=torch.Generator().manual_seed(0))
train_set.indices, val_set.indices = list(range(24)), list(range(24, 28))
loader = DataLoader(train_set, batch_size=8, shuffle=False, drop_last=True, num_workers=0)
counts = torch.stack([torch.bincount(d["mask"].view(-1), minlength=256)[:CLASSES] for d in data]).sum(0)
weights = counts.sum() / (CLASSES * counts.float())
print("pixels", counts.tolist(), "weights", [round(w, 3) for w in weights.tolist()])

net = UNet(3, CLASSES)
rng = np.random.RandomState(1)
with torch.no_grad():
    for p in net.parameters():
        if p.dim() == 4:
            p.copy_(torch.from_numpy(rng.randn(*p.shape)) / p[0].numel() ** 0.5)
        elif p is net.outc.bias:
            p.zero_()
    net.up1.up.bias.fill_(0.05)
print("parameters", sum(p.numel() for p in net.parameters()), "of", len(list(net.named_modules())), "modules")
criterion = nn.CrossEntropyLoss(weight=weights, ignore_index=255)
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3, weight_decay=1e-8, momentum=0.6, foreach=True)
scheduler = ReduceLROnPlateau(optimizer, "max", patience=0, factor=0.5, threshold=0.02)
for epoch in range(4):
    net.train()
    for k, batch in enumerate(loader):
        logits = net(batch["image"])
        loss = criterion(logits, batch["mask"]) + dice_loss(logits, batch["mask"])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), clip_value=1.0)
        optimizer.step()
        if epoch == 0:
            print(
                f"  step {k} loss {loss.item():.4f} focal {focal_loss(logits, batch['mask']).item():.4f}"
                f" tversky {tversky(logits, batch['mask']).item():.4f}"
            )
    net.eval()
    matrix = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    with torch.no_grad():
        for item in val_set:
            matrix += confusion(net(item["image"][None]).argmax(1)[0], item["mask"])
    score = (matrix.diag().sum() / matrix.sum()).item()
    scheduler.step(score)
    print(
        f"epoch {epoch} loss falls {loss.item() < 1.6} accurate {score > 0.5} counted {matrix.sum().item()}"
    )
intersection = matrix.diag()
iou = intersection / (matrix.sum(0) + matrix.sum(1) - intersection)
print("iou", bool(iou.mean() > 0.4), iou.shape, "bad epochs", scheduler.num_bad_epochs <= 1)
boundary = F.max_pool2d(data[0]["mask"].eq(1)[None].float(), 3, 1, 1) - data[0]["mask"].eq(1)[None].float()
print(
    "boundary",
    int(boundary.sum()),
    boundary.nonzero()[0].tolist(),
    boundary.nonzero(as_tuple=True)[2][:5].tolist(),
)
