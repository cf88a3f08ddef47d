"""A small NeRF: rays of cameras, encodings of places, volume rendering, finer samples drawn from a density; then a SIREN."""

import argparse
import math
from typing import NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=10)
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args([])
device = torch.device(args.device)
rng = np.random.RandomState(4)
torch.set_printoptions(precision=4, sci_mode=False, linewidth=110)
torch.set_default_dtype(torch.float64)


class Rays(NamedTuple):
    origins: Tensor
    directions: Tensor

    def at(self, t: Tensor) -> Tensor:
        return self.origins[..., None, :] + self.directions[..., None, :] * t[..., :, None]


def translation(t):
    return torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, t], [0, 0, 0, 1]]).to(
        torch.get_default_dtype()
    )


def rotation(axis, angle):
    m, (c, s) = torch.eye(4), (math.cos(angle), math.sin(angle))
    i, j = {"phi": (1, 2), "theta": (0, 2)}[axis]
    m[i, i] = m[j, j] = c
    m[i, j], m[j, i] = -s, s
    return m


def pose(theta, phi, radius):
    c2w = rotation("theta", theta / 180 * np.pi) @ rotation("phi", phi / 180.0 * np.pi) @ translation(radius)
    return torch.Tensor([[-1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]]) @ c2w


def get_rays(h, w, focal, c2w) -> Rays:
    i, j = torch.meshgrid(torch.arange(w), torch.arange(h), indexing="xy")
    dirs = torch.stack([(i - w * 0.5) / focal, -(j - h * 0.5) / focal, -torch.ones_like(i)], -1)
    directions = torch.sum(dirs[..., None, :] * c2w[:3, :3], -1)
    return Rays(c2w[:3, -1].expand(directions.shape), directions)


def encode(x, levels):
    freqs = 2.0 ** torch.linspace(0.0, levels - 1, steps=levels)
    angles = x[..., None] * freqs
    return torch.cat([x, torch.stack([angles.sin(), angles.cos()], -1).flatten(-3)], dim=-1)


class NeRF(nn.Module):
    def __init__(self, levels=4, view_levels=2, width=32, skips=(1,)):
        super().__init__()
        inputs, views = 3 + 6 * levels, 3 + 6 * view_levels
        self.levels, self.view_levels, self.skips = levels, view_levels, skips
        self.points = nn.ModuleList(
            [nn.Linear(inputs, width)]
            + [nn.Linear(width + inputs if i in skips else width, width) for i in range(2)]
        )
        self.sigma = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.view = nn.Linear(width + views, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, x: Tensor, d: Tensor) -> Tuple[Tensor, Tensor]:
        e = h = encode(x, self.levels)
        for i, layer in enumerate(self.points):
            h = F.relu(layer(h), inplace=True)
            if i in self.skips:
                h = torch.cat([e, h], -1)
        sigma = self.sigma(h[..., -32:])
        v = encode(F.normalize(d, dim=-1), self.view_levels)[..., None, :].expand(*h.shape[:-1], -1)
        h = F.relu(self.view(torch.cat([self.feature(h[..., -32:]), v], -1)))
        return torch.sigmoid(self.rgb(h)), F.softplus(sigma.squeeze(-1) - 1)


def cumprod_exclusive(t: Tensor) -> Tensor:
    c = torch.roll(torch.cumprod(t, dim=-1), 1, dims=-1)
    c[..., 0] = 1.0
    return c


def render(rgb, sigma, z, white=True):
    one_e_10 = torch.tensor([1e10], dtype=z.dtype, device=z.device).expand(z[..., :1].shape)
    dists = torch.cat((z[..., 1:] - z[..., :-1], one_e_10), dim=-1)
    alpha = 1.0 - torch.exp(-sigma * dists)
    weights = alpha * cumprod_exclusive(1.0 - alpha + 1e-10)
    depth = (weights * z).sum(-1)
    acc = weights.sum(dim=-1)
    colors = torch.einsum("...n,...nc->...c", weights, rgb)
    return colors + (1.0 - acc[..., None]) if white else colors, depth, acc, weights


