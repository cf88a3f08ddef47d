"""Dates to a plain form: GRU cells, packed batches, attention, scheduled sampling, decoding by greed and by beams."""

import math
import random
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

rng = random.Random(1)
PAD, SOS, EOS = 0, 1, 2
MONTHS = "jan feb mar apr may jun".split()
LETTERS = sorted(set("".join(MONTHS) + "0123456789-/ "))
STOI = {c: i + 3 for i, c in enumerate(LETTERS)}


class Dates(Dataset):
    def __init__(self, count):
        self.pairs = []
        for _ in range(count):
            d, m = rng.randint(1, 28), rng.randint(1, 6)
            style = rng.choice(["{d} {n}", "{n} {d:02d}", "{d}/{m}"])
            self.pairs.append((style.format(d=d, m=m, n=MONTHS[m - 1]), f"{m:02d}-{d:02d}"))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        a, b = self.pairs[i]
        return [torch.tensor([STOI[c] for c in a]), torch.tensor([STOI[c] for c in b] + [EOS])]


def collate(batch):
    source, target = zip(*batch)
    lengths = torch.as_tensor([len(s) for s in source])
    return pad_sequence(source, padding_value=PAD), lengths, pad_sequence(target, batch_first=True)


class ByLength(Sampler):
    """Batches of like lengths."""

    def __init__(self, data, size):
        self.order = sorted(range(len(data)), key=lambda i: (len(data[i][0]), i))
        self.size = size

    def __iter__(self):
        yield from BatchSampler(self.order, self.size, drop_last=False)

    def __len__(self):
        return math.ceil(len(self.order) / self.size)


class Encoder(nn.Module):
    def __init__(self, n_tokens, emb, hidden):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, emb, padding_idx=PAD)
        self.gru = nn.GRU(emb, hidden, num_layers=2, bidirectional=True, dropout=0.0)
        self.fc = nn.Linear(hidden * 2, hidden)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths.cpu(), enforce_sorted=False)
        assert isinstance(packed, PackedSequence)
        out, hidden = self.gru(packed)
        out, out_lengths = pad_packed_sequence(out)
        hidden = torch.tanh(self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)))
        return out, hidden, out_lengths


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.attn = nn.Linear(hidden * 3, hidden)
        self.v = nn.Parameter(torch.zeros(hidden))

    def forward(self, hidden, outputs, mask):
        energy = torch.tanh(self.attn(torch.cat([hidden.expand(outputs.size(0), -1, -1), outputs], -1)))
        scores = torch.matmul(energy, self.v).t()
        return scores.masked_fill(mask == 0, -1e10).softmax(-1)


class Decoder(nn.Module):
    def __init__(self, n_tokens, emb, hidden):
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, emb)
        self.attention = Attention(hidden)
        self.cell = nn.GRUCell(emb + 2 * hidden, hidden)
        self.out = nn.Bilinear(hidden, emb, n_tokens)

    def forward(self, token, hidden, outputs, mask):
        e = self.embedding(token)
        a = self.attention(hidden, outputs, mask)
        context = torch.bmm(a.unsqueeze(1), outputs.transpose(0, 1)).squeeze(1)
        hidden = self.cell(torch.cat((e, context), dim=-1), hidden)
        return self.out(hidden, e), hidden, a


class Seq2Seq(nn.Module):
    def __init__(self, n_tokens):
        super().__init__()
        self.encoder, self.decoder = Encoder(n_tokens, 12, 24), Decoder(n_tokens, 12, 24)

    def forward(self, x, lengths, y, ratio=1.0):
        outputs, hidden, n = self.encoder(x, lengths)
        mask = torch.arange(int(n.max()))[None, :] < n[:, None]
        token = x.new_full((x.shape[1],), SOS)
        logits = []
        for t in range(y.shape[1]):
            step, hidden, _ = self.decoder(token, hidden, outputs, mask)
            logits += [step]
            token = y[:, t] if rng.random() < ratio else step.argmax(1)
        return torch.stack(logits, 1)


data = Dates(160)
loader = DataLoader(data, batch_sampler=ByLength(data, 32), collate_fn=collate)
print("letters", len(LETTERS), "batches", len(loader), Counter(len(a) for a, _ in data.pairs).most_common(3))
x, lengths, y = next(iter(loader))
print(tuple(x.shape), lengths[:6].tolist(), tuple(y.shape), y[0].tolist())
packed = pack_sequence([torch.arange(n) for n in (3, 1, 2)], enforce_sorted=False)
print(packed.data.tolist(), packed.batch_sizes.tolist(), packed.sorted_indices.tolist())
print(
    [t.tolist() for t in unpack_sequence(packed)], [t.tolist() for t in unpad_sequence(x[:, :2], lengths[:2])]
)

model = Seq2Seq(len(LETTERS) + 3)
values = np.random.RandomState(0)
for name, p in model.named_parameters():
    if "bias" not in name:
        p.data = torch.from_numpy(values.uniform(-0.25, 0.25, p.shape).astype("f"))
    else:
        nn.init.zeros_(p)
model.encoder.embedding.weight.data[PAD].zero_()
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
optimizer = optim.AdamW(model.parameters(), lr=8e-3, amsgrad=True)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.97)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
for epoch in range(24):
    losses = []
    for x, lengths, y in loader:
        logits = model(x, lengths, y, ratio=1.0 if epoch < 12 else 0.8)
        loss = criterion(logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1, error_if_nonfinite=True)
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    if epoch < 3:
        print(f"epoch {epoch} loss {losses[0]:.4f} perplexity {math.exp(sum(losses) / len(losses)):.3f}")
print("learned", sum(losses) / len(losses) < 0.6, f"lr {scheduler.get_last_lr()[0]:.6f}")
print("the padding stays", model.encoder.embedding.weight[PAD].abs().sum().item())


@torch.no_grad()
def beam(model, source, width=3):
    outputs, hidden, n = model.encoder(source[:, None], torch.tensor([len(source)]))
    mask = torch.ones(1, len(source), dtype=torch.bool)
    beams = [([SOS], 0.0, hidden)]
    for _ in range(7):
        grown = []
        for tokens, score, h in beams:
            if tokens[-1] == EOS:
                grown.append((tokens, score, h))
                continue
            logits, h, a = model.decoder(torch.tensor([tokens[-1]]), h, outputs, mask)
            best = F.log_softmax(logits, -1).topk(width)
            for value, index in zip(best.values[0], best.indices[0]):
                grown.append((tokens + [index.item()], score + value.item(), h))
        beams = sorted(grown, key=lambda b: -b[1] / len(b[0]))[:width]
    return beams


model.eval()
right = 0
for source, target in list(data)[:20]:
    found = beam(model, source)
    assert [b[1] / len(b[0]) for b in found] == sorted((b[1] / len(b[0]) for b in found), reverse=True)
    right += found[0][0][1:] == target.tolist()
print("beams", len(found), "mostly right", right > 6)
