"""A spatial transformer that straightens digits, layouts in memory, and convolutions of every kind."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(4)
torch.set_printoptions(precision=3, sci_mode=False)


def tensor(*sizes, scale=1.0):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32)) * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2 = nn.Conv2d(4, 6, kernel_size=5)
        self.conv2_drop = nn.Dropout2d(0.0)
        self.fc1 = nn.Linear(6 * 4 * 4, 16)
        self.fc2 = nn.Linear(16, 4)
        self.localization = nn.Sequential(
            nn.Conv2d(1, 4, kernel_size=7), nn.MaxPool2d(2, stride=2), nn.ReLU(True),
            nn.Conv2d(4, 5, kernel_size=5), nn.MaxPool2d(2, stride=2), nn.ReLU(True),
        )  # fmt: skip
        self.fc_loc = nn.Sequential(nn.Linear(5 * 3 * 3, 8), nn.ReLU(True), nn.Linear(8, 3 * 2))

    def stn(self, x):
        xs = self.localization(x).view(-1, 5 * 3 * 3)
        theta = self.fc_loc(xs).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def bars(n):
    """Bars at four angles, shifted a little."""
    y, x = np.mgrid[-1:1:28j, -1:1:28j]
    labels = rng.randint(0, 4, n)
    shifts = rng.rand(n, 2) * 0.4 - 0.2
    pics = []
    for label, (dx, dy) in zip(labels, shifts):
        angle = label * np.pi / 4
        pics.append(
            np.exp(-(((x - dx) * np.sin(angle) - (y - dy) * np.cos(angle)) ** 2) * 40)
            * ((x - dx) ** 2 + (y - dy) ** 2 < 0.6)
        )
    return torch.tensor(np.stack(pics)[:, None], dtype=torch.float32), torch.from_numpy(labels)


model = Net()
for p in model.parameters():
    fan = p[0].numel() if p.dim() > 1 else 1
    p.data = tensor(*p.shape, scale=fan**-0.5 if p.dim() > 1 else 0.05)
model.fc_loc[2].weight.data.zero_()
model.fc_loc[2].bias.data.copy_(torch.tensor([0.93, 0.031, 0.017, -0.043, 1.057, 0.011]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
images, labels = bars(32)
for step in range(8):
    optimizer.zero_grad()
    loss = F.nll_loss(model(images), labels)
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
with torch.no_grad():
    theta = model.fc_loc(model.localization(images[:1]).view(-1, 45)).view(2, 3)
    print(theta, (model(images).argmax(1) == labels).float().mean() > 0.3)

# ---- memory formats
N, C, H, W = 4, 3, 8, 10
x = tensor(N, C, H, W)
print(x.stride(), x.is_contiguous())
x = x.to(memory_format=torch.channels_last)
print(x.shape, x.stride(), x.is_contiguous(memory_format=torch.channels_last), x.is_contiguous())
print(
    (x + x).stride(),
    x.clone().stride(),
    x.clone(memory_format=torch.contiguous_format).stride(),
    torch.empty_like(x).stride(),
)
special = torch.empty(4, 1, 4, 4)
print(special.is_contiguous(memory_format=torch.channels_last), special.is_contiguous())
net = nn.Sequential(
    nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 2, 2)
)
for p in net.parameters():
    p.data = tensor(*p.shape, scale=0.3)
plain = net(x.contiguous())
net = net.to(memory_format=torch.channels_last)
out = net(x)
print(
    net[0].weight.stride(),
    out.is_contiguous(memory_format=torch.channels_last),
    torch.allclose(out, plain, atol=1e-5),
)
out.sum().backward()
print(net[0].weight.grad.shape, round(net[0].weight.grad.abs().sum().item(), 2))
print(
    x.permute(0, 2, 3, 1).is_contiguous(),
    torch.suggest_memory_format(x) if hasattr(torch, "suggest_memory_format") else "none",
)

# ---- convolutions
sig = tensor(2, 4, 12)
w = tensor(6, 2, 3)
for options in (
    {"groups": 2},
    {"groups": 2, "stride": 2},
    {"groups": 2, "padding": "same"},
    {"groups": 2, "dilation": 3, "padding": 3},
):
    y = F.conv1d(sig, w, **options)
    print(options, tuple(y.shape), round(y.sum().item(), 3))
img = tensor(1, 1, 6, 6)
cols = F.unfold(img, 3)
kernel = tensor(2, 1, 3, 3)
print(torch.allclose((kernel.view(2, -1) @ cols).view(1, 2, 4, 4), F.conv2d(img, kernel), atol=1e-5))
print(F.fold(cols, (6, 6), 3)[0, 0, 2], F.pixel_shuffle(tensor(1, 4, 2, 2), 2).shape)
print(F.conv_transpose2d(F.conv2d(img, kernel), kernel, output_padding=0).shape, F.lp_pool2d(img, 2, 2).shape)
depth = nn.Conv2d(4, 8, 3, groups=4, padding=1, padding_mode="reflect")
for p in depth.parameters():
    p.data = tensor(*p.shape)
print(round(depth(tensor(1, 4, 5, 5)).sum().item(), 3), depth)
for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    corners = {} if mode in ("nearest", "area", "nearest-exact") else {"align_corners": False}
    up = F.interpolate(img, scale_factor=1.5, mode=mode, **corners)
    down = F.interpolate(img, size=(3, 4), mode=mode, **corners, **({"antialias": True} if corners else {}))
    print(mode, tuple(up.shape), round(up.sum().item(), 3), round(down.sum().item(), 3))
grid = torch.stack(
    torch.meshgrid(
        torch.tensor([-1.17, -0.33, 0.41, 1.23]), torch.tensor([-0.97, -0.31, 0.29, 0.91]), indexing="xy"
    ),
    -1,
)[None]
for mode in ("bilinear", "nearest", "bicubic"):
    for pad in ("zeros", "border", "reflection"):
        print(mode, pad, round(F.grid_sample(img, grid, mode, pad, align_corners=True).sum().item(), 3))
