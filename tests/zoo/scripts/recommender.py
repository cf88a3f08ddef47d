"""Matrix factorisation with sparse embeddings, bags of words, word vectors by negative sampling."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
rng = np.random.default_rng(1)
n_users, n_items, rank = 40, 30, 3
truth = rng.normal(size=(n_users, rank)) @ rng.normal(size=(rank, n_items))
rows, cols = (rng.random((n_users, n_items)) < 0.4).nonzero()
ratings = torch.from_numpy(truth[rows, cols]).float()
users, items = torch.from_numpy(rows), torch.from_numpy(cols)
print(len(ratings), users.dtype, ratings.std())


class MatrixFactorization(nn.Module):
    def __init__(self, n_users, n_items, n_factors=4):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, n_factors, sparse=True)
        self.item_factors = nn.Embedding(n_items, n_factors, sparse=True)
        self.user_biases = nn.Embedding(n_users, 1, sparse=True)
        for p in self.parameters():
            p.data = torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))).float()

    def forward(self, user, item):
        return (self.user_factors(user) * self.item_factors(item)).sum(1) + self.user_biases(user).squeeze()


model = MatrixFactorization(n_users, n_items)
print(model)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.02)
loss_func = nn.MSELoss()
for epoch in range(12):
    order = torch.from_numpy(rng.permutation(len(ratings)))
    total = 0.0
    for index in order.split(64):
        loss = loss_func(model(users[index], items[index]), ratings[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(index)
    if epoch % 4 == 0:
        print(epoch, f"{total / len(ratings):.3f}")
grad = model.item_factors.weight.grad
print(grad.layout, grad.is_coalesced(), grad.shape, grad.is_sparse, grad.coalesce().indices().shape[0])
print(F.embedding(torch.tensor([0, 2]), torch.arange(6.0).view(3, 2)))

trained = model.item_factors.weight.detach()
similar = F.cosine_similarity(trained[0].unsqueeze(0), trained)
print(similar.topk(1).indices, similar.shape)

sgd = torch.optim.SGD([nn.Parameter(torch.ones(3, 2))], lr=0.5, momentum=0.9)
p = sgd.param_groups[0]["params"][0]
F.embedding(torch.tensor([2, 2]), p, sparse=True).sum().backward()
print(p.grad)
sgd.step()
print(p)
for cls in (torch.optim.Adam, torch.optim.Adagrad, torch.optim.AdamW, torch.optim.RMSprop):
    p = nn.Parameter(torch.ones(3, 2))
    F.embedding(torch.tensor([1]), p, sparse=True).sum().backward()
    try:
        cls([p], lr=0.1).step()
        print(cls.__name__, p.tolist())
    except RuntimeError as error:
        print(cls.__name__, str(error).partition(" does")[2].split(",")[0])
try:
    dense = nn.Parameter(torch.ones(2))
    dense.sum().backward()
    torch.optim.SparseAdam([dense]).step()
except RuntimeError as error:
    print(error)

bag = nn.EmbeddingBag(6, 2, mode="mean", sparse=True)
bag.weight.data = torch.arange(12.0).view(6, 2)
text, offsets = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 2])
print(bag(text, offsets).detach(), bag)
bag(text, offsets).sum().backward()
print(bag.weight.grad.to_dense())
weighted = F.embedding_bag(text, bag.weight, offsets, mode="sum", per_sample_weights=torch.ones(6) / 2)
print(weighted.detach())
frozen = nn.Embedding.from_pretrained(torch.eye(3), padding_idx=0)
print(frozen, frozen.weight.requires_grad, frozen(torch.tensor([[0, 2]])))
limited = nn.Embedding(3, 2, max_norm=1.0)
limited.weight.data.fill_(2.0)
print(limited(torch.tensor([1])), limited.weight)

corpus = (
    "king queen man woman king man queen woman prince princess boy girl prince boy princess girl".split() * 8
)
vocab = sorted(set(corpus))
index = {w: i for i, w in enumerate(vocab)}
pairs = torch.tensor([(index[a], index[b]) for a, b in zip(corpus, corpus[1:])])


class SkipGram(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.center = nn.Parameter(torch.from_numpy(rng.uniform(-0.5, 0.5, (size, dim))))
        self.context = nn.Parameter(torch.zeros(size, dim, dtype=torch.float64))

    def forward(self, center, positive, negative):
        v = F.embedding(center, self.center)
        pos = torch.einsum("bd,bd->b", v, self.context[positive])
        neg = torch.einsum("bd,bkd->bk", v, self.context[negative])
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


skip = SkipGram(len(vocab), 5)
optimizer = torch.optim.Adagrad(skip.parameters(), lr=0.3)
for epoch in range(10):
    negative = torch.from_numpy(rng.integers(0, len(vocab), (len(pairs), 3)))
    loss = skip(pairs[:, 0], pairs[:, 1], negative)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 3 == 0:
        print(epoch, f"{loss.item():.5f}")
vectors = F.normalize(skip.center.detach(), dim=1)
print(torch.round(vectors @ vectors.T, decimals=3)[0])
