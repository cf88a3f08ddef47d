"""A vision transformer, a U-Net with a dice loss, boxes with suppression, a diffusion step, CTC, early stopping."""

import math
from functools import partial

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rng = np.random.default_rng(8)
torch.set_default_dtype(torch.float64)


def init_weights(m, std=0.2):
    if isinstance(m, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
        m.weight.data = torch.from_numpy(rng.normal(0, std, tuple(m.weight.shape)))
        if m.bias is not None:
            nn.init.zeros_(m.bias)


class Attention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=False), nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        fused = F.scaled_dot_product_attention(q, k, v)
        attn = (q @ k.transpose(-2, -1) * self.scale).softmax(dim=-1)
        assert torch.allclose(attn @ v, fused)
        return self.proj(fused.transpose(1, 2).reshape(B, N, C))


class DropPath(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.p)
        return x * keep / (1 - self.p)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), Attention(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * 2), nn.GELU(approximate="tanh"), nn.Linear(dim * 2, dim)
        )
        self.drop_path, self.gamma = DropPath(), nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        x = x + self.drop_path(self.gamma * self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, dim=16, depth=2, classes=2):
        super().__init__()
        self.patch_embed = nn.Conv2d(1, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, dim))
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)
        self.apply(partial(init_weights, std=0.25))

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


