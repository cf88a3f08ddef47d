"""A transformer language model on a small text: masks, clipping, a warm-up schedule, a checkpoint and its resumption."""

import math
import os
import tempfile
from typing import Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import TransformerEncoder, TransformerEncoderLayer
from torch.optim.lr_scheduler import LambdaLR

TEXT = "the quick brown fox jumps over the lazy dog and the lazy dog sleeps under the old brown tree . " * 40
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Dictionary(object):
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


dictionary = Dictionary()
data = torch.tensor([dictionary.add_word(w) for w in TEXT.split()], dtype=torch.long)
print("tokens", data.numel(), "types", len(dictionary), data[:6])


def batchify(data: Tensor, bsz: int) -> Tensor:
    seq_len = data.size(0) // bsz
    data = data[: seq_len * bsz]
    return data.view(bsz, seq_len).t().contiguous().to(device)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 500):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[: x.size(0)]
        return self.dropout(x)


class TransformerModel(nn.Module):
    def __init__(self, ntoken: int, d_model: int, nhead: int, d_hid: int, nlayers: int, dropout: float = 0.0):
        super().__init__()
        self.model_type = "Transformer"
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layers = TransformerEncoderLayer(d_model, nhead, d_hid, dropout, activation="gelu")
        self.transformer_encoder = TransformerEncoder(encoder_layers, nlayers, enable_nested_tensor=False)
        self.embedding = nn.Embedding(ntoken, d_model)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self) -> None:
        rng = np.random.default_rng(0)  # the same numbers everywhere
        for name, p in self.named_parameters():
            if p.dim() > 1:
                p.data.copy_(torch.from_numpy(rng.uniform(-0.15, 0.15, p.shape)))
            elif name.endswith("bias"):
                p.data.zero_()

    def forward(self, src: Tensor, src_mask: Tensor = None) -> Tensor:
        src = self.embedding(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        output = self.transformer_encoder(src, src_mask)
        return self.linear(output)


bptt = 12
train_data = batchify(data, 8)


def get_batch(source: Tensor, i: int) -> Tuple[Tensor, Tensor]:
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


print(nn.Transformer.generate_square_subsequent_mask(3))
criterion = nn.CrossEntropyLoss()


def build():
    model = TransformerModel(len(dictionary), 32, 4, 64, 2).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01)
    warmup = 10
    scheduler = LambdaLR(optimizer, lambda step: min((step + 1) / warmup, math.sqrt(warmup / (step + 1))))
    return model, optimizer, scheduler


def train_epoch(model, optimizer, scheduler):
    model.train()
    total_loss, steps = 0.0, 0
    for i in range(0, train_data.size(0) - 1, bptt):
        inputs, targets = get_batch(train_data, i)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(inputs.size(0)).to(device)
        output = model(inputs, mask)
        loss = criterion(output.view(-1, len(dictionary)), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        total_loss += loss.item()
        steps += 1
    return total_loss / steps, norm


def evaluate(model) -> float:
    model.eval()
    total_loss = 0.0
    with torch.inference_mode():
        for i in range(0, train_data.size(0) - 1, bptt):
            inputs, targets = get_batch(train_data, i)
            causal = torch.triu(torch.full((len(inputs), len(inputs)), float("-inf")), diagonal=1)
            total_loss += len(inputs) * criterion(model(inputs, causal).flatten(0, 1), targets).item()
    return total_loss / (len(train_data) - 1)


model, optimizer, scheduler = build()
print(model)
with tempfile.TemporaryDirectory() as tempdir:
    path = os.path.join(tempdir, "checkpoint.pt")
    for epoch in range(1, 5):
        loss, norm = train_epoch(model, optimizer, scheduler)
        val_loss = evaluate(model)
        lr = scheduler.get_last_lr()[0]
        print(
            f"epoch {epoch} | lr {lr:.5f} | norm {norm:4.2f} | loss {loss:5.2f} | ppl {math.exp(val_loss):6.2f}"
        )
        if epoch == 2:
            torch.save(
                {
                    "epoch": epoch,
                    "model_state_dict": model.state_dict(),
                    "optimizer_state_dict": optimizer.state_dict(),
                    "scheduler_state_dict": scheduler.state_dict(),
                    "loss": loss,
                },
                path,
            )
    resumed, optimizer, scheduler = build()
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    print(sorted(checkpoint), checkpoint["epoch"], sorted(checkpoint["optimizer_state_dict"]))
    print(resumed.load_state_dict(checkpoint["model_state_dict"]))
    optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    scheduler.load_state_dict(checkpoint["scheduler_state_dict"])
    for epoch in range(checkpoint["epoch"] + 1, 5):
        train_epoch(resumed, optimizer, scheduler)
equal = all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), resumed.state_dict().values()))
print("resumed as if never stopped:", equal)

resumed.eval()
words = "the quick".split()
ids = torch.tensor([[dictionary.word2idx[w]] for w in words])
with torch.no_grad():
    for _ in range(8):
        mask = nn.Transformer.generate_square_subsequent_mask(len(ids))
        logits = resumed(ids, mask)[-1, 0]
        ids = torch.cat([ids, logits.argmax().view(1, 1)])
print(" ".join(dictionary.idx2word[i] for i in ids.squeeze(1).tolist()))
probabilities, likely = torch.softmax(logits, -1).topk(2)
print(probabilities.shape, dictionary.idx2word[likely[0].item()])
