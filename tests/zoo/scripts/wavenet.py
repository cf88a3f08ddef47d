"""Sound sample by sample: companding, dilated causal convolutions with normed weights, fast generation by queues, a vocoder's losses."""

import math
import queue
import sys
import time
from collections import deque
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.nn import Conv1d, ConvTranspose1d
from torch.nn import functional as F
from torch.nn.utils import remove_weight_norm, weight_norm
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng(21)
torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=4, sci_mode=False)


def mu_law_encode(audio, channels):
    mu = torch.tensor(channels - 1.0)
    companded = (
        torch.sign(audio)
        * torch.log1p(mu * torch.minimum(torch.abs(audio), torch.tensor(1.0)))
        / torch.log1p(mu)
    )
    return ((companded + 1) / 2 * mu + 0.5).to(torch.int32)


def mu_law_decode(output, channels):
    mu = channels - 1
    signal = 2 * (output.to(torch.float64) / mu) - 1
    return torch.sign(signal) * (torch.exp(torch.abs(signal) * math.log1p(mu)) - 1.0) / mu


class CausalConv(nn.Module):
    def __init__(self, cin, cout, kernel, dilation):
        super().__init__()
        self.padding = nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0)
        self.conv = weight_norm(Conv1d(cin, cout, kernel, dilation=dilation))

    def forward(self, x):
        return self.conv(self.padding(x))


class WaveNet(nn.Module):
    def __init__(self, classes=32, residual=8, skip=12, layers=4, blocks=1):
        super().__init__()
        self.classes = classes
        self.start = nn.Conv1d(classes, residual, 1)
        dilations = [2**i for _ in range(blocks) for i in range(layers)]
        self.filters = nn.ModuleList([CausalConv(residual, residual, 2, d) for d in dilations])
        self.gates = nn.ModuleList([CausalConv(residual, residual, 2, d) for d in dilations])
        self.residuals = nn.ModuleList([nn.Conv1d(residual, residual, 1) for _ in dilations])
        self.skips = nn.ModuleList([nn.Conv1d(residual, skip, 1) for _ in dilations])
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, classes, 1))
        self.dilations = dilations
        self.register_buffer("receptive", torch.tensor(sum(dilations) + 1), persistent=False)

    def encode(self, x):
        return F.one_hot(x.long(), self.classes).transpose(1, 2).double()

    def forward(self, x):
        x = self.start(self.encode(x))
        skip = 0
        for f, g, r, s in zip(self.filters, self.gates, self.residuals, self.skips):
            z = torch.tanh(f(x)) * torch.sigmoid(g(x))
            skip = skip + s(z)
            x = r(z) + x
        return self.end(skip)

    @torch.inference_mode()
    def generate_slow(self, first, count):
        x = first.clone()
        for _ in range(count):
            x = torch.cat([x, self(x[:, -int(self.receptive) :])[..., -1:].argmax(1).to(x.dtype)], dim=1)
        return x

    @torch.inference_mode()
    def generate_fast(self, first, count):
        queues = [deque([torch.zeros(len(first), 8, 1)] * d, maxlen=d) for d in self.dilations]

        def step(sample):
            x = self.start(self.encode(sample))
            skip = 0
            for q, f, g, r, s in zip(queues, self.filters, self.gates, self.residuals, self.skips):
                pair = torch.cat([q[0], x], dim=-1)
                q.append(x)
                z = (
                    torch.tanh(F.conv1d(pair, f.conv.weight, f.conv.bias))
                    * F.conv1d(pair, g.conv.weight, g.conv.bias).sigmoid()
                )
                skip = skip + s(z)
                x = r(z) + x
            return self.end(skip)[..., -1:].argmax(1).to(sample.dtype)

        out = first.clone()
        for t in range(first.size(1)):
            sample = step(first[:, t : t + 1])
        for _ in range(count):
            out = torch.hstack([out, sample])
            sample = step(sample)
        return out


class Tones(Dataset):
    def __init__(self, length=48, count=24):
        t = np.arange(length + 1) / 16
        self.waves = [0.8 * np.sin(2 * np.pi * (t * (1 + k % 3) + 0.13 * k)) for k in range(count)]

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        codes = mu_law_encode(torch.as_tensor(self.waves[i], dtype=torch.float64), 32)
        return codes[:-1], codes[1:]


@contextmanager
def weights_from(generator):
    before = torch.get_rng_state()
    try:
        yield lambda p: torch.from_numpy(generator.normal(0, 1, tuple(p.shape)).astype("f8"))
    finally:
        torch.set_rng_state(before)


