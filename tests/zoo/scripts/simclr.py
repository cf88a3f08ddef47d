"""Contrast without labels: SimCLR, MoCo's queue, BYOL, Barlow Twins; LARS, SAM and Lookahead written as optimizers, hooks of steps."""

import copy
import math
from collections import defaultdict
from functools import wraps

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook, required
from torch.utils.data import DataLoader, Dataset

rng = np.random.RandomState(12)
torch.set_printoptions(precision=4, sci_mode=False)


def fill(m, scale=0.3):
    for p in m.parameters():
        p.data = torch.tensor(rng.randn(*p.shape) * scale, dtype=p.dtype)
    return m


class TwoViews(Dataset):
    def __init__(self, n=48):
        self.labels = rng.randint(0, 4, n)
        self.data = (np.eye(4)[self.labels].repeat(2, 1) * 2 + 0.3 * rng.randn(n, 8)).astype(np.float32)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return [self.data[i] + 0.2 * rng.randn(8).astype("f") for _ in range(2)], int(self.labels[i])


def encoder(d=6):
    return fill(
        nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Linear(16, d, bias=False)
        )
    )


def info_nce(z1, z2, temperature=0.5):
    n = z1.shape[0]
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = torch.matmul(z, z.T)
    mask = torch.eye(2 * n, dtype=torch.bool)
    labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    labels = labels[~mask].view(2 * n, -1)
    similarity = similarity[~mask].view(2 * n, -1)
    positives, negatives = (
        similarity[labels.bool()].view(2 * n, -1),
        similarity[~labels.bool()].view(2 * n, -1),
    )
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return F.cross_entropy(logits, torch.zeros(2 * n, dtype=torch.long)), (
        logits.argmax(1) == 0
    ).float().mean()


class LARS(Optimizer):
    def __init__(self, params, lr=required, momentum=0.9, weight_decay=0.0, eta=1e-2):
        if lr is not required and lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, eta=eta))

    def __setstate__(self, state):
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d_p = p.grad
                if p.ndim > 1:
                    d_p = d_p.add(p, alpha=group["weight_decay"])
                    norm, update = torch.norm(p), torch.norm(d_p)
                    one = torch.ones_like(norm)
                    d_p = d_p.mul(
                        torch.where(
                            norm > 0.0, torch.where(update > 0, group["eta"] * norm / update, one), one
                        )
                        * 10
                    )
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(d_p)
                p.add_(state["mu"], alpha=-group["lr"])
        return loss


data = TwoViews()
loader = DataLoader(data, batch_size=16, drop_last=True)
net = encoder()
opt = LARS(
    [
        {"params": [p for p in net.parameters() if p.ndim > 1]},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ],
    lr=0.2,
    weight_decay=1e-4,
)
sched = torch.optim.lr_scheduler.SequentialLR(
    opt,
    [
        torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=3),
        torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20),
    ],
    milestones=[3],
)
print(opt)
for epoch in range(12):
    for (v1, v2), _ in loader:
        loss, acc = info_nce(net(v1), net(v2))
        opt.zero_grad()
        loss.backward()
        opt.step()
    sched.step()
    if epoch < 4:
        print(f"epoch {epoch} loss {loss:.3f} top1 {acc:.3f} lr {sched.get_last_lr()[0]:.4f}")
print("contrast", loss.item() < 2.9)
print(loss)


class MoCo(nn.Module):
    def __init__(self, dim=6, K=32, m=0.9, T=0.2):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = encoder(dim), encoder(dim)
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.data.copy_(pq.data)
            pk.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.from_numpy(rng.randn(dim, K).astype("f")), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update(self):
        for pq, pk in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            pk.data = pk.data * self.m + pq.data * (1.0 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + keys.shape[0]] = keys.T
        self.queue_ptr[0] = (ptr + keys.shape[0]) % self.K

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._momentum_update()
            idx_shuffle = torch.from_numpy(rng.permutation(len(im_k)))
            idx_unshuffle = torch.argsort(idx_shuffle)
            k = F.normalize(self.encoder_k(im_k[idx_shuffle]), dim=1)[idx_unshuffle]
        l_pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        self._dequeue_and_enqueue(k)
        return logits, torch.zeros(logits.shape[0], dtype=torch.long)


moco = MoCo()
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, moco.parameters()), 0.06, momentum=0.9)
for epoch in range(3):
    for (a, b), _ in loader:
        output, target = moco(im_q=a, im_k=b)
        loss = nn.CrossEntropyLoss()(output, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"moco {epoch} {loss.item():.3f} ptr {moco.queue_ptr.item()}", moco.queue.norm(dim=0).mean())
print(
    [k for k in moco.state_dict() if "queue" in k], output.shape, output.grad_fn.name(), loss.grad_fn.name()
)

