"""Layers whose values are solutions: chains with a partition function, alignments, transport, sparse probabilities."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

torch.set_default_dtype(torch.float64)
rng = np.random.RandomState(3)


def rand(*size):
    return torch.from_numpy(rng.randn(*size))


# ---- a hidden Markov model: forward, backward, Viterbi, EM by gradients
class HMM(nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.start = nn.Parameter(rand(states))
        self.transition = nn.Parameter(rand(states, states))
        self.emission = nn.Parameter(rand(states, symbols))

    def log_probabilities(self):
        return (p.log_softmax(-1) for p in (self.start, self.transition, self.emission))

    def forward(self, x, lengths):
        start, transition, emission = self.log_probabilities()
        alpha = start + emission[:, x[:, 0]].T
        alphas = [alpha]
        for t in range(1, x.shape[1]):
            step = torch.logsumexp(alpha[:, :, None] + transition, dim=1) + emission[:, x[:, t]].T
            alpha = torch.where((t < lengths)[:, None], step, alpha)
            alphas.append(alpha)
        return torch.logsumexp(alpha, -1), torch.stack(alphas, 1)

    @torch.no_grad()
    def viterbi(self, x):
        start, transition, emission = self.log_probabilities()
        best, back = start + emission[:, x[0]], []
        for symbol in x[1:]:
            values, indices = (best[:, None] + transition).max(0)
            back.append(indices)
            best = values + emission[:, symbol]
        score, last = best.max(-1)
        path = [last.item()]
        for indices in reversed(back):
            path.append(indices[path[-1]].item())
        return score.item(), path[::-1]


hmm = HMM(3, 5)
x = torch.from_numpy(rng.randint(0, 5, (6, 7)))
lengths = torch.tensor([7, 7, 6, 5, 4, 2])
likelihood, alphas = hmm(x, lengths)
print(likelihood, alphas.shape)
# The gradient of the log-likelihood by log-potentials is the posterior: it sums to one a step.
probe = torch.zeros(6, 7, 3, requires_grad=True)


def posterior(extra):
    start, transition, emission = hmm.log_probabilities()
    alpha = start + emission[:, x[:, 0]].T + extra[:, 0]
    for t in range(1, 7):
        alpha = torch.logsumexp(alpha.unsqueeze(2) + transition, 1) + emission[:, x[:, t]].T + extra[:, t]
    return alpha.logsumexp(-1).sum()


(marginals,) = torch.autograd.grad(posterior(probe), probe)
print(marginals[0], marginals.sum(-1).sub(1).abs().max() < 1e-12)
print(hmm.viterbi(x[0]), hmm.viterbi(x[-1][:2]))
optimizer = torch.optim.Rprop(hmm.parameters(), lr=0.05)
for step in range(15):
    optimizer.zero_grad()
    loss = -hmm(x, lengths)[0].sum() / lengths.sum()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print("hmm", step, f"{loss.item():.8f}")


# ---- sparsemax, with a gradient of its own that has a gradient again
class Sparsemax(Function):
    @staticmethod
    def forward(z, dim):
        n = z.size(dim)
        ordered = z.sort(dim, descending=True).values.movedim(dim, -1)
        ranks = torch.arange(1, n + 1, dtype=z.dtype)
        support = 1 + ranks * ordered > ordered.cumsum(-1)
        size = support.sum(-1, keepdim=True)
        tau = (ordered.cumsum(-1).gather(-1, size - 1) - 1) / size
        return torch.clamp(z - tau.movedim(-1, dim), min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.dim = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, grad):
        (p,) = ctx.saved_tensors
        inside = (p > 0).to(grad.dtype)
        mean = (grad * inside).sum(ctx.dim, keepdim=True) / inside.sum(ctx.dim, keepdim=True)
        return inside * (grad - mean), None

    @staticmethod
    def jvp(ctx, tangent, _):
        (p,) = ctx.saved_tensors
        inside = (p > 0).to(tangent.dtype)
        return inside * (
            tangent - (tangent * inside).sum(ctx.dim, keepdim=True) / inside.sum(ctx.dim, keepdim=True)
        )


def sparsemax(z, dim=-1):
    return Sparsemax.apply(z, dim)


z = rand(3, 5).requires_grad_()
p = sparsemax(z)
print(p, p.sum(-1), p.grad_fn.name())
print(gradcheck(sparsemax, (z,)), gradgradcheck(sparsemax, (z,)), gradcheck(lambda z: sparsemax(z, 0), (z,)))
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(z.detach(), torch.ones_like(z))
    print(torch.autograd.forward_ad.unpack_dual(sparsemax(dual)).tangent.abs().max() < 1e-12)


# ---- transport by Sinkhorn's iteration, its gradient by the implicit function theorem
class Sinkhorn(Function):
    @staticmethod
    def forward(ctx, cost, a, b, eps, iterations):
        f, g = torch.zeros_like(a), torch.zeros_like(b)
        for _ in range(iterations):
            f = eps * (a.log() - torch.logsumexp((g - cost) / eps, 1))
            g = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
        plan = torch.exp((f[:, None] + g - cost) / eps)
        ctx.save_for_backward(plan)
        ctx.eps = eps
        ctx.set_materialize_grads(False)
        return plan

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        if grad is None:
            return None, None, None, None, None
        (plan,) = ctx.saved_tensors
        weighted = plan * grad
        n, m = plan.shape
        system = torch.zeros(n + m, n + m)
        system[:n, :n], system[n:, n:] = torch.diag(plan.sum(1)), torch.diag(plan.sum(0))
        system[:n, n:], system[n:, :n] = plan, plan.T
        right = torch.cat([weighted.sum(1), weighted.sum(0)])
        solved = torch.linalg.lstsq(system, right.unsqueeze(1), driver="gelsd").solution.squeeze(1)
        return (plan * (solved[:n, None] + solved[n:]) - weighted) / ctx.eps, None, None, None, None


points, others = rand(4, 2).requires_grad_(), rand(5, 2)
a, b = torch.full((4,), 0.25), torch.softmax(torch.arange(5.0) / 5, 0)
plan = Sinkhorn.apply(torch.cdist(points, others).square(), a, b, 0.5, 300)
print(plan, plan.sum(0) - b < 1e-10)
unrolled_cost = torch.cdist(points, others).square()
f, g = torch.zeros(4), torch.zeros(5)
for _ in range(300):
    f = 0.5 * (a.log() - torch.logsumexp((g - unrolled_cost) / 0.5, 1))
    g = 0.5 * (b.log() - torch.logsumexp((f[:, None] - unrolled_cost) / 0.5, 0))
unrolled = torch.exp((f[:, None] + g - unrolled_cost) / 0.5)
score = torch.arange(20.0).view(4, 5).sin()
ours = torch.autograd.grad((plan * score).sum(), points)[0]
theirs = torch.autograd.grad((unrolled * score).sum(), points)[0]
print(ours, (ours - theirs).abs().max() < 1e-8)
try:
    squared = (points[:, None] - others).square().sum(-1)
    plan = Sinkhorn.apply(squared, a, b, 0.5, 3)
    torch.autograd.grad((plan.square() * score).sum(), points, create_graph=True)[0].sum().backward()
except RuntimeError as e:
    print(type(e).__name__, "once" in str(e))


# ---- soft dynamic time warping: a table filled in NumPy
class SoftDTW(Function):
    @staticmethod
    def forward(ctx, distances, gamma):
        d = distances.detach().numpy()
        n, m = d.shape
        table = np.full((n + 2, m + 2), np.inf)
        table[0, 0] = 0
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                near = -np.array([table[i - 1, j - 1], table[i - 1, j], table[i, j - 1]]) / gamma
                top = near.max()
                table[i, j] = d[i - 1, j - 1] - gamma * (top + np.log(np.exp(near - top).sum()))
        ctx.save_for_backward(distances)
        ctx.table, ctx.gamma = table, gamma
        return distances.new_tensor(table[n, m])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (distances,) = ctx.saved_tensors
        n, m = distances.shape
        d, table, gamma = np.zeros((n + 2, m + 2)), ctx.table.copy(), ctx.gamma
        d[1:-1, 1:-1] = distances.numpy()
        table[:, -1] = table[-1, :] = -np.inf
        table[-1, -1] = table[n, m]
        e = np.zeros_like(d)
        e[-1, -1] = 1
        for j in range(m, 0, -1):
            for i in range(n, 0, -1):
                to = [(i + 1, j), (i, j + 1), (i + 1, j + 1)]
                e[i, j] = sum(math.exp((table[t] - table[i, j] - d[t]) / gamma) * e[t] for t in to)
        return grad * torch.from_numpy(e[1:-1, 1:-1]), None


u, v = rand(5, 2).requires_grad_(), rand(7, 2)
cost = torch.cdist(u, v)
print(
    f"{SoftDTW.apply(cost, 0.3).item():.8f}",
    gradcheck(lambda c: SoftDTW.apply(c, 0.3), (cost.detach().requires_grad_(),)),
)
SoftDTW.apply(cost, 0.3).backward()
print(u.grad)


# ---- choices: straight through, and rankings without a sort
def straight_through(logits, noise):
    soft = F.softmax(logits + noise, -1)
    hard = F.one_hot(soft.argmax(-1), logits.shape[-1]).to(soft.dtype)
    return hard + soft - soft.detach()


logits = rand(2, 4).requires_grad_()
noise = -torch.log(-torch.log(torch.from_numpy(rng.rand(2, 4))))
chosen = straight_through(logits, noise)
(chosen * torch.arange(4.0)).sum().backward()
print(chosen, logits.grad)


def soft_rank(s: Tensor, tau: float = 0.1) -> Tensor:
    return torch.sigmoid((s.unsqueeze(-2) - s.unsqueeze(-1)) / tau).sum(-1) + 0.5


scores = rand(6)
print(soft_rank(scores), soft_rank(scores, 1e-3).round(), scores.argsort(descending=True).argsort() + 1)
print(torch.func.jacrev(soft_rank)(scores).diagonal(), torch.func.vmap(soft_rank)(rand(3, 6)).shape)

# ---- saved for backward as halves, and told by shape and dtype
packed = []


def pack(t):
    packed.append((tuple(t.shape), t.dtype))
    return t.to(torch.float32)


with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(torch.float64)):
    value = torch.logsumexp(rand(3, 4).requires_grad_() * 2, -1).exp().prod()
value.backward()
print(len(packed) > 0, {d for _, d in packed}, value.grad_fn.name())
