"""Schedules of every kind, averages of weights, warm restarts, resumption, groups, early stopping, a sweep of learning rates."""

import copy
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim import lr_scheduler as S
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

rng = np.random.RandomState(0)


def net():
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    for p in m.parameters():
        p.data = torch.from_numpy(np.sin(np.arange(p.numel())).reshape(p.shape).astype("f"))
    return m


makers = {
    "step": lambda o: S.StepLR(o, 3, 0.5),
    "multistep": lambda o: S.MultiStepLR(o, [2, 5, 5], 0.1),
    "constant": lambda o: S.ConstantLR(o, 0.5, 4),
    "linear": lambda o: S.LinearLR(o, 0.25, 1.0, 4),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "polynomial": lambda o: S.PolynomialLR(o, 6, 2.0),
    "cosine": lambda o: S.CosineAnnealingLR(o, 4, 0.01),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2, 0.001),
    "cyclic": lambda o: S.CyclicLR(o, 0.01, 0.1, 2, 3, mode="triangular2", cycle_momentum=True),
    "exp_range": lambda o: S.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.9, scale_mode="iterations"),
    "onecycle": lambda o: S.OneCycleLR(
        o, 0.2, total_steps=9, pct_start=0.4, anneal_strategy="linear", three_phase=True
    ),
    "onecycle_cos": lambda o: S.OneCycleLR(o, [0.2, 0.4], epochs=3, steps_per_epoch=3),
    "lambda": lambda o: S.LambdaLR(o, [lambda e: 1 / (e + 1), lambda e: 0.5**e]),
    "multiplicative": lambda o: S.MultiplicativeLR(o, lambda e: 0.95),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)]),
    "sequential": lambda o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, total_iters=3), S.CosineAnnealingLR(o, 5)], [3]
    ),
    "swa": lambda o: SWALR(o, 0.03, anneal_epochs=4, anneal_strategy="cos"),
}
for name, make in makers.items():
    m = net()
    opt = optim.SGD(
        [{"params": m[0].parameters()}, {"params": m[3].parameters(), "lr": 0.2}], lr=0.1, momentum=0.9
    )
    sched = make(opt)
    lrs = [[g["lr"] for g in opt.param_groups]]
    half = None
    for step in range(8):
        opt.step()
        sched.step()
        lrs.append(sched.get_last_lr())
        if step == 3:
            half = copy.deepcopy(sched.state_dict()), copy.deepcopy(opt.state_dict())
    print(
        f"{name:14}",
        " ".join(f"{a:.4g}" for a, _ in lrs),
        "|",
        " ".join(f"{b:.4g}" for _, b in lrs[::3]),
        "|",
        f"{opt.param_groups[0]['momentum']:.3g}",
    )
    if name not in ("chained", "sequential", "lambda"):
        o2 = optim.SGD(
            [{"params": m[0].parameters()}, {"params": m[3].parameters(), "lr": 0.2}], lr=0.1, momentum=0.9
        )
        s2 = make(o2)
        s2.load_state_dict(half[0]), o2.load_state_dict(half[1])
        again = []
        for _ in range(4):
            o2.step()
            s2.step()
            again.append(s2.get_last_lr())
        print(
            "  resumed", np.allclose(again, lrs[5:]), sorted(k for k in half[0] if not k.startswith("_"))[:6]
        )

opt = optim.Adam(net().parameters(), lr=0.1)
plateau = S.ReduceLROnPlateau(
    opt, mode="max", factor=0.5, patience=1, threshold=0.01, threshold_mode="abs", cooldown=1, min_lr=0.01
)
print(
    [
        (plateau.step(v), round(opt.param_groups[0]["lr"], 4), plateau.num_bad_epochs)[1:]
        for v in (0.1, 0.2, 0.2, 0.2, 0.2, 0.205, 0.2, 0.1, 0.1, 0.1, 0.1)
    ],
    plateau.best,
    plateau.get_last_lr(),
)
print(plateau.state_dict())


class WarmupInverseSqrt(S.LRScheduler):
    def __init__(self, optimizer, warmup, last_epoch=-1):
        self.warmup = warmup
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        step = max(self.last_epoch, 1)
        return [base * min(step**-0.5, step * self.warmup**-1.5) for base in self.base_lrs]


class Cosine(S._LRScheduler):
    def get_lr(self):
        return [g["lr"] * math.cos(self.last_epoch / 10) for g in self.optimizer.param_groups]


