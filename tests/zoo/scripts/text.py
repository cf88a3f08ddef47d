"""Text classification: a vocabulary, padded and packed batches, a bidirectional LSTM."""

import argparse
import random
from collections import Counter

import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--clip", type=float, default=1.0)
args = parser.parse_args()

random.seed(1)
torch.manual_seed(1)
device = "cuda:0" if torch.cuda.is_available() else "cpu"

GOOD = "good great fine lovely superb happy bright".split()
BAD = "bad awful poor dull sad broken grim".split()
PLAIN = "the a film book day it was very and but quite of with this that".split()


def sentence(label):
    words = random.choices(PLAIN, k=random.randint(4, 12))
    for _ in range(random.randint(1, 3)):
        words.insert(random.randrange(len(words) + 1), random.choice(GOOD if label else BAD))
    return words


corpus = [(sentence(k % 2), k % 2) for k in range(400)]
counter = Counter(w for words, _ in corpus for w in words)
itos = ["<unk>", "<pad>"] + [w for w, _ in sorted(counter.items(), key=lambda x: (-x[1], x[0]))]
stoi = {w: i for i, w in enumerate(itos)}
PAD = stoi["<pad>"]
print("vocabulary", len(itos), itos[2:5])


class Sentences(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        words, label = self.items[index]
        return torch.tensor([stoi.get(w, 0) for w in words]), torch.tensor(float(label))


def collate(batch):
    batch = sorted(batch, key=lambda x: len(x[0]), reverse=True)
    texts, labels = zip(*batch)
    lengths = torch.tensor([len(t) for t in texts])
    return pad_sequence(texts, batch_first=True, padding_value=PAD), lengths, torch.stack(labels)


class Classifier(nn.Module):
    def __init__(self, vocab_size, embedding_dim, hidden_dim, n_layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)
        self.rnn = nn.LSTM(
            embedding_dim,
            hidden_dim,
            num_layers=n_layers,
            bidirectional=True,
            batch_first=True,
            dropout=dropout,
        )
        self.fc = nn.Linear(hidden_dim * 2, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, text, lengths):
        embedded = self.dropout(self.embedding(text))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True)
        packed_output, (hidden, cell) = self.rnn(packed)
        output, output_lengths = pad_packed_sequence(packed_output, batch_first=True)
        assert output.shape[:2] == text.shape and torch.equal(output_lengths, lengths)
        hidden = self.dropout(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1))
        return self.fc(hidden).squeeze(1)


train_set, test_set = Sentences(corpus[:320]), Sentences(corpus[320:])
sampler = WeightedRandomSampler([1.0] * len(train_set), num_samples=len(train_set), replacement=True)
train_loader = DataLoader(train_set, batch_size=32, sampler=sampler, collate_fn=collate, drop_last=True)
test_loader = DataLoader(test_set, batch_size=40, collate_fn=collate)

model = Classifier(len(itos), 24, 32, 2, 0.1).to(device)
model.embedding.weight.data[PAD] = torch.zeros(24)
criterion = nn.BCEWithLogitsLoss()
optimizer = optim.Adam(model.parameters(), lr=5e-3)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1, factor=0.5)


def binary_accuracy(preds, y):
    rounded = torch.round(torch.sigmoid(preds))
    return (rounded == y).float().mean()


norms = []
for epoch in range(args.epochs):
    model.train()
    total = 0
    for text, lengths, labels in train_loader:
        text, labels = text.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(text, lengths), labels)
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), args.clip)))
        optimizer.step()
        total += loss.item()
    scheduler.step(total / len(train_loader))
    if epoch == 0:
        first = total
model.eval()
accuracy = []
with torch.no_grad():
    for text, lengths, labels in test_loader:
        accuracy.append(binary_accuracy(model(text, lengths), labels).item())
print("falls", total < first, "accurate", sum(accuracy) / len(accuracy) > 0.85)
print(
    "padding stays",
    model.embedding.weight[PAD].abs().sum().item(),
    model.embedding.weight.grad[PAD].sum().item(),
)
print("norms", all(n > 0 for n in norms), len(norms))
for name, parameter in list(model.named_parameters())[:5]:
    print(name, tuple(parameter.shape), parameter.dtype)
words = "this film was superb".split()
score = torch.sigmoid(model(torch.LongTensor([[stoi[w] for w in words]]), torch.tensor([4])))
print("positive", score.item() > 0.5, score.shape)