codes = torch.arange(32, dtype=torch.int32)
decoded = mu_law_decode(codes, 32)
print(
    decoded[::5],
    torch.equal(mu_law_encode(decoded, 32), codes),
    mu_law_encode(torch.tensor([-2.0, 0.0, 0.02, 1.0]), 256),
)

net = WaveNet()
with weights_from(rng) as draw, torch.no_grad():
    for name, p in net.named_parameters():
        p.copy_(draw(p) * (0.4 if p.dim() > 1 else 0.05))
        if name.endswith("_g"):
            p.abs_().add_(0.5)
print([n for n, _ in net.named_parameters()][2:8], int(net.receptive), "receptive" in net.state_dict())
optimizer = torch.optim.NAdam(net.parameters(), lr=0.02, decoupled_weight_decay=True, weight_decay=1e-4)
loader = DataLoader(
    Tones(), batch_size=8, sampler=torch.utils.data.SequentialSampler(range(24)), pin_memory=False
)
criterion = nn.CrossEntropyLoss()
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(net(x), y.long())
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} perplexity {math.exp(loss):.3f}")
net.eval()
start = time.perf_counter()
slow = net.generate_slow(x[:2], 12)
fast = net.generate_fast(x[:2], 12)
print("generated", slow.shape, slow.dtype, torch.equal(slow, fast), fast[:, -5:], time.perf_counter() > start)
before = net(x)
for m in list(net.filters) + list(net.gates):
    remove_weight_norm(m.conv)
print("removed", (net(x) - before).abs().max() < 1e-5, sorted(net.filters[0].conv._parameters))
try:
    remove_weight_norm(net.start)
except ValueError as e:
    print("ValueError", str(e)[:40])


class ResBlock(torch.nn.Module):
    def __init__(self, channels, kernel_size=3, dilation=(1, 3)):
        super(ResBlock, self).__init__()
        pad = [int((kernel_size * d - d) / 2) for d in dilation]
        self.convs = nn.ModuleList(
            [Conv1d(channels, channels, kernel_size, 1, dilation=d, padding=p) for d, p in zip(dilation, pad)]
        )

    def forward(self, x):
        for c in self.convs:
            x = c(F.leaky_relu(x, 0.1)) + x
        return x


