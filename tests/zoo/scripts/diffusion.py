"""Denoising diffusion on a ring of points and on small pictures: schedules, embeddings of time, DDPM, DDIM, guidance, EMA."""

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import einsum, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

rng = np.random.RandomState(11)
draw = lambda *shape: torch.from_numpy(rng.randn(*shape).astype(np.float32))  # noqa: E731


def exists(x):
    return x is not None


def default(val, d):
    return val if exists(val) else d() if callable(d) else d


def cosine_beta_schedule(timesteps, s=0.008):
    x = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64)
    alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    return torch.clip(1 - (alphas_cumprod[1:] / alphas_cumprod[:-1]), 0, 0.999)


def linear_beta_schedule(timesteps):
    return torch.linspace(1e-4, 0.3, timesteps, dtype=torch.float64)


def extract(a, t, x_shape):
    b, *_ = t.shape
    return a.gather(-1, t).reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class GaussianDiffusion(nn.Module):
    def __init__(self, betas, objective="eps"):
        super().__init__()
        alphas = 1.0 - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        before = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
        register = lambda name, val: self.register_buffer(name, val.to(torch.float32))  # noqa: E731
        register("betas", betas)
        register("alphas_cumprod", alphas_cumprod)
        register("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register("sqrt_one_minus", torch.sqrt(1.0 - alphas_cumprod))
        register("posterior_variance", betas * (1.0 - before) / (1.0 - alphas_cumprod))
        register("coef1", betas * torch.sqrt(before) / (1.0 - alphas_cumprod))
        register("coef2", (1.0 - before) * torch.sqrt(alphas) / (1.0 - alphas_cumprod))
        self.objective, self.steps = objective, len(betas)

    def q_sample(self, x, t, noise):
        return (
            extract(self.sqrt_alphas_cumprod, t, x.shape) * x
            + extract(self.sqrt_one_minus, t, x.shape) * noise
        )

    def start(self, x, t, out):
        a, b = extract(self.sqrt_alphas_cumprod, t, x.shape), extract(self.sqrt_one_minus, t, x.shape)
        return a * x - b * out if self.objective == "v" else (x - b * out) / a

    def loss(self, model, x, t, noise, **condition):
        target = noise
        if self.objective == "v":
            a, b = extract(self.sqrt_alphas_cumprod, t, x.shape), extract(self.sqrt_one_minus, t, x.shape)
            target = a * noise - b * x
        out = model(self.q_sample(x, t, noise), t, **condition)
        per = F.mse_loss(out, target, reduction="none").flatten(1).mean(1)
        snr = self.alphas_cumprod / (1 - self.alphas_cumprod)
        return (per * torch.clamp(snr[t], max=5) / snr[t].clamp(min=1e-3)).mean()

    @torch.no_grad()
    def sample(self, model, x):
        for i in reversed(range(self.steps)):
            t = torch.full((x.shape[0],), i, dtype=torch.long)
            x0 = self.start(x, t, model(x, t)).clamp_(-1.5, 1.5)
            mean = extract(self.coef1, t, x.shape) * x0 + extract(self.coef2, t, x.shape) * x
            x = mean + (extract(self.posterior_variance, t, x.shape).sqrt() * draw(*x.shape) if i else 0)
        return x

    @torch.no_grad()
    def ddim(self, model, x, steps):
        times = torch.linspace(-1, self.steps - 1, steps + 1).int().tolist()[::-1]
        for now, following in zip(times[:-1], times[1:]):
            t = torch.full((len(x),), now, dtype=torch.long)
            out = model(x, t)
            x0 = self.start(x, t, out)
            if following < 0:
                return x0
            a, b = self.alphas_cumprod[now], self.alphas_cumprod[following]
            eps = (x - a.sqrt() * x0) / (1 - a).sqrt()
            x = x0 * b.sqrt() + (1 - b).sqrt() * eps


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Sequential(
            SinusoidalPosEmb(16), nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.enter = nn.Linear(2, width)
        self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, width), nn.RMSNorm(width)])
        self.leave = nn.Linear(width, 2)

    def forward(self, x, t):
        h, e = self.enter(x), self.time(t)
        for norm, block in zip(self.norms, self.blocks):
            h = h + block(F.mish(norm(h) + e))
        return self.leave(F.silu(h))


def fill(model):
    for p in model.parameters():
        if p.dim() > 1:
            p.data = draw(*p.shape) / p[0].numel() ** 0.5
        elif not bool((p == 1).all()):
            p.data = torch.zeros_like(p)
    return model


