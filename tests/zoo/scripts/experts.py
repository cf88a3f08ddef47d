"""A mixture of experts: gates by topk, tokens sorted and scattered, capacities, balancing losses; then a sparse memory."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter

rng = np.random.RandomState(21)
tensor = lambda *s: torch.from_numpy(rng.randn(*s).astype("f"))  # noqa: E731


class TopKGate(nn.Module):
    def __init__(self, dim, experts, k):
        super().__init__()
        self.w_gate = Parameter(tensor(dim, experts) * 0.3)
        self.w_noise = Parameter(torch.zeros(dim, experts))
        self.k, self.experts = k, experts

    def forward(self, x, noise=None):
        logits = x @ self.w_gate
        if noise is not None:
            logits = logits + noise * F.softplus(x @ self.w_noise)
        top, index = logits.topk(min(self.k + 1, self.experts), dim=1)
        gates = F.softmax(top[:, : self.k], dim=-1)
        full = torch.zeros_like(logits).scatter(1, index[:, : self.k], gates)
        return full, index[:, : self.k], gates, logits


class SparseDispatcher:
    """Rows for each expert, and their results put together again."""

    def __init__(self, gates):
        sorted_experts, index_sorted = torch.nonzero(gates).sort(0)
        _, self.expert_index = sorted_experts.split(1, dim=1)
        self.batch_index = torch.nonzero(gates)[index_sorted[:, 1], 0]
        self.part_sizes = (gates > 0).sum(0).tolist()
        self.gates, exp = gates, gates[self.batch_index.flatten()]
        self.nonzero_gates = torch.gather(exp, 1, self.expert_index)

    def dispatch(self, x):
        return torch.split(x[self.batch_index].squeeze(1), self.part_sizes, dim=0)

    def combine(self, outs):
        stitched = torch.cat(outs, 0).mul(self.nonzero_gates)
        zeros = torch.zeros(self.gates.size(0), outs[-1].size(1), requires_grad=True)
        return zeros.index_add(0, self.batch_index, stitched)


class MoE(nn.Module):
    def __init__(self, dim, hidden, experts=4, k=2):
        super().__init__()
        self.gate = TopKGate(dim, experts, k)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.SELU(), nn.Linear(hidden, dim)) for _ in range(experts)
        )

    def cv_squared(self, x):
        return x.float().var() / (x.float().mean() ** 2 + 1e-10)

    def forward(self, x, noise=None):
        gates, index, weights, logits = self.gate(x, noise)
        importance, load = gates.sum(0), (gates > 0).sum(0)
        dispatcher = SparseDispatcher(gates)
        outs = [e(part) for e, part in zip(self.experts, dispatcher.dispatch(x))]
        z_loss = torch.logsumexp(logits, dim=-1).square().mean()
        return dispatcher.combine(outs), self.cv_squared(importance) + 1e-3 * z_loss, load

    def dense(self, x):
        gates = self.gate(x)[0]
        return torch.einsum("ne,end->nd", gates, torch.stack([e(x) for e in self.experts]))


moe = MoE(6, 10)
for p in moe.experts.parameters():
    p.data = tensor(*p.shape) * (0.4 if p.dim() > 1 else 0.0)
x = tensor(20, 6)
out, aux, load = moe(x)
print(
    "load", load.tolist(), f"aux {aux.item():.4f}", "as dense", torch.allclose(out, moe.dense(x), atol=1e-6)
)
out.square().sum().backward()
sparse = moe.gate.w_gate.grad.clone()
moe.zero_grad()
moe.dense(x).square().sum().backward()
print("gradients", torch.allclose(sparse, moe.gate.w_gate.grad, atol=1e-4), f"{sparse.norm().item():.3f}")

target = torch.tanh(x.roll(1, 1) * x)
optimizer = torch.optim.Adamax(moe.parameters(), lr=2e-2)
for step in range(30):
    y, aux, load = moe(x, tensor(20, 4))
    loss = F.mse_loss(y, target) + 0.01 * aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step < 4:
        print(f"step {step} loss {loss.item():.4f} load {load.tolist()}")
print("falls", loss.item() < 0.3)


def switch(logits, capacity):
    """Switch routing: one expert a token, the first `capacity` of each."""
    probs = logits.softmax(-1)
    gate, expert = probs.max(-1)
    hot = F.one_hot(expert, logits.shape[1])
    position = hot.cumsum(0) * hot
    kept = (position <= capacity) * hot
    dropped = kept.sum(1) == 0
    slots = F.one_hot((position.sum(1) - 1).clamp(0, capacity - 1), capacity).float()
    dispatch = torch.einsum("ne,nc->nec", kept.float(), slots)
    balance = logits.shape[1] * (hot.float().mean(0) * probs.mean(0)).sum()
    return dispatch, dispatch * gate[:, None, None], dropped, balance


logits = x @ moe.gate.w_gate.detach() * 2
dispatch, combine, dropped, balance = switch(logits, 4)
print(
    "dropped",
    dropped.nonzero().flatten().tolist(),
    f"balance {balance.item():.4f}",
    dispatch.sum((0, 2)).tolist(),
)
inputs = torch.einsum("nec,nd->ecd", dispatch, x)
outputs = torch.bmm(inputs, tensor(4, 6, 3))
print(tuple(inputs.shape), f"{torch.einsum('nec,ecd->nd', combine, outputs).abs().sum().item():.3f}")

# Tokens sorted by their expert: offsets, products of unequal groups, and back.
expert = logits.argmax(1)
order = torch.argsort(expert, stable=True)
counts = torch.bincount(expert, minlength=4)
offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
weights = tensor(4, 6, 3)
groups = [x[order][a:b] @ w for a, b, w in zip(offsets, offsets[1:], weights)]
back = torch.empty(20, 3).index_copy_(0, order, torch.cat(groups))
print(
    "sorted", torch.allclose(back, torch.einsum("nd,ndk->nk", x, weights[expert]), atol=1e-5), counts.tolist()
)
inverse = torch.empty_like(order).scatter_(0, order, torch.arange(20))
print(
    torch.equal(order[inverse], torch.arange(20)), torch.searchsorted(expert[order], torch.arange(4)).tolist()
)
by_mean = torch.zeros(4, 6).scatter_reduce_(0, expert[:, None].expand(-1, 6), x, "mean", include_self=False)
by_max = torch.full((4, 6), -torch.inf).index_reduce_(0, expert, x, "amax")
print([round(v, 3) for v in by_mean[:, 0].tolist()], [round(v, 3) for v in by_max[:, 0].tolist()])
print(
    torch.segment_reduce(x[order][:, 0].contiguous(), "max", lengths=counts).tolist() == by_max[:, 0].tolist()
)


class ProductKeys(nn.Module):
    """A memory of n^2 values, found by two halves of a key. Lample et al., 2019."""

    def __init__(self, n=5, dim=4, out=3, k=3):
        super().__init__()
        self.keys, self.k, self.n = Parameter(tensor(2, n, dim // 2)), k, n
        self.values = nn.EmbeddingBag(n * n, out, mode="sum", _weight=tensor(n * n, out))

    def forward(self, q):
        halves = torch.stack(q.chunk(2, -1), 1)
        scores, index = torch.einsum("bhd,hnd->bhn", halves, self.keys).topk(self.k, -1)
        both = (scores[:, 0, :, None] + scores[:, 1, None, :]).flatten(1)
        place = (index[:, 0, :, None] * self.n + index[:, 1, None, :]).flatten(1)
        best, at = both.topk(self.k)
        return self.values(place.gather(1, at), per_sample_weights=best.softmax(-1))


memory = ProductKeys()
y = memory(x[:, :4])
y.sum().backward()
used = memory.values.weight.grad.abs().sum(1).count_nonzero().item()
print(
    tuple(y.shape),
    [round(v, 3) for v in y[0].tolist()],
    "used",
    used,
    f"{memory.keys.grad.norm().item():.3f}",
)
beams = torch.topk(torch.tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]]).flatten(), 4)
print(
    beams.indices.div(3, rounding_mode="floor").tolist(),
    (beams.indices % 3).tolist(),
    torch.unravel_index(beams.indices, (2, 3))[1].tolist(),
)
print(
    torch.kthvalue(x[:, 0], 5).indices.item(),
    torch.mode(expert).values.item(),
    torch.isin(expert, torch.tensor([0, 3])).sum().item(),
)