online, predictor = encoder(), fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)))
target_net = copy.deepcopy(online).requires_grad_(False)
tau, opt = 0.99, torch.optim.AdamW([*online.parameters(), *predictor.parameters()], 3e-3)
for step, ((a, b), _) in enumerate(loader):
    p1, p2 = predictor(online(a)), predictor(online(b))
    with torch.no_grad():
        t1, t2 = target_net(a), target_net(b)
    loss = (
        2
        - F.cosine_similarity(p1, t2.detach(), dim=-1).mean()
        - F.cosine_similarity(p2, t1.detach(), dim=-1).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        torch._foreach_mul_(list(target_net.parameters()), tau)
        torch._foreach_add_(list(target_net.parameters()), list(online.parameters()), alpha=1 - tau)
    print(f"byol {step} {loss.item():.4f}", loss)


def off_diagonal(x):
    n, m = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


bn = nn.BatchNorm1d(6, affine=False)
z1, z2 = online(a), online(b)
c = bn(z1).T @ bn(z2) / len(a)
barlow = torch.diagonal(c).add_(-1).pow_(2).sum() + 0.005 * off_diagonal(c).pow_(2).sum()
std = torch.sqrt(z1.var(dim=0) + 1e-4)
vicreg = F.mse_loss(z1, z2) + F.relu(1 - std).mean() + off_diagonal(torch.cov(z1.T)).pow(2).sum() / 6
print(barlow, vicreg)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, adaptive=False, **kwargs):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        norm = torch.norm(
            torch.stack(
                [p.grad.norm(p=2) for g in self.param_groups for p in g["params"] if p.grad is not None]
            ),
            p=2,
        )
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


class Lookahead:
    def __init__(self, optimizer, k=2, alpha=0.5):
        self.optimizer, self.k, self.alpha, self.n = optimizer, k, alpha, 0
        self.state = defaultdict(dict)
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.state[p]["slow"] = p.detach().clone()

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def step(self):
        self.optimizer.step()
        self.n += 1
        if self.n % self.k == 0:
            for p, s in self.state.items():
                s["slow"].lerp_(p.data, self.alpha)
                p.data.copy_(s["slow"])


clf = fill(nn.Linear(8, 4))
sam = SAM(clf.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
x, y = torch.from_numpy(data.data), torch.from_numpy(data.labels)
for step in range(4):
    F.cross_entropy(clf(x), y).backward()
    sam.first_step(zero_grad=True)
    F.cross_entropy(clf(x), y).backward()
    sam.second_step(zero_grad=True)
print(
    F.cross_entropy(clf(x), y),
    type(sam).__mro__[1].__name__,
    sorted(sam.state_dict()),
    sam.param_groups[0]["momentum"],
)
look = Lookahead(torch.optim.RMSprop(clf.parameters(), lr=0.01))
events = []
pre = register_optimizer_step_pre_hook(lambda o, a, k: events.append(type(o).__name__))
post = look.optimizer.register_step_post_hook(lambda o, a, k: events.append("post"))
look.optimizer.register_state_dict_post_hook(lambda o, sd: sd.update(extra=1) or sd)
for _ in range(3):
    look.zero_grad()
    loss = F.cross_entropy(clf(x), y)
    loss.backward()
    look.step()
pre.remove(), post.remove()
print(events, loss, look.state_dict()["extra"], look.param_groups[0]["lr"])
wd = copy.deepcopy(look.optimizer.state_dict())
fresh = torch.optim.RMSprop(clf.parameters(), lr=1.0)
fresh.load_state_dict({k: v for k, v in wd.items() if k != "extra"})
print(
    fresh.param_groups[0]["lr"],
    list(fresh.state[clf.weight]),
    torch.equal(fresh.state[clf.weight]["square_avg"], look.optimizer.state[clf.weight]["square_avg"]),
)
fresh.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "lr": 5.0})
print(len(fresh.param_groups), fresh.param_groups[1]["lr"], fresh.param_groups[1]["alpha"], repr(required))
try:
    LARS(clf.parameters())
except ValueError as error:
    print("refused", str(error)[:60])
try:
    fresh.add_param_group({"params": clf.weight})
except ValueError as error:
    print("refused", error)
try:
    opt.load_state_dict(fresh.state_dict())
except ValueError as error:
    print("refused", str(error)[:58])


def counted(f):
    @wraps(f)
    def wrapper(*a, **k):
        wrapper.calls += 1
        return f(*a, **k)

    wrapper.calls = 0
    return wrapper


@counted
def closure():
    lbfgs.zero_grad()
    loss = F.cross_entropy(clf(x), y) + 1e-2 * clf.weight.square().sum()
    loss.backward()
    return loss


lbfgs = torch.optim.LBFGS(clf.parameters(), lr=1, max_iter=10, history_size=5, line_search_fn="strong_wolfe")
first = lbfgs.step(closure)
last = closure()
print(f"{first.item():.3f}", last.item() < 0.35, closure.calls > 5, math.isfinite(last.item()))