def sample_pdf(bins, weights, n, u: Optional[Tensor] = None):
    weights = weights + 1e-5
    cdf = torch.cumsum(weights / weights.sum(-1, keepdim=True), -1)
    cdf = torch.cat([torch.zeros_like(cdf[..., :1]), cdf], -1)
    if u is None:
        u = torch.linspace(0.0, 1.0, steps=n).expand(list(cdf.shape[:-1]) + [n])
    u = u.contiguous()
    inds = torch.searchsorted(cdf, u, right=True)
    below, above = (inds - 1).clamp_min(0), inds.clamp_max(cdf.shape[-1] - 1)
    inds_g = torch.stack([below, above], -1)
    shape = [*inds_g.shape[:-1], cdf.shape[-1]]
    cdf_g = torch.gather(cdf.unsqueeze(-2).expand(shape), -1, inds_g)
    bins_g = torch.gather(bins.unsqueeze(-2).expand(shape), -1, inds_g)
    denom = cdf_g[..., 1] - cdf_g[..., 0]
    denom = torch.where(denom < 1e-5, torch.ones_like(denom), denom)
    t = (u - cdf_g[..., 0]) / denom
    return bins_g[..., 0] + t * (bins_g[..., 1] - bins_g[..., 0])


def truth(rays: Rays):
    """A ball that is red above and blue below, over white."""
    o, d = rays.origins, F.normalize(rays.directions, dim=-1)
    b = (o * d).sum(-1)
    disc = b.square() - o.pow(2).sum(-1) + 1.0
    hit = disc >= 0
    z = -b - disc.clamp(min=0).sqrt()
    top = ((o + z[..., None] * d)[..., 2] > 0)[..., None]
    color = torch.where(top, torch.tensor([0.9, 0.1, 0.1]), torch.tensor([0.1, 0.2, 0.9]))
    return torch.where(hit[..., None], color, torch.ones(3)), hit


h = w = args.size
poses = torch.stack([pose(a, -30.0, 3.0) for a in np.linspace(-180, 180, 5)[:-1]])
print(poses[1], poses.dtype, torch.linalg.det(poses[:, :3, :3]))
images, hits = zip(*(truth(get_rays(h, w, h * 1.1, p)) for p in poses))
images = torch.stack(images)
print("hit", [int(m.sum()) for m in hits], images.mean((1, 2))[0])

coarse, fine = NeRF().to(device), NeRF().to(device)
for m in (coarse, fine):
    for p in m.parameters():
        nn.init.zeros_(p) if p.ndim == 1 else p.data.copy_(
            torch.as_tensor(rng.uniform(-1, 1, p.shape) * math.sqrt(3 / p.shape[1]))
        )
grad_vars = [*coarse.parameters(), *fine.parameters()]
optimizer = torch.optim.Adam(params=grad_vars, lr=4e-3, betas=(0.9, 0.999))
mse2psnr = lambda x: -10.0 * torch.log(x) / torch.log(torch.Tensor([10.0]).to(x))  # noqa: E731


def forward(rays: Rays, jitter=None):
    z = torch.linspace(1.5, 4.5, 13).expand(*rays.origins.shape[:-1], 13)
    if jitter is not None:
        mids = 0.5 * (z[..., 1:] + z[..., :-1])
        upper, lower = torch.cat([mids, z[..., -1:]], -1), torch.cat([z[..., :1], mids], -1)
        z = lower + (upper - lower) * jitter
    rgb0, _, _, weights = render(*coarse(rays.at(z), rays.directions), z)
    with torch.no_grad():
        new = sample_pdf(0.5 * (z[..., 1:] + z[..., :-1]), weights[..., 1:-1], 8)
        z_all, order = torch.sort(torch.cat([z, new], -1), -1)
    return rgb0, *render(*fine(rays.at(z_all), rays.directions), z_all)[:3], order


