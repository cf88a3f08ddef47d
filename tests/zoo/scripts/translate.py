"""Sequence to sequence with attention: packed batches, teacher forcing, greedy and beam decoding. Words are reversed."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, SOS, EOS = 0, 1, 2
random.seed(5)
rng = np.random.RandomState(5)
torch.manual_seed(5)
letters = "abcdefgh"
pairs = []
for _ in range(256):
    word = "".join(random.choice(letters) for _ in range(random.randint(2, 5)))
    pairs.append((word, word[::-1]))


def encode(word):
    return torch.tensor([letters.index(c) + 3 for c in word] + [EOS])


class EncoderRNN(nn.Module):
    def __init__(self, vocab_size, hidden_size):
        super(EncoderRNN, self).__init__()
        self.embedding = nn.Embedding(vocab_size, hidden_size, padding_idx=PAD)
        self.gru = nn.GRU(hidden_size, hidden_size, bidirectional=True)

    def forward(self, input_seqs, input_lengths, hidden=None):
        embedded = self.embedding(input_seqs)
        packed = pack_padded_sequence(embedded, input_lengths, enforce_sorted=False)
        outputs, hidden = self.gru(packed, hidden)
        outputs, lengths = pad_packed_sequence(outputs)
        outputs = outputs[:, :, : self.gru.hidden_size] + outputs[:, :, self.gru.hidden_size :]
        return outputs, hidden.sum(0, keepdim=True)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.Wa = nn.Linear(hidden_size, hidden_size)
        self.Ua = nn.Linear(hidden_size, hidden_size)
        self.Va = nn.Parameter(torch.empty(hidden_size))

    def forward(self, query, keys, mask):
        scores = torch.tanh(self.Wa(query) + self.Ua(keys)) @ self.Va  # [T, B]
        scores = scores.masked_fill(~mask, -1e9).t().unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        context = torch.bmm(weights, keys.transpose(0, 1))
        return context.transpose(0, 1), weights


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attention = BahdanauAttention(hidden_size)
        self.gru = nn.GRU(2 * hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, word, hidden, encoder_outputs, mask):
        embedded = self.embedding(word).unsqueeze(0)
        context, weights = self.attention(hidden, encoder_outputs, mask)
        output, hidden = self.gru(torch.cat((embedded, context), dim=2), hidden)
        return F.log_softmax(self.out(output.squeeze(0)), dim=1), hidden, weights


hidden_size, n_words = 48, len(letters) + 3
encoder, decoder = EncoderRNN(n_words, hidden_size), AttnDecoderRNN(hidden_size, n_words)
for module in (encoder, decoder):
    for p in module.parameters():
        p.data.copy_(torch.from_numpy(rng.uniform(-0.25, 0.25, tuple(p.shape))))
print(encoder)
print(decoder)
encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.01)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.01)
criterion = nn.NLLLoss(ignore_index=PAD)


def train(batch, teacher_forcing_ratio=0.7):
    source = [encode(a) for a, _ in batch]
    lengths = torch.tensor([len(s) for s in source])
    source, target = pad_sequence(source), pad_sequence([encode(b) for _, b in batch])
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    encoder_outputs, hidden = encoder(source, lengths)
    mask = torch.arange(encoder_outputs.size(0))[:, None] < lengths
    word = torch.full((len(batch),), SOS, dtype=torch.long)
    use_teacher_forcing = random.random() < teacher_forcing_ratio
    loss = 0
    for t in range(target.size(0)):
        output, hidden, _ = decoder(word, hidden, encoder_outputs, mask)
        loss += criterion(output, target[t])
        word = target[t] if use_teacher_forcing else output.topk(1)[1].squeeze(-1).detach()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.parameters(), 5.0)
    torch.nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item() / target.size(0)


plot_losses = []
for epoch in range(1, 13):
    random.shuffle(pairs)
    losses = [train(pairs[k : k + 32]) for k in range(0, len(pairs), 32)]
    plot_losses.append(sum(losses) / len(losses))
    if epoch <= 3:
        print("%d %.3f" % (epoch, plot_losses[-1]))
print("falls", plot_losses[-1] < plot_losses[0] / 2)


@torch.no_grad()
def evaluate(word, max_length=8):
    source = encode(word).unsqueeze(1)
    encoder_outputs, hidden = encoder(source, torch.tensor([source.size(0)]))
    mask = torch.ones(source.size(0), 1, dtype=torch.bool)
    token, decoded, attentions = torch.tensor([SOS]), "", torch.zeros(max_length, source.size(0))
    for step in range(max_length):
        output, hidden, weights = decoder(token, hidden, encoder_outputs, mask)
        attentions[step] = weights.data
        token = output.argmax(-1)
        if token.item() == EOS:
            break
        decoded += letters[token.item() - 3] if token.item() > 2 else "?"
    return decoded, attentions[: step + 1]


@torch.no_grad()
def beam(word, width=3, max_length=8):
    source = encode(word).unsqueeze(1)
    outputs, hidden = encoder(source, torch.tensor([source.size(0)]))
    outputs, hidden = outputs.expand(-1, width, -1).contiguous(), hidden.repeat(1, width, 1)
    mask = torch.ones(source.size(0), width, dtype=torch.bool)
    tokens = torch.full((1, width), SOS)
    scores = torch.tensor([0.0] + [-float("inf")] * (width - 1))
    for _ in range(max_length):
        log_p, new_hidden, _ = decoder(tokens[-1], hidden, outputs, mask)
        ended = tokens[-1] == EOS
        log_p[ended] = -float("inf")
        log_p[ended, EOS] = 0.0
        scores, best = (scores[:, None] + log_p).view(-1).topk(width)
        beams = torch.div(best, n_words, rounding_mode="floor")
        tokens = torch.cat([tokens.index_select(1, beams), (best % n_words).unsqueeze(0)])
        hidden = new_hidden.index_select(1, beams)
        if (tokens[-1] == EOS).all():
            break
    return scores, ["".join(letters[i - 3] for i in row if i > 2) for row in tokens.t().tolist()]


right = sum(evaluate(a)[0] == b for a, b in pairs[:64])
print("accurate", right > 40)
decoded, attentions = evaluate("abcd")
print(attentions.shape, attentions.sum(1))
scores, words = beam("abcd")
print(scores.shape, len(words), bool((scores[:-1] >= scores[1:]).all()))

packed = pack_padded_sequence(torch.arange(12.0).view(4, 3), torch.tensor([4, 2, 3]), enforce_sorted=False)
print(packed)
print(packed.data.tolist(), packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
print(nn.utils.rnn.unpack_sequence(packed))