class Generator(torch.nn.Module):
    def __init__(self, mels=8, channels=16, rates=(4, 2)):
        super().__init__()
        self.conv_pre = Conv1d(mels, channels, 7, 1, padding=3, padding_mode="reflect")
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for i, u in enumerate(rates):
            self.ups.append(
                ConvTranspose1d(channels // 2**i, channels // 2 ** (i + 1), u * 2, u, padding=u // 2)
            )
            self.blocks.append(ResBlock(channels // 2 ** (i + 1)))
        self.conv_post = Conv1d(channels // 2 ** len(rates), 1, 7, padding="same")

    def forward(self, x):
        x = self.conv_pre(x)
        for up, block in zip(self.ups, self.blocks):
            x = block(up(F.leaky_relu(x, 0.1)))
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


class PeriodDiscriminator(nn.Module):
    def __init__(self, period):
        super().__init__()
        self.period = period
        self.convs = nn.ModuleList(
            [nn.Conv2d(1, 4, (5, 1), (3, 1), padding=(2, 0)), nn.Conv2d(4, 8, (5, 1), (3, 1), padding=(2, 0))]
        )
        self.post = spectral_norm(nn.Conv2d(8, 1, (3, 1), 1, padding=(1, 0)))

    def forward(self, x):
        fmap = []
        b, c, t = x.shape
        if t % self.period != 0:
            x = F.pad(x, (0, self.period - (t % self.period)), "reflect")
            t = x.size(-1)
        x = x.view(b, c, t // self.period, self.period)
        for layer in self.convs:
            x = F.leaky_relu(layer(x), 0.1)
            fmap.append(x)
        x = self.post(x)
        return torch.flatten(x, 1, -1), fmap + [x]


def mel_filterbank(n_freqs, n_mels, rate):
    hz = 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + rate / 2 / 700), n_mels + 2) / 2595) - 1)
    freqs = torch.linspace(0, rate // 2, n_freqs)
    slopes = hz[None, :] - freqs[:, None]
    down, up = -slopes[:, :-2] / hz.diff()[:-1], slopes[:, 2:] / hz.diff()[1:]
    return torch.maximum(torch.zeros(1), torch.min(down, up))


bank = mel_filterbank(33, 8, 4000)


def mel_spectrogram(y, n_fft=64, hop=8):
    y = F.pad(y.unsqueeze(1), ((n_fft - hop) // 2, (n_fft - hop) // 2), mode="reflect").squeeze(1)
    spec = torch.stft(y, n_fft, hop_length=hop, win_length=n_fft, window=torch.hann_window(n_fft), center=False,
                      pad_mode="reflect", normalized=False, onesided=True, return_complex=True)  # fmt: skip
    spec = torch.sqrt(torch.view_as_real(spec).pow(2).sum(-1) + 1e-9)
    return torch.log(torch.clamp(torch.matmul(bank.T, spec), min=1e-5))


wave = torch.from_numpy(
    np.stack([0.5 * np.sin(np.arange(256) * 0.11 * (k + 1)) for k in range(3)]).astype("f8")
)
mel = mel_spectrogram(wave)
print("mel", mel.shape, mel.mean(), mel[0, :3, :3], bank.sum(0), (bank > 0).sum())
G, D = Generator(), PeriodDiscriminator(3)
for m in (G, D):
    for n, p in m.named_parameters():
        p.data = torch.from_numpy(rng.normal(0, 0.25 if p.dim() > 1 else 0.02, p.shape).astype("f8"))
for b in D.buffers():
    b.copy_(F.normalize(torch.ones_like(b), dim=0))
D.eval()
opts = (
    torch.optim.AdamW(G.parameters(), 2e-3, betas=(0.8, 0.99)),
    torch.optim.AdamW(D.parameters(), 2e-3, betas=(0.8, 0.99)),
)
schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, gamma=0.999, last_epoch=-1) for o in opts]
y = wave.unsqueeze(1)
for step in range(5):
    fake = G(mel)
    (real_score, real_maps), (fake_score, _) = D(y), D(fake.detach())
    loss_d = torch.mean((1 - real_score) ** 2) + torch.mean(fake_score**2)
    opts[1].zero_grad()
    loss_d.backward()
    opts[1].step()
    score, fake_maps = D(fake)
    loss_fm = sum(torch.mean(torch.abs(r.detach() - f)) for r, f in zip(D(y)[1], fake_maps)) * 2
    loss_mel = F.l1_loss(mel, mel_spectrogram(fake.squeeze(1))) * 4.5
    loss_g = torch.mean((1 - score) ** 2) + loss_fm + loss_mel
    opts[0].zero_grad()
    loss_g.backward()
    opts[0].step()
    for s in schedulers:
        s.step()
    print(
        f"gan {step} d {loss_d:.4f} g {loss_g:.4f} fm {loss_fm:.4f} mel {loss_mel:.4f} lr {schedulers[0].get_last_lr()[0]:.6f}"
    )
print(
    D.post.weight.norm(),
    torch.linalg.matrix_norm(D.post.weight.flatten(1), 2),
    D.post.parametrizations.weight,
    file=sys.stdout,
)

# Pitch by correlation, resampling by a sinc kernel, a biquad one sample after another, and its impulse response.
frames = wave.unfold(1, 64, 32)
frames = frames - frames.mean(-1, keepdim=True)
power = torch.fft.rfft(frames, n=128).abs().square()
correlation = torch.fft.irfft(power)[..., :64]
correlation = correlation / correlation[..., :1]
print("lags", correlation[..., 5:].argmax(-1) + 5, correlation.shape)
kernel = torch.sinc((torch.arange(-8, 9) / 2.0)) * torch.kaiser_window(17, periodic=False, beta=6.0) / 2
half = F.conv1d(y, kernel[None, None], stride=2, padding=8)
print("half", half.shape, (half[0, 0, 8:120] - wave[0, 16:240:2]).abs().max() < 0.05, kernel.sum())
b, a = torch.tensor([0.2, 0.4, 0.2]), torch.tensor([1.0, -0.5, 0.3])
out, tail = [], queue.Queue()
x1 = x2 = y1 = y2 = torch.zeros(3)
for t in range(24):
    v = b[0] * wave[:, t] + b[1] * x1 + b[2] * x2 - a[1] * y1 - a[2] * y2
    x1, x2, y1, y2 = wave[:, t], x1, v, y1
    tail.put(v)
while not tail.empty():
    out.append(tail.get_nowait())
out = torch.stack(out, 1)
impulse = torch.fft.irfft(torch.fft.rfft(b, 512) / torch.fft.rfft(a, 512), 512)[:24]
full = F.conv1d(F.pad(wave[:, None, :24], (23, 0)), impulse.flip(0)[None, None])[:, 0]
print("biquad", torch.allclose(out, full, atol=1e-5), out[:, -1], impulse[:4])
