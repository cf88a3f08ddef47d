"""Super-resolution: an ESPCN with PixelShuffle, tiles by unfold and fold, PSNR and SSIM, an exponential average."""

import copy
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.RandomState(3)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def waves(count, size):
    y, x = np.mgrid[0:size, 0:size] / size
    out = np.zeros((count, 1, size, size), dtype=np.float32)
    for k in range(count):
        for _ in range(3):
            a, b, c = rng.uniform(1, 6, 3)
            out[k, 0] += np.sin(a * x * 3 + b * y * 3 + c) / 3
    return torch.from_numpy(out * 0.5 + 0.5)


class SuperResolutionNet(nn.Module):
    def __init__(self, upscale_factor, inplace=False):
        super(SuperResolutionNet, self).__init__()
        self.relu = nn.ReLU(inplace=inplace)
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1), padding_mode="replicate")
        self.conv3 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        base = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return base + self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                values = rng.standard_normal(m.weight.shape).astype(np.float32)
                m.weight.data = torch.from_numpy(values) * math.sqrt(1 / m.weight[0].numel())
                nn.init.zeros_(m.bias)
        nn.init.constant_(self.conv3.weight, 0.01)


def psnr(a, b):
    return 10 * torch.log10(1 / F.mse_loss(a, b))


def ssim(a, b, window=7):
    g = torch.exp(-((torch.arange(window).float() - window // 2) ** 2) / (2 * 1.5**2))
    kernel = torch.outer(g / g.sum(), g / g.sum()).expand(1, 1, window, window).contiguous()
    mu = [F.conv2d(t, kernel) for t in (a, b)]
    var = [F.conv2d(t * t, kernel) - m.pow(2) for t, m in zip((a, b), mu)]
    cov = F.conv2d(a * b, kernel) - mu[0] * mu[1]
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mu[0] * mu[1] + c1) * (2 * cov + c2)
    return (top / ((mu[0] ** 2 + mu[1] ** 2 + c1) * (var[0] + var[1] + c2))).mean()


high = waves(24, 32).to(device)
low = F.interpolate(high, size=(16, 16), mode="area")
print("data", tuple(high.shape), tuple(low.shape), f"{low.mean().item():.4f} {low.std().item():.4f}")
train = DataLoader(TensorDataset(low[:16], high[:16]), batch_size=4, shuffle=False)

model = SuperResolutionNet(upscale_factor=2, inplace=True).to(device)
print(model)
average = copy.deepcopy(model)
for p in average.parameters():
    p.requires_grad_(False)
criterion = nn.SmoothL1Loss(beta=0.1)
optimizer = optim.Adam(
    [
        {"params": list(model.conv1.parameters()) + list(model.conv2.parameters())},
        {"params": model.conv3.parameters(), "lr": 5e-4},
    ],
    lr=2e-3,
    betas=(0.9, 0.99),
)
scheduler = MultiStepLR(optimizer, milestones=[3, 5], gamma=0.5)
for epoch in range(6):
    model.train()
    total = 0.0
    for x, y in train:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.mul_(0.9).add_(p.detach(), alpha=0.1)
        total += loss.item() * len(x)
    scheduler.step()
    rates = ["%.6f" % r for r in scheduler.get_last_lr()]
    print(f"epoch {epoch} loss {total / 16:.5f} norm {norm:.3f} lr {rates}")

model.eval()
with torch.inference_mode():
    x, y = low[16:], high[16:]
    for name, out in (
        ("nearest", F.interpolate(x, scale_factor=2)),
        ("bilinear", nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)(x)),
        ("bicubic", F.interpolate(x, scale_factor=(2.0, 2.0), mode="bicubic")),
        ("network", model(x)),
        ("average", average(x)),
    ):
        out = out.clamp(0.0, 1.0)
        print(f"{name:9s} psnr {psnr(out, y).item():.3f} ssim {ssim(out, y).item():.4f}")

    # A large picture in overlapping tiles, put together again.
    picture = waves(1, 48)
    tiles = F.unfold(picture, kernel_size=24, stride=12)
    count = tiles.shape[-1]
    pieces = tiles.permute(0, 2, 1).reshape(count, 1, 24, 24)
    done = torch.cat([average(piece[None]) for piece in pieces], 0)
    flat = done.reshape(1, count, -1).transpose(1, 2)
    whole = F.fold(flat, output_size=(96, 96), kernel_size=48, stride=24)
    weight = F.fold(torch.ones_like(flat), (96, 96), 48, stride=24)
    whole = whole / weight
    print("tiles", count, tuple(whole.shape), f"{(whole - average(picture)).abs().mean().item():.4f}")

    again = F.pixel_shuffle(F.pixel_unshuffle(y, 2), 2)
    print("there and back", torch.equal(again, y), tuple(nn.PixelUnshuffle(4)(y).shape))
    flips = torch.stack([torch.flip(average(torch.flip(x, [d])), [d]) for d in (2, 3)])
    turned = torch.rot90(average(torch.rot90(x, 1, (2, 3))), -1, (2, 3))
    ensemble = torch.cat([flips, turned[None], average(x)[None]]).mean(dim=0)
    print(f"ensemble {psnr(ensemble, y).item():.3f}")
    grey = (ensemble * 255).round().clamp(0, 255).to(torch.uint8)
    print(grey.dtype, grey[0, 0, :2, :6].tolist(), grey.float().median().item())
