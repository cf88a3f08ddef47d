"""Sparse tensors at work: layouts and conversions, products and their gradients, softmax, masks, diagonals, embeddings, a pruned layer."""

import warnings

import numpy as np
import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
rng = np.random.RandomState(11)
torch.set_printoptions(precision=3, sci_mode=False)


def tensor(*sizes):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32))


i = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])
v = torch.tensor([3.0, 4.0, 5.0, 1.0])
s = torch.sparse_coo_tensor(i, v, (2, 3))
print(s, s.is_coalesced(), s.coalesce(), s.to_dense())
print(s.sparse_dim(), s.dense_dim(), s._nnz(), s.layout, s.is_sparse, s.dtype, s.shape)
hybrid = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [[3, 4], [5, 6], [7, 8]], (2, 3, 2))
print(hybrid.to_dense()[1, 2], hybrid.dense_dim(), torch.sparse.sum(hybrid.float(), dim=1).to_dense())

dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 4]])
for layout in (torch.sparse_coo, torch.sparse_csr):
    t = dense.to_sparse(layout=layout)
    print(t.layout, t.values(), torch.equal(t.to_dense(), dense), t.to_sparse(layout=layout) is t)
csr = dense.to_sparse_csr()
print(csr.crow_indices(), csr.col_indices(), csr.values(), (csr @ torch.ones(4, 1)).flatten())
made = torch.sparse_csr_tensor(
    torch.tensor([0, 2, 3, 4]), torch.tensor([1, 3, 0, 3]), torch.tensor([1.0, 2, 3, 4]), (3, 4)
)
print(
    torch.equal(made.to_dense(), dense),
    dense.to_sparse(1).values().shape,
    dense.to_sparse(dense_dim=1).sparse_dim(),
)

# products, forward and backward
a = dense.to_sparse().requires_grad_()
b = tensor(4, 2).requires_grad_()
y = torch.sparse.mm(a, b)
y.sum().backward()
print(y.detach(), a.grad.to_dense(), b.grad)
print(
    torch.sparse.addmm(torch.ones(3, 2), a.detach(), b.detach(), beta=0.5),
    torch.mv(a.detach(), torch.ones(4)),
)
print(
    (a.detach() * 2).to_dense()[0],
    (a.detach() + a.detach()).coalesce().values(),
    (dense.to_sparse() * dense).to_dense().sum(),
)
print(torch.sparse.mm(a.detach(), dense.t().to_sparse()).to_dense())
w = tensor(3, 4)
print(
    w.sparse_mask(dense.to_sparse().coalesce()).values(),
    torch.sparse.softmax(dense.to_sparse(), dim=1).to_dense(),
)
print(
    torch.sparse.log_softmax(dense.to_sparse(), dim=1).coalesce().values(),
    torch.sparse.sum(dense.to_sparse()),
)
print(torch.sparse.spdiags(torch.arange(6.0).reshape(2, 3), torch.tensor([0, -1]), (3, 3)).to_dense())
print(
    dense.to_sparse().t().coalesce().indices(),
    dense.to_sparse().abs().sqrt().coalesce().values(),
    torch.stack([dense.to_sparse()] * 2).shape,
)
print(
    dense.to_sparse().index_select(0, torch.tensor([1, 2])).to_dense(),
    torch.cat([dense.to_sparse(), dense.to_sparse()], 1).shape,
)
# embeddings with sparse gradients
table = nn.Embedding(10, 3, sparse=True)
bag = nn.EmbeddingBag(10, 3, mode="sum", sparse=True)
for m in (table, bag):
    m.weight.data = tensor(10, 3)
optimizer = torch.optim.SparseAdam(list(table.parameters()) + list(bag.parameters()), lr=0.1)
ids, offsets = torch.tensor([1, 3, 3, 7]), torch.tensor([0, 2])
for step in range(3):
    loss = table(ids).pow(2).sum() + bag(ids, offsets).pow(2).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(round(loss.item(), 3), table.weight.grad.is_sparse, table.weight.grad.coalesce().indices().tolist())
sgd = torch.optim.SGD(table.parameters(), lr=0.1)
table(ids).sum().backward()
sgd.step()
print(table.weight.data[[1, 3]], table.weight.grad.coalesce().values()[1])


class SparseLinear(nn.Module):
    """Keeps the largest weights, as a sparse matrix whose values are trained."""

    def __init__(self, weight, keep):
        super().__init__()
        threshold = weight.abs().flatten().kthvalue(weight.numel() - keep).values
        kept = (weight * (weight.abs() > threshold)).to_sparse().coalesce()
        self.register_buffer("indices", kept.indices())
        self.values, self.shape = nn.Parameter(kept.values()), weight.shape

    def forward(self, x):
        return torch.sparse.mm(torch.sparse_coo_tensor(self.indices, self.values, self.shape), x.t()).t()


weight, x = tensor(5, 8), tensor(16, 8)
layer = SparseLinear(weight, 12)
goal = x @ weight.t()
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
for step in range(6):
    loss = nn.functional.mse_loss(layer(x), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4), layer.values.grad.shape[0])
torch.save(layer.state_dict(), "sparse.pt")
torch.save(dense.to_sparse(), "coo.pt")
print(torch.load("coo.pt").to_dense().sum(), list(torch.load("sparse.pt")))
