"""Sequences without attention: S4's diagonal states by recurrence and by convolution, a selective scan, RWKV, linear attention with its chunks, minimal GRUs by a parallel scan."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_printoptions(precision=4, sci_mode=False)
torch.set_default_dtype(torch.float64)


def wave(*shape, f=0.7, scale=1.0):
    return scale * torch.sin(f * torch.arange(math.prod(shape), dtype=torch.float64) ** 1.1).reshape(shape)


class S4D(nn.Module):
    def __init__(self, features, states=8, dt_min=0.01, dt_max=0.1):
        super().__init__()
        log_dt = torch.linspace(math.log(dt_min), math.log(dt_max), features)
        self.log_dt = nn.Parameter(log_dt)
        A = -0.5 + 1j * math.pi * torch.arange(states)
        self.log_A_real = nn.Parameter(torch.log(-A.real).expand(features, -1).clone())
        self.A_imag = nn.Parameter(A.imag.expand(features, -1).clone())
        self.C = nn.Parameter(
            torch.view_as_real(torch.complex(wave(features, states), wave(features, states, f=1.3)))
        )
        self.D = nn.Parameter(wave(features))

    def discrete(self):
        dt, C = self.log_dt.exp()[:, None], torch.view_as_complex(self.C)
        A = torch.complex(-self.log_A_real.exp(), self.A_imag)
        dtA = A * dt
        return torch.exp(dtA), C * (torch.exp(dtA) - 1.0) / A

    def kernel(self, L):
        Abar, C = self.discrete()
        powers = Abar.log().unsqueeze(-1) * torch.arange(L)
        return 2 * torch.einsum("hn,hnl->hl", C, torch.exp(powers)).real

    def forward(self, u):
        L = u.size(-1)
        k_f, u_f = torch.fft.rfft(self.kernel(L), n=2 * L), torch.fft.rfft(u, n=2 * L)
        return torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L] + u * self.D[:, None]

    def step(self, u, state):
        Abar, C = self.discrete()
        state = Abar * state + u[..., None]
        return 2 * torch.einsum("hn,bhn->bh", C, state).real + u * self.D, state


s4, u = S4D(3), wave(2, 3, 20)
y = s4(u)
state, ys = torch.zeros(2, 3, 8, dtype=torch.complex128), []
for t in range(20):
    out, state = s4.step(u[..., t], state)
    ys.append(out)
print("s4", torch.allclose(y, torch.stack(ys, -1)), y[0, :, 1::6], s4.kernel(4).shape)
y.square().mean().backward()
print({n: round(p.grad.norm().item(), 5) for n, p in s4.named_parameters()}, state.dtype, state.abs().max())


def pscan(a, b):
    """x[t] = a[t] x[t-1] + b[t] along dimension 1 by doubling."""
    n = a.size(1)
    steps = 1
    while steps < n:
        prev_a = (
            F.pad(a, (0, 0, steps, 0), value=1.0)[:, :n]
            if a.dim() == 3
            else F.pad(a, (0, 0, 0, 0, steps, 0), value=1.0)[:, :n]
        )
        prev_b = (
            F.pad(b, (0, 0, steps, 0))[:, :n] if b.dim() == 3 else F.pad(b, (0, 0, 0, 0, steps, 0))[:, :n]
        )
        a, b = a * prev_a, a * prev_b + b
        steps *= 2
    return b


class Mamba(nn.Module):
    def __init__(self, dim=4, inner=8, states=4, rank=2, kernel=3):
        super().__init__()
        self.in_proj = nn.Linear(dim, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, states + 1).to(torch.float64)).repeat(inner, 1))
        self.A_log._no_weight_decay = True
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, dim, bias=False)
        self.sizes = [rank, states, states]

    def selective(self, x, scan):
        A = -torch.exp(self.A_log.float()).double()
        dt, B, C = self.x_proj(x).split(self.sizes, dim=-1)
        delta = F.softplus(self.dt_proj(dt))
        dA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        dBx = torch.einsum("bld,bln,bld->bldn", delta, B, x)
        return torch.einsum("bldn,bln->bld", scan(dA, dBx), C) + x * self.D

    def forward(self, x, scan=pscan):
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x = self.conv(x.mT)[..., : x.size(1)].mT
        return self.out_proj(self.selective(F.silu(x), scan) * F.silu(z))


def loop_scan(a, b):
    h, hs = torch.zeros_like(b[:, 0]), []
    for t in range(a.size(1)):
        h = torch.addcmul(b[:, t], a[:, t], h)
        hs.append(h)
    return torch.stack(hs, dim=1)


mamba = Mamba()
with torch.no_grad():
    for k, p in enumerate(mamba.parameters()):
        if p.dim() > 1 and p is not mamba.A_log:
            p.copy_(wave(*p.shape, f=0.3 + 0.1 * k, scale=0.5))
    mamba.conv.bias.zero_()
    mamba.dt_proj.bias.copy_(torch.log(torch.expm1(torch.linspace(0.01, 0.1, 8))))
x = wave(2, 11, 4).requires_grad_()
fast, slow = mamba(x), mamba(x, loop_scan)
saved = checkpoint(mamba, x, use_reentrant=False)
grads = [torch.autograd.grad(o.square().sum(), [x, *mamba.parameters()]) for o in (fast, slow, saved)]
print(
    "mamba",
    torch.allclose(fast, slow),
    [all(map(torch.allclose, grads[0], g)) for g in grads[1:]],
    fast[0, ::5],
)
print(
    [round(g.norm().item(), 5) for g in grads[0]],
    [n for n, p in mamba.named_parameters() if getattr(p, "_no_weight_decay", False)],
)
groups = {}
for n, p in mamba.named_parameters():
    groups.setdefault(p.ndim < 2 or hasattr(p, "_no_weight_decay"), []).append(p)
optimizer = torch.optim.AdamW(
    [{"params": groups[False], "weight_decay": 0.1}, {"params": groups[True], "weight_decay": 0.0}], lr=1e-2
)
target = torch.cumsum(x.detach(), 1).tanh()
for step in range(8):
    loss = F.smooth_l1_loss(mamba(x), target, beta=0.5)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"trained {loss.item():.6f}")


def wkv(w, u, k, v):
    """RWKV's time mixing, with the largest exponent kept apart."""
    B, T, C = k.shape
    aa, bb, pp = torch.zeros(B, C), torch.zeros(B, C), torch.full((B, C), -1e38)
    out = torch.empty_like(v)
    for t in range(T):
        ww = u + k[:, t]
        p = torch.maximum(pp, ww)
        e1, e2 = torch.exp(pp - p), torch.exp(ww - p)
        out[:, t] = (e1 * aa + e2 * v[:, t]) / (e1 * bb + e2)
        ww = pp + w
        p = torch.maximum(ww, k[:, t])
        e1, e2 = torch.exp(ww - p), torch.exp(k[:, t] - p)
        aa, bb, pp = e1 * aa + e2 * v[:, t], e1 * bb + e2, p
    return out