for name, betas in (("linear", linear_beta_schedule(20)), ("cosine", cosine_beta_schedule(20))):
    d = GaussianDiffusion(betas)
    print(
        name,
        [round(v, 4) for v in d.alphas_cumprod[::5].tolist()],
        [round(v, 4) for v in d.posterior_variance[1:3].tolist()],
    )

for objective in ("eps", "v"):
    diffusion, model = GaussianDiffusion(cosine_beta_schedule(20), objective), fill(Denoiser())
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60, eta_min=1e-4)
    for step in range(60):
        angle = rng.rand(64) * 2 * np.pi
        x = torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], -1)).float()
        t = torch.from_numpy(rng.randint(0, 20, 64))
        loss = diffusion.loss(model, x, t, draw(64, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update_parameters(model)
        if step < 3:
            print(f"{objective} step {step} loss {loss.item():.4f}")
    ema.eval()
    made = diffusion.sample(ema, draw(128, 2))
    quick = diffusion.ddim(ema, draw(128, 2), 5)
    radius = made.norm(dim=1)
    print(
        objective,
        "on the ring",
        bool((radius - 1).abs().median() < 0.4),
        tuple(quick.shape),
        quick.isfinite().all().item(),
    )


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4):
        super().__init__()
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_qkv = nn.Conv2d(dim, dim_head * heads * 3, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(dim_head * heads, dim, 1), nn.GroupNorm(1, dim))

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (t.reshape(b, self.heads, -1, h * w) for t in self.to_qkv(x).chunk(3, dim=1))
        q, k = q.softmax(dim=-2) * self.scale, k.softmax(dim=-1)
        context = einsum("b h d n, b h e n -> b h d e", k, v)
        return self.to_out(einsum("b h d e, b h d n -> b h e n", context, q).reshape(b, -1, h, w))


class ResnetBlock(nn.Module):
    def __init__(self, dim, dim_out, time_emb_dim=None):
        super().__init__()
        self.mlp = (
            nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2)) if exists(time_emb_dim) else None
        )
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(dim, dim_out, 3, padding=1))
        self.norm = nn.GroupNorm(2, dim_out)
        self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

    def forward(self, x, time_emb=None):
        h = self.norm(self.conv(x))
        if exists(self.mlp) and exists(time_emb):
            scale, shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
            h = torch.addcmul(shift, h, scale + 1)
        return F.silu(h) + self.res_conv(x)


class Unet(nn.Module):
    def __init__(self, dim=8, classes=3):
        super().__init__()
        block = partial(ResnetBlock, time_emb_dim=16)
        self.time = nn.Sequential(SinusoidalPosEmb(16), nn.Linear(16, 16), nn.GELU(approximate="tanh"))
        self.label = nn.Embedding(classes + 1, 16)
        self.first = nn.Conv2d(1, dim, 3, padding=1)
        self.down, self.attention = block(dim, dim), LinearAttention(dim)
        self.shrink, self.grow = nn.PixelUnshuffle(2), nn.PixelShuffle(2)
        self.mid, self.up = block(dim * 4, dim * 4), block(dim * 2, dim)
        self.last = nn.Conv2d(dim, 1, 1)

    def forward(self, x, t, y=None):
        e = self.time(t) + self.label(default(y, torch.zeros_like(t)))
        h = self.down(self.first(x), e)
        h = h + self.attention(h)
        m = self.mid(self.shrink(h), e)
        return self.last(self.up(torch.cat((self.grow(m), h), dim=1), e))


net = fill(Unet())
print(sum(p.numel() for p in net.parameters()), "parameters")
diffusion = GaussianDiffusion(linear_beta_schedule(10))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, betas=(0.9, 0.99))
images = torch.tanh(draw(8, 1, 8, 8))
for step in range(6):
    optimizer.zero_grad()
    labels = torch.from_numpy(rng.randint(0, 4, 8))
    keep = torch.from_numpy(rng.rand(8)) < 0.8
    loss = diffusion.loss(net, images, torch.arange(8), draw(8, 1, 8, 8), y=torch.where(keep, labels, 0))
    loss.backward()
    optimizer.step()
    if step < 4:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    t, y = torch.full((2,), 5), torch.tensor([1, 2])
    with_label, without = net(images[:2], t, y), net(images[:2], t)
    guided = without.lerp(with_label, 2.0)
    print(
        "guided",
        bool(torch.allclose(guided, without + 2 * (with_label - without), atol=1e-5)),
        tuple(guided.shape),
    )
    print(
        f"standard {with_label.std(correction=0).item():.2f} {torch.quantile(with_label.abs(), 0.9).item():.2f}"
    )