for kind in (lambda o: WarmupInverseSqrt(o, 3), Cosine):
    opt = optim.AdamW(net().parameters(), lr=0.1)
    s = kind(opt)
    out = []
    for _ in range(5):
        opt.step()
        s.step()
        out.append(round(s.get_last_lr()[0], 5))
    print(type(s).__name__, out, s._step_count, s.last_epoch, s.base_lrs, opt.param_groups[0]["initial_lr"])

x = torch.from_numpy(rng.randn(64, 3).astype("f"))
y = (x.sum(1, keepdim=True)).tanh()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16)
model = net()
swa, ema = (
    AveragedModel(model),
    AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
)
custom = AveragedModel(model, avg_fn=lambda avg, p, n: 0.5 * avg + 0.5 * p)
opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
cosine, swa_sched = S.CosineAnnealingLR(opt, T_max=4), SWALR(opt, swa_lr=0.02)
best, patience = math.inf, 0
for epoch in range(8):
    total = 0.0
    for a, b in loader:
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(a), b)
        loss.backward()
        opt.step()
        ema.update_parameters(model)
        total += loss.item() * len(a)
    if epoch >= 4:
        swa.update_parameters(model)
        custom.update_parameters(model)
        swa_sched.step()
    else:
        cosine.step()
    print(
        f"epoch {epoch} loss {total / 64:.4f} lr {opt.param_groups[0]['lr']:.4f} averaged {swa.n_averaged.item()} {ema.n_averaged}"
    )
    if total < best:
        best, patience = total, 0
    else:
        patience += 1
update_bn(loader, swa)
swa.eval(), ema.eval(), custom.eval()
with torch.no_grad():
    for name, m in (("swa", swa), ("ema", ema), ("custom", custom)):
        print(
            name,
            f"{nn.functional.mse_loss(m(x), y).item():.4f}",
            [k for k in m.state_dict()][:2],
            type(m.module).__name__,
        )
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    torch.save(
        {
            "model": model.state_dict(),
            "opt": opt.state_dict(),
            "sched": swa_sched.state_dict(),
            "epoch": 8,
            "rng": torch.get_rng_state(),
            "swa": swa.state_dict(),
        },
        path,
    )
    ckpt = torch.load(path, weights_only=True)
fresh, fopt = net(), None
fresh.load_state_dict(ckpt["model"])
fopt = optim.SGD(fresh.parameters(), lr=1.0)
fopt.load_state_dict(ckpt["opt"])
print(sorted(ckpt), fopt.param_groups[0]["lr"], fopt.param_groups[0]["momentum"], len(fopt.state))
a, b = next(iter(loader))
for m, o in ((model, opt), (fresh, fopt)):
    m.train()
    o.zero_grad()
    nn.functional.mse_loss(m(a), b).backward()
    o.step()
print("same", all(torch.equal(p, q) for p, q in zip(model.parameters(), fresh.parameters())))
found = []
for kind, options in (
    (optim.SGD, dict(nesterov=True, momentum=0.9)),
    (optim.Adagrad, {}),
    (optim.Adadelta, {}),
    (optim.Adam, dict(amsgrad=True)),
    (optim.Adamax, {}),
    (optim.NAdam, {}),
    (optim.RAdam, dict(decoupled_weight_decay=True, weight_decay=0.01)),
    (optim.RMSprop, dict(centered=True, momentum=0.5)),
    (optim.Rprop, {}),
    (optim.ASGD, {}),
    (optim.Adafactor, {}),
):
    m = net().double()
    o = kind(m.parameters(), lr=0.01, **options)
    for _ in range(5):
        o.zero_grad()
        loss = nn.functional.mse_loss(m(x.double()), y.double())
        loss.backward()
        o.step()
    print(f"{kind.__name__:10} {loss.item():.6f}", sorted(o.state[m[0].weight]))
print(o)
lr, sweep = 1e-4, []
m = net()
o = optim.SGD(m.parameters(), lr=lr)
mult = S.LambdaLR(o, lambda i: 10 ** (i / 3))
while o.param_groups[0]["lr"] < 1:
    o.zero_grad()
    loss = nn.functional.mse_loss(m(x), y)
    loss.backward()
    o.step()
    mult.step()
    sweep.append((o.param_groups[0]["lr"], loss.item()))
print(len(sweep), f"{min(sweep, key=lambda p: p[1])[0]:.4f}", mult.state_dict()["lr_lambdas"])