all_rays = [get_rays(h, w, h * 1.1, p) for p in poses]
for step in range(args.steps):
    for group in optimizer.param_groups:
        group["lr"] = 4e-3 * (0.1 ** (step / 100))
    k = rng.randint(3)
    pick = torch.from_numpy(rng.choice(h * w, size=(40,), replace=False))
    coords = torch.stack([pick // w, pick % w], dim=-1)
    batch = Rays(*(r[coords[:, 0], coords[:, 1]] for r in all_rays[k]))
    target = images[k][coords.unbind(-1)]
    rgb0, rgb, depth, acc, order = forward(batch, torch.from_numpy(rng.rand(40, 13)))
    loss = F.mse_loss(rgb, target) + F.mse_loss(rgb0, target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(grad_vars, 5.0)
    optimizer.step()
    if step % 6 == 0:
        print(
            f"{step} {loss.item():.5f} {mse2psnr(loss).item():.3f} {norm:.4f} {depth.mean():.4f} {order.argmax(-1).sum()}"
        )

with torch.no_grad():
    chunks = [Rays(*c) for c in zip(*(r.reshape(-1, 3).split(32) for r in all_rays[3]))]
    outs = [torch.cat(c).unflatten(0, (h, w)) for c in zip(*(forward(c)[1:4] for c in chunks))]
print("view", [tuple(o.shape) for o in outs], outs[0].mean((0, 1)), outs[1][::4, ::4], outs[2].max())
picture = (255 * outs[0].clip(0, 1)).to(torch.uint8)
print(picture.numpy().shape, picture.float().mean().round().item(), np.clip(picture.numpy(), 10, 250).dtype)


class Sine(nn.Module):
    def __init__(self, fan_in, fan_out, omega=8.0, first=False):
        super().__init__()
        self.omega, self.linear = omega, nn.Linear(fan_in, fan_out)
        bound = 1 / fan_in if first else np.sqrt(6 / fan_in) / omega
        with torch.no_grad():
            self.linear.weight.uniform_(-bound, bound)
            assert self.linear.weight.abs().max() <= bound
            self.linear.weight.set_(torch.from_numpy(rng.uniform(-bound, bound, (fan_out, fan_in))))
            self.linear.bias.copy_(torch.from_numpy(rng.uniform(-0.3, 0.3, fan_out)))

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


def gradient(y, x, grad_outputs=None):
    return torch.autograd.grad(y, [x], grad_outputs=grad_outputs or torch.ones_like(y), create_graph=True)[0]


def laplace(y, x):
    g = gradient(y, x)
    return sum(torch.autograd.grad(g[..., i], x, torch.ones_like(g[..., i]), create_graph=True)[0][..., i : i + 1]
               for i in range(x.shape[-1]))  # fmt: skip


siren = nn.Sequential(Sine(2, 24, first=True), Sine(24, 24), nn.Linear(24, 1))
nn.init.constant_(siren[-1].bias, 0.1)
siren[-1].weight.data = torch.from_numpy(rng.uniform(-0.2, 0.2, (1, 24)))
grid = torch.cartesian_prod(torch.linspace(-1, 1, 9), torch.linspace(-1, 1, 9))
wave = (grid[:, :1] * 3).sin() * (grid[:, 1:] * 2).cos()
optim = torch.optim.AdamW(siren.parameters(), lr=5e-3, amsgrad=True)
for step in range(16):
    x = grid.clone().detach().requires_grad_(True)
    y = siren(x)
    d, lap = gradient(y, x), laplace(y, x)
    loss = (
        ((y - wave) ** 2).mean()
        + 1e-2 * (lap + 13 * wave).abs().mean()
        + 1e-3 * (d.norm(dim=-1) - 1).abs().mean()
    )
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 5 == 0:
        print(f"siren {step} {loss:.6f} {d.std():.5f} {lap.abs().max():.4f}")
print(siren(grid).view(9, 9)[::4, ::4], siren)
