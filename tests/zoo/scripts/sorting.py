"""nn.Transformer as a whole: a language of sorted numbers, masks, label smoothing, a Noam schedule, greedy decoding."""

import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from torch.optim.lr_scheduler import LambdaLR

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
VOCABULARY, EMB, HEADS = 14, 32, 4
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rng = np.random.RandomState(7)


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size: int, dropout: float, maxlen: int = 50):
        super(PositionalEncoding, self).__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2), persistent=False)

    def forward(self, token_embedding: Tensor):
        return self.dropout(token_embedding + self.pos_embedding[: token_embedding.size(0), :])


class Seq2SeqTransformer(nn.Module):
    def __init__(self, layers, norm_first):
        super().__init__()
        self.transformer = Transformer(
            d_model=EMB,
            nhead=HEADS,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=64,
            dropout=0.0,
            activation="gelu",
            norm_first=norm_first,
        )
        self.generator = nn.Linear(EMB, VOCABULARY, bias=False)
        self.tok_emb = nn.Embedding(VOCABULARY, EMB)
        self.generator.weight = self.tok_emb.weight
        self.positional_encoding = PositionalEncoding(EMB, dropout=0.0)

    def embed(self, tokens):
        return self.positional_encoding(self.tok_emb(tokens.long()) * math.sqrt(EMB))

    def forward(self, src, trg, src_mask, tgt_mask, src_padding, tgt_padding, memory_padding):
        outs = self.transformer(
            self.embed(src),
            self.embed(trg),
            src_mask,
            tgt_mask,
            None,
            src_padding,
            tgt_padding,
            memory_padding,
        )
        return self.generator(outs)

    def encode(self, src, src_mask=None, padding=None):
        return self.transformer.encoder(self.embed(src), src_mask, src_key_padding_mask=padding)

    def decode(self, tgt, memory, tgt_mask):
        return self.transformer.decoder(self.embed(tgt), memory, tgt_mask)


def generate_square_subsequent_mask(sz):
    mask = (torch.triu(torch.ones((sz, sz), device=DEVICE)) == 1).transpose(0, 1)
    return mask.float().masked_fill(mask == 0, float("-inf")).masked_fill(mask == 1, float(0.0))


def create_mask(src, tgt):
    n = tgt.shape[0]
    tgt_mask = generate_square_subsequent_mask(n)
    src_mask = torch.zeros((src.shape[0], src.shape[0]), device=DEVICE).type(torch.bool)
    return src_mask, tgt_mask, (src == PAD).transpose(0, 1), (tgt == PAD).transpose(0, 1)


def batch(size):
    rows, sorts = [], []
    for _ in range(size):
        x = rng.randint(FIRST, VOCABULARY, rng.randint(3, 7))
        rows.append(torch.tensor([BOS, *x.tolist(), EOS]))
        sorts.append(torch.tensor([BOS, *sorted(x.tolist()), EOS]))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, padding_value=PAD), pad(sorts, padding_value=PAD)


for norm_first in (False, True):
    model = Seq2SeqTransformer(2, norm_first).to(DEVICE)
    for p in model.parameters():
        if p.dim() > 1:
            bound = math.sqrt(6 / (p.shape[0] + p.shape[1]))
            p.data.copy_(torch.from_numpy(rng.uniform(-bound, bound, p.shape)))
        elif not torch.all(p == 1):
            nn.init.zeros_(p)
    loss_fn = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3, betas=(0.9, 0.98), eps=1e-9)
    noam = lambda step: EMB**-0.5 * min((step + 1) ** -0.5, (step + 1) * 30**-1.5)  # noqa: E731
    scheduler = LambdaLR(optimizer, noam)
    print("norm first", norm_first, len(model.state_dict()), sum(p.numel() for p in model.parameters()))
    for step in range(50):
        src, tgt = batch(24)
        tgt_input, tgt_out = tgt[:-1, :], tgt[1:, :]
        src_mask, tgt_mask, src_padding, tgt_padding = create_mask(src, tgt_input)
        logits = model(src, tgt_input, src_mask, tgt_mask.isinf(), src_padding, tgt_padding, src_padding)
        optimizer.zero_grad()
        loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step < 5:
            print(f"step {step} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.6f}")
    print("falls", loss.item() < 1.9)

model.eval()
start = time.perf_counter()
src, tgt = batch(6)
with torch.no_grad():
    memory = model.encode(src, padding=(src == PAD).t())
    ys = torch.full((1, 6), BOS, dtype=torch.long)
    finished = torch.zeros(6, dtype=torch.bool)
    for i in range(9):
        out = model.decode(ys, memory, nn.Transformer.generate_square_subsequent_mask(ys.size(0)))
        prob = model.generator(out[-1])
        word = prob.max(dim=1)[1].masked_fill(finished, PAD)
        ys = torch.cat([ys, word[None]], dim=0)
        finished |= word == EOS
        if finished.all():
            break
print("decoded", ys.shape[1], bool((ys[0] == BOS).all()), time.perf_counter() > start)

# Its parts by themselves, compared with what they are made of.
layer = TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation=nn.functional.silu)
encoder = TransformerEncoder(layer, 2, norm=nn.LayerNorm(8))
decoder = TransformerDecoder(TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, bias=False), 1)
for module in (encoder, decoder):
    for k, p in enumerate(module.parameters()):
        p.data = torch.sin(torch.arange(p.numel()).float() + k).view_as(p) * 0.3
x = torch.linspace(-1, 1, 48).view(2, 3, 8)
keep = torch.tensor([[False, False, False], [False, False, True]])
train = encoder(x, src_key_padding_mask=keep)
encoder.eval()
with torch.no_grad():
    fast = encoder(x, src_key_padding_mask=keep)
print("fast path", bool(torch.allclose(train[~keep], fast[~keep], atol=1e-6)), tuple(fast.shape))
print([round(v, 4) for v in train[0, 0].tolist()])
y = decoder(
    x,
    train.detach(),
    tgt_mask=Transformer.generate_square_subsequent_mask(3),
    tgt_is_causal=True,
    memory_key_padding_mask=keep,
)
print([round(v, 4) for v in y[1, 2].tolist()])
first = decoder(x[:, :1], train.detach(), memory_key_padding_mask=keep)
print("causal", bool(torch.allclose(first, y[:, :1], atol=1e-6)))
attention = nn.MultiheadAttention(
    8, 2, kdim=6, vdim=5, add_bias_kv=True, add_zero_attn=True, batch_first=True
)
for k, p in enumerate(attention.parameters()):
    p.data = torch.cos(torch.arange(p.numel()).float() + k).view_as(p) * 0.3
out, weights = attention(x, torch.ones(2, 4, 6), torch.ones(2, 4, 5), average_attn_weights=False)
print(tuple(out.shape), tuple(weights.shape), [round(v, 4) for v in weights[0, 1, 2].tolist()])
print(f"{weights.sum(-1).mean().item():.4f}", attention.in_proj_weight is None, layer)