def wkv_direct(w, u, k, v):
    T = k.size(1)
    gap = torch.arange(T)[:, None] - torch.arange(T)[None]
    decay = w * (gap - 1)[..., None]
    logits = torch.where(
        gap[..., None] > 0, decay + k[:, None], torch.where(gap[..., None] == 0, u + k[:, None], -torch.inf)
    )
    return torch.einsum("btsc,bsc->btc", logits.softmax(2), v)


w, first = -torch.exp(wave(5)), wave(5, f=2.0)
k, v = wave(2, 9, 5).requires_grad_(), wave(2, 9, 5, f=1.9).requires_grad_()
one, two = wkv(w, first, k, v), wkv_direct(w, first, k, v)
same = [
    torch.allclose(a, b)
    for a, b in zip(torch.autograd.grad(one.sum(), (k, v)), torch.autograd.grad(two.sum(), (k, v)))
]
print("rwkv", torch.allclose(one, two), same, one[0, ::4])


def linear_attention(q, k, v, chunk=4):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = q.new_zeros(*q.shape[:-2], q.size(-1), v.size(-1))
    norm = q.new_zeros(*q.shape[:-2], q.size(-1), 1)
    outs = []
    for qc, kc, vc in zip(*(t.split(chunk, dim=-2) for t in (q, k, v))):
        inner = (qc @ kc.mT).tril()
        num, den = inner @ vc + qc @ state, inner.sum(-1, keepdim=True) + qc @ norm
        outs.append(num / den)
        state, norm = state + kc.mT @ vc, norm + kc.sum(-2).unsqueeze(-1)
    return torch.cat(outs, dim=-2)


