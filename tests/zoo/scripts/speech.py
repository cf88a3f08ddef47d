"""Speech: tones in noise, a mel spectrogram by stft, masks over time and frequency, CTC, edit distance, Griffin and Lim."""

import itertools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(2)
RATE, BLANK = 2000, 0
ALPHABET = " abc"
TONES = {"a": 220.0, "b": 440.0, "c": 700.0}


def say(word):
    parts = []
    for c in word:
        t = np.arange(240) / RATE
        parts += [np.sin(2 * np.pi * TONES[c] * t) * np.hanning(240), np.zeros(60)]
    wave = np.concatenate(parts)
    return torch.tensor(wave + rng.randn(len(wave)) * 0.02, dtype=torch.float32)


def melscale_fbanks(n_freqs, n_mels, rate):
    all_freqs = torch.linspace(0, rate // 2, n_freqs)
    hz_to_mel = lambda f: 2595.0 * np.log10(1.0 + f / 700.0)  # noqa: E731
    m_pts = torch.linspace(hz_to_mel(0.0), hz_to_mel(rate / 2), n_mels + 2)
    f_pts = 700.0 * (10.0 ** (m_pts / 2595.0) - 1.0)
    f_diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts.unsqueeze(0) - all_freqs.unsqueeze(1)
    down, up = (-1.0 * slopes[:, :-2]) / f_diff[:-1], slopes[:, 2:] / f_diff[1:]
    return torch.max(torch.zeros(1), torch.min(down, up))


class MelSpectrogram(nn.Module):
    def __init__(self, n_fft=128, hop_length=60, n_mels=12):
        super().__init__()
        self.n_fft, self.hop_length = n_fft, hop_length
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("fb", melscale_fbanks(n_fft // 2 + 1, n_mels, RATE))

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop_length, window=self.window, return_complex=True)
        mel = torch.matmul(spec.abs().pow(2.0).transpose(-1, -2), self.fb)
        return torch.log(mel.clamp(min=1e-4))


def mask_along_axis(x, width, start, axis):
    at = torch.arange(x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = -1
    return x.masked_fill(((at >= start) & (at < start + width)).view(shape), x.mean().item())


class Recognizer(nn.Module):
    def __init__(self, n_mels, hidden, n_classes):
        super().__init__()
        self.conv = nn.Conv1d(n_mels, hidden, 3, padding="same", bias=False)
        self.norm = nn.LayerNorm(hidden)
        self.rnn = nn.LSTM(hidden, hidden // 2, bidirectional=True, batch_first=True, proj_size=8)
        self.classifier = nn.Sequential(nn.Linear(16, hidden), nn.Hardswish(), nn.Linear(hidden, n_classes))

    def forward(self, x, lengths):
        x = F.glu(torch.cat([self.conv(x.transpose(1, 2))] * 2, 1), dim=1).transpose(1, 2)
        x = self.norm(x)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = self.rnn(packed)
        assert h.shape[-1] == 8 and c.shape[-1] == 12
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return F.log_softmax(self.classifier(out), dim=2)


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, last = [i] + [0] * len(b), row
        for j, y in enumerate(b, 1):
            row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
    return row[-1]


def greedy(logp, lengths):
    texts = []
    for path, n in zip(logp.argmax(-1), lengths.tolist()):
        kept = torch.unique_consecutive(path[:n])
        texts.append("".join(ALPHABET[i] for i in kept[kept != BLANK]))
    return texts


mel = MelSpectrogram()
words = ["".join(w) for n in (1, 2, 3) for w in itertools.product("abc", repeat=n)]
features = [mel(say(w)) for w in words]
print(
    len(words),
    "words",
    tuple(features[-1].shape),
    f"{features[0].mean().item():.3f} {features[0].std().item():.3f}",
)
print("filters", [round(v, 3) for v in mel.fb[4].tolist()], list(mel.state_dict()))
masked = mask_along_axis(mask_along_axis(features[5], 3, 2, 0), 4, 5, 1)
print("masked", int((masked != features[5]).sum()))

lengths = torch.tensor([len(f) for f in features])
x = nn.utils.rnn.pad_sequence(features, batch_first=True)
x = (x - x.mean(dim=(0, 1))) / x.std((0, 1), unbiased=False)
targets = torch.cat([torch.tensor([ALPHABET.index(c) for c in w]) for w in words])
target_lengths = torch.tensor([len(w) for w in words], dtype=torch.int32)
model = Recognizer(12, 24, len(ALPHABET))
for name, p in model.named_parameters():
    if p.dim() > 1:
        p.data.copy_(torch.from_numpy(rng.uniform(-0.3, 0.3, p.shape)))
    elif "norm" not in name:
        p.data.fill_(0.0)
criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2, decoupled_weight_decay=True, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=2e-2, total_steps=60, anneal_strategy="linear"
)
for step in range(60):
    optimizer.zero_grad()
    logp = model(x, lengths)
    loss = criterion(logp.transpose(0, 1), targets, lengths, target_lengths)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step < 4:
        errors = sum(levenshtein(a, b) for a, b in zip(greedy(logp, lengths), words))
        print(f"step {step} loss {loss.item():.3f} lr {scheduler.get_last_lr()[0]:.6f}")
errors = sum(levenshtein(a, b) for a, b in zip(greedy(logp, lengths), words))
print("falls", loss.item() < 0.6, "few errors", errors < 40, "of", int(target_lengths.sum()))
padded = torch.zeros(len(words), 3, dtype=torch.long)
padded[torch.arange(3) < target_lengths[:, None]] = targets
args = (logp.detach().transpose(0, 1), padded, tuple(lengths.tolist()), tuple(target_lengths.tolist()))
each = F.ctc_loss(*args, reduction="none")
whole = F.ctc_loss(*args, reduction="sum")
print("as one", bool(torch.allclose(each.sum(), whole, rtol=1e-5)), tuple(each.shape))
impossible = F.ctc_loss(
    torch.full((2, 1, 4), 0.25).log(), torch.tensor([[1, 1, 2]]), [2], [3], reduction="none"
)
print("impossible", impossible.tolist())

# Back to sound: the phase is found by going there and back.
wave = say("abc")
window = torch.hamming_window(128, periodic=True)
spec = torch.stft(wave, 128, 32, window=window, return_complex=True)
print(
    "spectrum",
    tuple(spec.shape),
    spec.dtype,
    f"{spec.abs().max().item():.3f} {spec.angle()[10, 5].item():.4f}",
)
back = torch.istft(spec, 128, 32, window=window, length=len(wave))
print("there and back", bool(torch.allclose(back, wave, atol=1e-5)))
magnitude, angle = spec.abs(), torch.zeros_like(spec.abs())
for _ in range(16):
    guess = torch.istft(torch.polar(magnitude, angle), 128, 32, window=window, length=len(wave))
    angle = torch.stft(guess, 128, 32, window=window, return_complex=True).angle()
again = torch.stft(guess, 128, 32, window=window, return_complex=True).abs()
print("griffin and lim", bool((again - magnitude).norm() < 0.4 * magnitude.norm()))
peak = torch.fft.rfft(wave[:240]).abs().argmax().item() * RATE / 240
print("peak", round(peak, 1), torch.fft.rfftfreq(8, 1 / RATE).tolist())
octaves = F.avg_pool1d(wave[None, None], 4, 4).squeeze().unfold(0, 40, 20)
print(tuple(octaves.shape), f"{octaves.pow(2).mean(-1).sqrt().max().item():.4f}")
