"""Networks on graphs: convolution by a sparse matrix, messages by scattering, attention over edges."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
# Two circles of eight, with a bridge: which circle a node is of, from one labelled node of each.
edges = (
    [(i, (i + 1) % 8) for i in range(8)]
    + [(8 + i, 8 + (i + 1) % 8) for i in range(8)]
    + [(0, 8), (2, 6), (10, 14)]
)
edge_index = torch.tensor(edges + [(b, a) for a, b in edges]).t().contiguous()
n = int(edge_index.max()) + 1
loops = torch.arange(n).repeat(2, 1)
index = torch.cat([edge_index, loops], dim=1)
degree = torch.zeros(n).scatter_add_(0, index[0], torch.ones(index.shape[1]))
norm = degree.pow(-0.5)
values = norm[index[0]] * norm[index[1]]
adj = torch.sparse_coo_tensor(index, values, (n, n)).coalesce()
print(adj)
print(adj.shape, adj._nnz(), torch.sparse.sum(adj, dim=1).to_dense()[:3], adj.to_sparse_csr().crow_indices())


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super(GraphConvolution, self).__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.empty(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        count = self.weight.numel()
        self.weight.data.copy_(torch.sin(torch.arange(count) * 2.1).view_as(self.weight) * stdv)
        if self.bias is not None:
            self.bias.data.zero_()

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        return output + self.bias if self.bias is not None else output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + " -> " + str(self.out_features) + ")"


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass, bias=False)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        return F.log_softmax(self.gc2(x, adj), dim=1)


features, labels = torch.eye(n), (torch.arange(n) >= 8).long()
idx_train = torch.LongTensor([4, 12])
model = GCN(n, 8, 2)
print(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
for epoch in range(25):
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.nll_loss(output[idx_train], labels[idx_train])
    loss.backward()
    optimizer.step()
    if epoch % 8 == 0:
        acc = output.argmax(1).eq(labels).double().mean()
        print(
            "Epoch: {:04d}".format(epoch + 1),
            "loss: {:.5f}".format(loss.item()),
            "acc: {:.4f}".format(acc.item()),
        )


class GAT(nn.Module):
    def __init__(self, in_features, out_features, heads=2):
        super().__init__()
        self.heads, self.out = heads, out_features
        self.W = nn.Parameter(
            torch.cos(torch.arange(in_features * heads * out_features) * 1.3).view(in_features, -1)
        )
        self.a = nn.Parameter(torch.sin(torch.arange(heads * 2 * out_features)).view(1, heads, -1))

    def forward(self, x, edge_index):
        source, target = edge_index
        h = (x @ self.W).view(-1, self.heads, self.out)
        e = F.leaky_relu((torch.cat([h[source], h[target]], -1) * self.a).sum(-1), 0.2)
        largest = torch.full((x.shape[0], self.heads), -math.inf)
        largest = largest.scatter_reduce(
            0, target[:, None].expand_as(e), e, reduce="amax", include_self=False
        )
        alpha = (e - largest[target]).exp()
        total = torch.zeros_like(largest).index_add_(0, target, alpha)
        alpha = alpha / total[target]
        out = torch.zeros_like(h).index_add(0, target, alpha.unsqueeze(-1) * h[source])
        return F.elu(out.flatten(1)), alpha


gat = GAT(n, 2)
out, alpha = gat(features, index)
print(out.shape, torch.zeros(n, 2).index_add_(0, index[1], alpha.detach()).unique())
out.sum().backward()
print(f"{gat.W.grad.norm():.5f} {gat.a.grad.norm():.5f}", out[0])

x = torch.arange(6.0).view(3, 2).requires_grad_()
small = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3), requires_grad=True)
y = torch.sparse.mm(small, x)
y.sum().backward()
print(y.detach(), small.grad, x.grad, sep="\n")
print(small.detach().to_dense(), small.t().shape, (small.detach() * 2).coalesce().values())
print(
    torch.sparse.softmax(small.detach(), dim=1).to_dense(),
    torch.sparse.addmm(torch.ones(2, 2), small.detach(), x.detach()),
)
csr = torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], size=(2, 3))
print(csr, csr @ torch.ones(3), csr.to_dense().to_sparse().indices(), sep="\n")
pooled = torch.zeros(2, n).index_reduce_(0, labels, features.double(), "mean")
print(pooled.sum(1), torch.segment_reduce(torch.arange(6.0), "sum", lengths=torch.tensor([2, 4])))
dist = torch.full((n, n), math.inf).fill_diagonal_(0)
dist[edge_index[0], edge_index[1]] = 1
for k in range(n):
    dist = torch.minimum(dist, dist[:, k, None] + dist[None, k])
print(dist.max(), dist[0].int(), torch.linalg.matrix_power(adj.to_dense(), 3)[0, :3])
lap = torch.diag(degree) - adj.to_dense().ne(0).double()
print(torch.linalg.eigvalsh(lap)[:3].abs() < 1e-9, (adj.to_dense() != 0).nonzero(as_tuple=True)[0][:5])