images = torch.from_numpy(rng.normal(0, 0.3, (64, 1, 16, 16)))
labels = torch.arange(64) % 2
images[labels == 0, :, 4:8] += 1
images[labels == 1, :, :, 4:8] += 1
vit = ViT()
print(vit.blocks[0], sum(p.numel() for p in vit.parameters()))
decay = [p for n, p in vit.named_parameters() if p.ndim > 1 and "embed" not in n]
rest = [p for n, p in vit.named_parameters() if not (p.ndim > 1 and "embed" not in n)]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=5e-3
)
scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4, T_mult=2)
best, patience = math.inf, 0
for epoch in range(6):
    for k, (inputs, targets) in enumerate(DataLoader(TensorDataset(images, labels), batch_size=16)):
        lam, index = rng.beta(0.2, 0.2), torch.from_numpy(rng.permutation(len(inputs)))
        mixed = lam * inputs + (1 - lam) * inputs[index]
        soft = lam * F.one_hot(targets, 2) + (1 - lam) * F.one_hot(targets[index], 2)
        loss = F.cross_entropy(vit(mixed), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(epoch + k / 4)
    with torch.no_grad():
        val = F.cross_entropy(vit.eval()(images), labels)
        vit.train()
    if val < best:
        best, patience = val, 0
    else:
        patience += 1
    print(f"{epoch} {loss:.4f} {val:.4f} {optimizer.param_groups[0]['lr']:.6f} {patience}")


class DoubleConv(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.Mish(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.pool = (
            DoubleConv(1, 4),
            DoubleConv(4, 8),
            nn.MaxPool2d(2, return_indices=False),
        )
        self.up, self.conv, self.outc = (
            nn.ConvTranspose2d(8, 4, 2, stride=2),
            DoubleConv(8, 4),
            nn.Conv2d(4, 1, 1),
        )

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.up(self.down(self.pool(x1)))
        dy, dx = x1.size(2) - x2.size(2), x1.size(3) - x2.size(3)
        x2 = F.pad(x2, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.outc(self.conv(torch.cat([x1, x2], dim=1)))


def dice_loss(logits, target, smooth=1.0):
    p = logits.sigmoid().flatten(1)
    t = target.flatten(1)
    return (1 - (2 * (p * t).sum(1) + smooth) / (p.sum(1) + t.sum(1) + smooth)).mean()


unet = UNet()
unet.apply(init_weights)
unet = unet.to(memory_format=torch.channels_last)
masks = (F.avg_pool2d(images, 3, 1, 1) > 0.5).to(images.dtype)
optimizer = torch.optim.Rprop(unet.parameters(), lr=0.01)
for step in range(7):
    logits = unet(images[:8, :, :15, :15].contiguous(memory_format=torch.channels_last))
    target = masks[:8, :, :15, :15]
    loss = F.binary_cross_entropy_with_logits(logits, target, pos_weight=torch.tensor(2.0)) + dice_loss(
        logits, target
    )
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    if step % 3 == 0:
        iou = ((logits > 0) & (target > 0)).sum() / ((logits > 0) | (target > 0)).sum()
        print(
            step,
            f"{loss.item():.4f} {iou.item():.3f}",
            logits.is_contiguous(memory_format=torch.channels_last),
        )


def box_iou(a, b):
    tl, br = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (br - tl).clamp(min=0).prod(-1)
    area = lambda t: (t[:, 2:] - t[:, :2]).prod(-1)  # noqa: E731
    return inter / (area(a)[:, None] + area(b) - inter)


def nms(boxes, scores, threshold):
    order, keep = scores.argsort(descending=True), []
    while order.numel() > 0:
        keep.append(order[0].item())
        overlap = box_iou(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][overlap <= threshold]
    return torch.tensor(keep)


boxes = torch.tensor(
    [[0, 0, 4, 4], [0, 0, 4, 5], [6, 6, 9, 9], [6, 5, 9, 9], [1, 1, 2, 2]], dtype=torch.float
)
print(box_iou(boxes, boxes[:2]), nms(boxes, torch.tensor([0.9, 0.8, 0.3, 0.7, 0.5]), 0.5))
ys, xs = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
print(
    torch.stack([xs, ys], -1).view(-1, 2).tolist(),
    torch.cartesian_prod(torch.arange(2), torch.arange(2)).tolist(),
)
focal = -((1 - torch.tensor([0.2, 0.9])) ** 2) * torch.tensor([0.2, 0.9]).log()
print(
    focal,
    F.smooth_l1_loss(boxes[0], boxes[1], beta=0.5),
    torch.where(boxes > 4),
    boxes[boxes[:, 0] > 1][:, [0, -1]],
)

beta = torch.linspace(1e-4, 0.02, 50)
alphas_cumprod = torch.cumprod(1 - beta, dim=0)
t = torch.tensor([0, 10, 49])
noise = torch.from_numpy(rng.normal(size=(3, 1, 8, 8)))
extract = lambda a, t, x: a.gather(0, t).view(-1, *((1,) * (x.ndim - 1)))  # noqa: E731
noised = (
    extract(alphas_cumprod.sqrt(), t, noise) * images[:3, :, :8, :8]
    + extract((1 - alphas_cumprod).sqrt(), t, noise) * noise
)
frequencies = torch.exp(-math.log(10000) * torch.arange(4) / 4)
embedding = torch.cat([(t[:, None] * frequencies).sin(), (t[:, None] * frequencies).cos()], -1)
print(noised.std(dim=(1, 2, 3)), embedding[1])
small = F.interpolate(noised, scale_factor=0.5, mode="bicubic", align_corners=False, antialias=True)
print(
    small[0, 0, 0],
    F.pixel_shuffle(torch.arange(16.0).view(1, 4, 2, 2), 2)[0, 0, 0],
    F.unfold(noised, 4, stride=4).shape,
)
grid = F.affine_grid(torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]]), (1, 1, 4, 4), align_corners=False)
print(F.grid_sample(torch.arange(16.0).view(1, 1, 4, 4), grid, align_corners=False)[0, 0])

log_probs = torch.from_numpy(rng.normal(size=(12, 2, 5))).log_softmax(2).requires_grad_()
targets, lengths = torch.tensor([[1, 2, 2, 3], [4, 1, 0, 0]]), torch.tensor([4, 2])
ctc = nn.CTCLoss(blank=0, zero_infinity=True)(log_probs, targets, torch.tensor([12, 10]), lengths)
ctc.backward()
print(ctc, log_probs.grad.norm(), [torch.unique_consecutive(row).tolist() for row in log_probs.argmax(2).t()])