def quadratic(q, k, v):
    scores = ((F.elu(q) + 1) @ (F.elu(k) + 1).mT) * torch.ones(q.size(-2), k.size(-2)).tril_()
    return F.normalize(scores, p=1.0, dim=-1) @ v


q, k, v = (wave(1, 2, 10, 3, f=0.5 + 0.2 * i) for i in range(3))
print(
    "linear",
    [torch.allclose(linear_attention(q, k, v, c), quadratic(q, k, v)) for c in (1, 3, 10)],
    linear_attention(q, k, v)[0, 0, ::4],
)


def heinsen(log_coeffs, log_values):
    a_star = F.pad(torch.cumsum(log_coeffs, dim=1), (0, 0, 1, 0))
    log_h0_plus_b_star = torch.logcumsumexp(log_values - a_star, dim=1)
    return torch.exp(a_star + log_h0_plus_b_star)[:, 1:]


class MinGRU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.z, self.h = nn.Linear(dim, hidden), nn.Linear(dim, hidden)

    @staticmethod
    def g(x):
        return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))

    @staticmethod
    def log_g(x):
        return torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))

    def forward(self, x, h0):
        k = self.z(x)
        log_z, log_coeffs = -F.softplus(-k), -F.softplus(k)
        return heinsen(log_coeffs, torch.cat([h0.log(), log_z + self.log_g(self.h(x))], dim=1))

    def sequential(self, x, h):
        out = []
        for t in range(x.size(1)):
            z = torch.sigmoid(self.z(x[:, [t]]))
            h = torch.lerp(h, self.g(self.h(x[:, [t]])), z)
            out.append(h)
        return torch.cat(out, dim=1)


gru = MinGRU(4, 6)
for i, p in enumerate(gru.parameters()):
    p.data = wave(*p.shape, f=0.9 + i * 0.2)
h0 = torch.full((2, 1, 6), 0.3)
a, b = gru(x, h0), gru.sequential(x, h0)
print(
    "mingru",
    torch.allclose(a, b),
    a[0, -1],
    torch.autograd.gradcheck(
        partial(gru.forward, h0=h0), (x[:1, :3].detach().requires_grad_(),), nondet_tol=1e-9
    )
    if h0.size(0) == 1
    else "",
)
decays = 1 - torch.exp(torch.linspace(math.log(1 / 32), math.log(1 / 512), 2))
power = torch.tril(decays[:, None, None] ** (torch.arange(6)[:, None] - torch.arange(6)).clamp(min=0))
ret = torch.einsum("hts,hsd->htd", (q[0, :, :6] @ k[0, :, :6].mT) * power, v[0, :, :6])
state = torch.zeros(2, 3, 3)
for t in range(6):
    state = decays[:, None, None] * state + torch.einsum("hd,he->hde", k[0, :, t], v[0, :, t])
print("retention", torch.allclose(ret[:, -1], torch.einsum("hd,hde->he", q[0, :, 5], state)), power[1, -1])
freqs = torch.outer(torch.arange(6), 1.0 / (10000 ** (torch.arange(0, 4, 2)[:2] / 4)))
cis = torch.polar(torch.ones_like(freqs), freqs)
rotated = torch.view_as_real(torch.view_as_complex(wave(2, 6, 2, 2)) * cis).flatten(-2)
half = wave(2, 6, 2, 2).flatten(-2)
turned = torch.stack(
    [
        half[..., 0::2] * freqs.cos() - half[..., 1::2] * freqs.sin(),
        half[..., 0::2] * freqs.sin() + half[..., 1::2] * freqs.cos(),
    ],
    -1,
)
print(
    "rope",
    torch.allclose(rotated, turned.flatten(-2)),
    rotated[0, -1],
    torch.allclose(torch.view_as_complex(turned).abs(), torch.hypot(*turned.unbind(-1))),
)
