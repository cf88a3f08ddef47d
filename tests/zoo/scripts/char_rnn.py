"""Text one character at a time: an LSTM with its state carried along, sampling with a temperature and with the best few."""

import string

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
np.random.seed(3)
text = "she sells sea shells by the sea shore , the shells she sells are sea shells for sure .\n" * 12
all_characters = string.printable
vocab = sorted(set(text))
char_to_ix = {ch: i for i, ch in enumerate(vocab)}
encoded = np.array([char_to_ix[c] for c in text])
print(len(text), len(vocab), "".join(vocab[1:6]), len(all_characters))


def one_hot_encode(arr, n_labels):
    one_hot = np.zeros((arr.size, n_labels), dtype=np.float32)
    one_hot[np.arange(one_hot.shape[0]), arr.flatten()] = 1.0
    return one_hot.reshape((*arr.shape, n_labels))


def get_batches(arr, batch_size, seq_length):
    per_batch = batch_size * seq_length
    n_batches = (len(arr) - 1) // per_batch
    x = arr[: n_batches * per_batch].reshape((batch_size, -1))
    y = arr[1 : n_batches * per_batch + 1].reshape((batch_size, -1))
    for n in range(0, x.shape[1], seq_length):
        yield x[:, n : n + seq_length], y[:, n : n + seq_length]


class CharRNN(nn.Module):
    def __init__(self, tokens, n_hidden=64, n_layers=2, drop_prob=0.0):
        super().__init__()
        self.n_layers, self.n_hidden, self.tokens = n_layers, n_hidden, tokens
        self.lstm = nn.LSTM(len(tokens), n_hidden, n_layers, dropout=drop_prob, batch_first=True)
        self.dropout = nn.Dropout(drop_prob)
        self.fc = nn.Linear(n_hidden, len(tokens))

    def forward(self, x, hidden):
        r_output, hidden = self.lstm(x, hidden)
        out = self.dropout(r_output)
        out = out.contiguous().view(-1, self.n_hidden)
        return self.fc(out), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters()).data
        return (
            weight.new(self.n_layers, batch_size, self.n_hidden).zero_(),
            weight.new(self.n_layers, batch_size, self.n_hidden).zero_(),
        )


net = CharRNN(vocab)
for name, p in net.named_parameters():
    bound = 1 / np.sqrt(net.n_hidden)
    p.data = torch.from_numpy(np.random.uniform(-bound, bound, tuple(p.shape)).astype(np.float32))
    if name.startswith("lstm.bias_hh"):
        p.data[net.n_hidden : 2 * net.n_hidden].fill_(1.0)  # the forget gate is open at first
print(net)
print({n: tuple(p.size()) for n, p in net.named_parameters() if "l1" in n or "fc" in n})

opt = torch.optim.RMSprop(net.parameters(), lr=0.004)
criterion = nn.CrossEntropyLoss()
net.train()
for e in range(24):
    h = net.init_hidden(4)
    losses = []
    for x, y in get_batches(encoded, 4, 29):
        inputs, targets = torch.from_numpy(one_hot_encode(x, len(vocab))), torch.from_numpy(y)
        h = tuple([each.data for each in h])  # no gradient through the history
        net.zero_grad()
        output, h = net(inputs, h)
        loss = criterion(output, targets.reshape(-1).long())
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.5)
        opt.step()
        losses.append(loss.item())
    if e % 4 == 0 and e < 8:
        print("Epoch: {}/{}...".format(e + 1, 24), "Loss: {:.1f}".format(np.mean(losses)))
print("learned", losses[-1] < 0.5)


def predict(char, h=None, top_k=None, temperature=1.0):
    x = torch.from_numpy(one_hot_encode(np.array([[char_to_ix[char]]]), len(vocab)))
    h = tuple(each.detach() for each in h)
    out, h = net(x, h)
    p = F.softmax(out / temperature, dim=1).data
    if top_k is None:
        return vocab[torch.multinomial(p, 1)[0, 0]], h
    p, top_ch = p.topk(top_k)
    p, top_ch = p.numpy().reshape(-1), top_ch.numpy().reshape(-1)
    return vocab[int(np.random.choice(top_ch, p=p / p.sum()))], h


def sample(size, prime, **kwargs):
    net.eval()
    chars = list(prime)
    h = net.init_hidden(1)
    for ch in prime:
        char, h = predict(ch, h, **kwargs)
    chars.append(char)
    while len(chars) < size:
        char, h = predict(chars[-1], h, **kwargs)
        chars.append(char)
    return "".join(chars)


print(sample(8, "she s", top_k=1))
words = set(sample(200, "sea ", temperature=0.5).split()[:-1])
print("spelled", sum(w in text.split() for w in words) / len(words) > 0.6)
print(net.lstm.flatten_parameters(), net.lstm.all_weights[0][0].shape, net.lstm._all_weights[1])

cell = nn.LSTMCell(len(vocab), 8)
state = None
for step in range(3):
    state = cell(torch.zeros(2, len(vocab)), state)
print(cell, state[0].shape, state[1].requires_grad)
