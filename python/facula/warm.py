"""Runs common programs so that their kernels are compiled: `python -m facula.warm --out DIR` fills the
cache that is shipped with the library.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import facula as torch
from facula._common_models import KINDS

nn, F = torch.nn, torch.nn.functional


def cnn() -> None:
    """The training step of examples/fashion_mnist, with its batch size and the smaller last one."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    images = (
        torch.randint(0, 256, [192, 28, 28], dtype=torch.uint8)
        .float()
        .div_(255)
        .sub_(0.286)
        .div_(0.353)
        .unsqueeze(1)
    )
    data = torch.utils.data.TensorDataset(images, torch.arange(192) % 10)
    for x, y in torch.utils.data.DataLoader(data, batch_size=64, shuffle=True):
        train(model, optimizer, x, y)
    train(model, optimizer, images[:32], torch.arange(32) % 10)
    model.eval()
    with torch.no_grad():
        logits = model(images)
        F.cross_entropy(logits, torch.arange(192) % 10, reduction="sum").item()
        (torch.cat([logits.argmax(1)]) == torch.arange(192) % 10).float().mean().item()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    for _ in range(2):  # the second step uses existing states and gradients
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        loss.item()
        (logits.detach().argmax(1) == y).sum().item()


def mlp() -> None:
    x, y = torch.randn(64, 784), torch.arange(64) % 10
    for activation in (nn.ReLU(), nn.GELU(), nn.Tanh(), nn.Sigmoid(), nn.SiLU()):
        model = nn.Sequential(nn.Linear(784, 128), activation, nn.Dropout(0.1), nn.Linear(128, 10))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), x, y)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y)
    train(model, torch.optim.Adam(model.parameters()), x, y)
    F.mse_loss(model(x), torch.randn(64, 10)).backward()


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = (
            t.view(n, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer() -> None:
    embedding, block, head = nn.Embedding(65, 128), Block(128, 4), nn.Linear(128, 65)
    parameters = [p for m in (embedding, block, head) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    tokens = torch.randint(0, 65, [8, 129])
    for _ in range(2):
        optimizer.zero_grad()
        logits = head(block(embedding(tokens[:, :-1])))
        F.cross_entropy(logits.reshape(-1, 65), tokens[:, 1:].reshape(-1)).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def operators() -> None:
    """Arithmetic, functions and reductions by dtype, and with gradients, for small and large contiguous
    tensors.
    """
    binary: list[Callable] = [
        torch.add,
        torch.sub,
        torch.mul,
        torch.div,
        torch.maximum,
        torch.minimum,
        torch.eq,
        torch.lt,
        torch.gt,
    ]
    unary: list[Callable] = [
        torch.neg,
        torch.abs,
        torch.exp,
        torch.log,
        torch.sqrt,
        torch.rsqrt,
        torch.tanh,
        torch.sigmoid,
        torch.erf,
        torch.relu,
        F.gelu,
        F.silu,
        torch.sin,
        torch.cos,
        torch.square,
        torch.reciprocal,
    ]
    reductions: list[Callable] = [
        torch.sum,
        torch.mean,
        torch.amax,
        torch.amin,
        torch.argmax,
        torch.var,
        torch.all,
        torch.any,
    ]
    for dtype in (torch.float32, torch.float64, torch.int64):
        for shape in ([8, 8], [512, 1024]):
            a, b = (torch.ones(shape, dtype=dtype) for _ in range(2))
            for f in binary:
                f(a, b)
                if f not in (torch.maximum, torch.minimum):
                    f(a, 2)
            a += b
            a *= 2
            for result in (
                a.clone(),
                a[1:3].clone(),
                a.t().contiguous(),
                a > 0,
                torch.where(a > 0, a, b),
                a.cumsum(0),
            ):
                result.fill_(1).zero_()
            for f in [torch.sum, torch.amax, torch.argmax, torch.any] if dtype == torch.int64 else reductions:
                f(a)
                f(a, dim=-1)
                f(a, dim=0)
            for to in (torch.float32, torch.float64, torch.int64, torch.bool):
                a.to(to)
    for shape in ([8, 8], [512, 1024]):
        gradients(unary, torch.ones(shape, requires_grad=True), torch.ones(shape, requires_grad=True))
    torch.sort(torch.randn(8, 8))
    torch.stack([torch.ones(8), torch.ones(8)])


def gradients(unary: list[Callable], a: torch.Tensor, b: torch.Tensor) -> None:
    mixed: list[Callable] = [
        lambda x: x + b,
        lambda x: x * b,
        lambda x: x / b,
        lambda x: x - b,
        lambda x: x * 2,
    ]
    rows: list[Callable] = [lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.mean(-1)]
    rows += [lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x @ b.t()]
    for f in unary + mixed + rows:
        f(a).sum().backward()


def step(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, times: int = 2) -> None:
    for _ in range(times):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def layers() -> None:
    """Every layer without required arguments, on tensors of two to four dimensions, as previous layers
    produce them.
    """
    plain = [c for c in vars(nn).values() if isinstance(c, type) and issubclass(c, nn.Module)]
    inputs = [torch.randn(8, 16), torch.randn(4, 8, 16), torch.randn(4, 8, 6, 6)]
    convolved = nn.Conv2d(3, 8, 3)(torch.randn(4, 3, 8, 8)).detach()
    for layer in plain:
        for x in [*inputs, convolved]:
            for training in (True, False):
                try:
                    run = layer().train(training)
                    leaf = x.detach().requires_grad_()
                    y = run(leaf)
                    y.backward(torch.ones_like(y))
                except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, NotImplementedError):
                    break  # requires arguments, or other inputs


def losses() -> None:
    """Every loss that takes a prediction and one of the usual targets, with each reduction."""
    logits, target = torch.randn(16, 8), torch.rand(16, 8)
    classes, signs = torch.arange(16) % 8, (torch.randn(16) > 0).float() * 2 - 1
    usual: list[tuple] = [
        (target,), (classes,), ((target > 0.5).float() * 2 - 1,), (torch.randn(16, 8), signs),
        (target, target + 0.1), (torch.randn(16, 8), torch.randn(16, 8))]  # fmt: skip
    for loss in [c for name, c in vars(nn).items() if name.endswith("Loss")]:
        for rest in usual:
            for reduction in ("mean", "sum", "none"):
                for through in (lambda x: x, torch.sigmoid, lambda x: x.log_softmax(-1), lambda x: x[:, 0]):
                    try:
                        x = logits.clone().requires_grad_()
                        features = through(x)
                        if features.dim() == 1 and not rest[0].is_floating_point():
                            continue
                        y = loss(reduction=reduction)(
                            features, *(r[:, 0] if features.dim() < r.dim() else r for r in rest)
                        )
                        y.backward(torch.ones_like(y))
                    except (TypeError, ValueError, RuntimeError, IndexError):
                        continue
    for options in ({"label_smoothing": 0.1}, {"weight": torch.rand(8)}, {"ignore_index": 2}):
        x = logits.clone().requires_grad_()
        F.cross_entropy(x, classes, **options).backward()


def optimizers() -> None:
    """Steps with each combination of the usual options, for parameters of every layout."""
    decayed = {"momentum": 0.9, "weight_decay": 0.1}
    sgd = [{}, {"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, decayed,
           {**decayed, "nesterov": True}]  # fmt: skip
    adam = [{}, {"weight_decay": 0.1}, {"amsgrad": True}]
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for kind, settings in ((torch.optim.SGD, sgd), (torch.optim.Adam, adam), (torch.optim.AdamW, adam)):
            for options in settings:
                values = [
                    torch.randn(40, 30),
                    torch.randn(30, 40).t(),
                    torch.randn(1),
                    torch.tensor(2.0),
                    torch.randn(4, 3, 2, 5).permute(0, 2, 3, 1),
                    torch.randn(6, 8)[:, 1:5],
                ]
                parameters = [nn.Parameter(v.to(dtype)) for v in values]
                for p in parameters:
                    p.grad = torch.randn_like(p)
                optimizer = kind(parameters, lr=0.1, **options)
                for at in range(3):
                    if at:  # gradients are row-major, or transposed, while parameters and states are not
                        for p in parameters:
                            p.grad = (
                                torch.randn(p.shape[::-1]).permute(tuple(reversed(range(p.dim())))).to(dtype)
                            )
                    optimizer.step()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                nn.utils.clip_grad_value_(parameters, 0.5)
                optimizer.zero_grad(set_to_none=False)


def convolutions() -> None:
    """Networks of every convolution with norm, activation and pooling, with tensors in the layouts that
    libraries prefer.
    """

    def train(model: nn.Module, x: torch.Tensor) -> None:
        parameters = list(model.parameters())
        for optimizer in (
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1),
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
            torch.optim.Adam(parameters),
            torch.optim.Adam(parameters, weight_decay=0.1),
            torch.optim.AdamW(parameters),
        ):
            step(lambda: F.cross_entropy(model(x).flatten(1), torch.arange(x.shape[0])), optimizer)
        with torch.no_grad():
            model.eval()(x)

    norms = (nn.BatchNorm2d, lambda c: nn.GroupNorm(4, c), lambda c: nn.InstanceNorm2d(c, affine=True))
    pools = (lambda: nn.MaxPool2d(2), lambda: nn.MaxPool2d(3, 2, 1), lambda: nn.AvgPool2d(2),
             lambda: nn.AvgPool2d(3, 2, 1), lambda: nn.MaxPool2d(2, 2, 1), lambda: nn.MaxPool2d(3, 1, 1),
             lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), lambda: nn.AdaptiveMaxPool2d(1),
             lambda: nn.AdaptiveAvgPool2d(2), lambda: nn.AdaptiveAvgPool2d(1), nn.Identity)  # fmt: skip
    activations = (nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.SiLU(), nn.GELU(), nn.Hardswish(),
                   nn.ELU(), nn.LeakyReLU(0.1), nn.Sigmoid(), nn.Tanh(), nn.Hardsigmoid(), nn.Softplus(),
                   nn.Mish(), nn.Hardtanh(), nn.Dropout(0.1))  # fmt: skip
    image, larger = torch.randn(4, 3, 16, 16), torch.randn(8, 3, 40, 40)
    for norm in norms:
        for activation in activations:
            before = nn.Conv2d(3, 16, 3, padding=1, bias=False)
            train(nn.Sequential(before, norm(16), activation, nn.Conv2d(16, 16, 3)), image)
        for pool in pools:
            train(
                nn.Sequential(nn.Conv2d(3, 16, 3), norm(16), nn.ReLU(), pool(), nn.Conv2d(16, 16, 1)), image
            )
        train(nn.Sequential(nn.Conv2d(3, 8, 3), norm(8), nn.ReLU(), nn.Conv2d(8, 4, 1)), larger)
    for options in (
        {"groups": 16},
        {"groups": 4},
        {"stride": 2},
        {"dilation": 2},
        {"padding_mode": "reflect"},
    ):
        train(
            nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, padding=1, **options), nn.Flatten()),
            image,
        )
    for channels in (16, 24):
        for side in (5, 7, 9):
            depthwise = nn.Conv2d(channels, channels, side, padding=side // 2, groups=channels)
            train(nn.Sequential(nn.Conv2d(3, channels, 1), depthwise, nn.Flatten()), image)
    for activation in activations:  # activations of images, after tensors in a library's layout
        train(
            nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), activation, nn.Conv2d(8, 8, 3, 1, 1), activation), image
        )
    for channels in (8, 16, 32, 64):
        for side in (8, 16, 32):
            block = nn.Sequential(
                nn.Conv2d(3, channels, 3, 1, 1), nn.ReLU(),
                nn.Conv2d(channels, 2 * channels, 3, 1, 1, bias=False), nn.ReLU(),
                nn.Conv2d(2 * channels, channels, 3, 1, 1), nn.Flatten())  # fmt: skip
            train(block, torch.randn(8, 3, side, side))
    for channels in (16, 32, 64):  # of every width for which images are transformed by Winograd's algorithm
        for side in (8, 16):
            inner = [
                [nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
                for _ in range(2)
            ]
            block = nn.Sequential(*sum(inner, []), nn.AdaptiveAvgPool2d(1))
            train(block, torch.randn(8, channels, side, side))
    for upward in (nn.ConvTranspose2d(16, 8, 2, 2), nn.ConvTranspose2d(16, 8, 4, 2, 1)):
        train(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), upward, nn.ReLU(), nn.Conv2d(8, 1, 1)), image)
    for norm in (nn.BatchNorm1d, lambda c: nn.GroupNorm(4, c)):
        for pool in (nn.MaxPool1d(2), nn.MaxPool1d(4), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1)):
            for activation in (nn.ReLU(), nn.LeakyReLU(0.1), nn.GELU()):
                train(
                    nn.Sequential(nn.Conv1d(2, 16, 9, 4, 4), norm(16), activation, pool),
                    torch.randn(4, 2, 128),
                )

    class Branches(nn.Module):
        """Sums, concatenations, gates and means of results of convolutions."""

        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(n, 8, 1) for n in (3, 8, 16))
            self.norm, self.down, self.up = nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
            self.more = nn.BatchNorm2d(16)
            self.time = nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = self.a(x)
            b = F.relu(self.norm(self.b(a)) + a)
            gate = torch.sigmoid(self.up(F.silu(self.down(b.mean((2, 3), keepdim=True)))))
            gate = gate * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(b, 1)))))
            b = b * gate + self.time(torch.ones(4, 4))[:, :, None, None]
            c = self.c(F.relu(self.more(torch.cat([a, b], 1))))
            both = torch.cat([b, F.relu(c)], dim=1)
            return torch.cat([both, F.max_pool2d(both, 3, 1, 1)], 1).mean((2, 3))

    train(Branches(), image)


def shapes() -> None:
    """Arithmetic of tensors that broadcast, copies of tensors in other layouts, reductions along each
    dimension, and their gradients, for two to four dimensions.
    """
    for sizes in ([6, 8], [4, 6, 8], [3, 4, 6, 8]):
        rank = len(sizes)
        x = torch.rand(sizes) + 0.5
        others = [torch.rand(sizes) + 0.5, torch.rand(()) + 0.5, torch.rand(sizes[-1:]) + 0.5]
        for d in range(rank):
            others.append(torch.rand([1 if k == d else n for k, n in enumerate(sizes)]) + 0.5)
            others.append(torch.rand([n if k == d else 1 for k, n in enumerate(sizes)]) + 0.5)
        for other in others:
            for f in (torch.add, torch.sub, torch.mul, torch.div):
                a, b = x.clone().requires_grad_(), other.clone().requires_grad_()
                y = f(a, b)
                y.backward(torch.ones_like(y))
        dims = [*range(rank), *((rank - 2, rank - 1) if rank > 2 else ())]
        for d in dims:
            for keep in (False, True):
                reductions: list[Callable] = [torch.sum, torch.mean, torch.amax, torch.var, torch.logsumexp]
                for f in reductions:
                    a = x.clone().requires_grad_()
                    y = f(a, d, keepdim=keep)
                    y.backward(torch.ones_like(y))
            for g in (torch.softmax, torch.log_softmax, torch.cumsum):
                a = x.clone().requires_grad_()
                y = g(a, d)
                y.backward(torch.ones_like(y))
            moved: list[Callable] = [
                lambda t, d=d: torch.cat([t, t.narrow(d, 0, 1)], d),
                lambda t, d=d: torch.stack([t, t], d),
                lambda t, d=d: t.narrow(d, 1, 2).clone(),
                lambda t, d=d: t.select(d, 0).clone(),
                lambda t, d=d: t.index_select(d, torch.tensor([1, 0, 1])),
                lambda t, d=d: t.flip(d),
                lambda t, d=d: torch.cat(t.chunk(2, d)[::-1], d),
                lambda t, d=d: t.roll(1, d),
                lambda t, d=d: t.gather(d, torch.zeros(t.shape, dtype=torch.int64)),
                lambda t, d=d: torch.zeros(t.shape).index_add(d, torch.arange(t.shape[d]).flip(0), t),
                lambda t, d=d: torch.zeros(t.shape).scatter_add(
                    d, torch.zeros(t.shape, dtype=torch.int64), t
                ),
            ]
            for e in range(d):
                moved.append(lambda t, d=d, e=e: t.transpose(d, e).contiguous())
                moved.append(lambda t, d=d, e=e: t.transpose(d, e) + 1)
            if rank == 4:
                moved += [lambda t, d=d: t.permute(d, *(k for k in (2, 0, 3, 1) if k != d)).contiguous()]
            for f in moved:
                a = x.clone().requires_grad_()
                y = f(a)
                y.backward(torch.ones_like(y))
        functions: list[Callable] = [
            torch.exp, torch.sqrt, torch.log, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.abs,
            torch.neg, torch.reciprocal, torch.rsqrt, torch.square, lambda t: t**2, lambda t: t**3,
            lambda t: t.pow(0.5), lambda t: t.clamp(0.6, 0.9), lambda t: t.clamp(min=0.7), lambda t: 1 - t,
            lambda t: 2 / t, lambda t: t / 3, lambda t: t.norm(), lambda t: t.var(), lambda t: t.std(),
            lambda t: t.max(), lambda t: t.mean(), lambda t: F.normalize(t, dim=-1),
            lambda t: F.dropout(t, 0.1), lambda t: t.masked_fill(t > 1, 0.0),
            lambda t: torch.where(t > 1, t, 0 * t),
            lambda t: t.to(torch.float64), lambda t: t.detach() * t, lambda t: (t > 1).to(t.dtype) * t,
            lambda t: t.repeat_interleave(2, 0), lambda t: t.tril() * 1]  # fmt: skip
        for f in functions:
            a = x.clone().requires_grad_()
            y = f(a)
            y.backward(torch.ones_like(y))
        for f in (torch.randn_like, torch.rand_like, torch.zeros_like, torch.ones_like):
            f(x)
    indices()


def indices() -> None:
    """Rows that are selected by number and added back, masks, and comparisons, as graphs and samplers use
    them.
    """
    rows, at, numbers = torch.randn(12, 6), torch.arange(24) % 12, torch.arange(12)
    picks: list[Callable] = [
        lambda t: t[at], lambda t: t[at] * t[at.flip(0)], lambda t: t[:, 0][at],
        lambda t: t[numbers, numbers % 6], lambda t: torch.zeros(12, 6).index_add(0, at, t[at]),
        lambda t: torch.zeros(12).index_add(0, at, t[at, 0]), lambda t: torch.cat([t[at], t[at]], -1),
        lambda t: torch.zeros(4, 6).scatter_add(0, (numbers // 3)[:, None].expand(-1, 6), t),
        lambda t: t[at].unsqueeze(-1) * t[at, :1].unsqueeze(-1), lambda t: F.embedding(at.view(4, 6), t),
        lambda t: F.embedding(at.view(4, 6), t, padding_idx=0),
        lambda t: t / (t.sum(-1, keepdim=True) + 1e-9),
        lambda t: (t * (t > 0)).sum(1) / (t > 0).sum(1).clamp(min=1),
        lambda t: torch.exp(t - t.max().detach()),
        lambda t: F.leaky_relu(t @ t[:6, :1], 0.2).squeeze(-1), lambda t: t * torch.exp(t[0, 0]),
        lambda t: F.cosine_similarity(t, t.roll(1, 0)), lambda t: F.pairwise_distance(t, t.roll(1, 0)),
        lambda t: t + torch.randn_like(t) * torch.exp(0.5 * t),
        lambda t: torch.stack([t[0].sum(), t[1].mean()]), lambda t: t.index_fill(0, numbers[:2], 0.0),
        lambda t: t[t > 0], lambda t: t.topk(2, -1)[0], lambda t: t.sort(-1)[0],
        lambda t: (t[:, None] - t[None]).square().sum(-1), lambda t: torch.linspace(0, 1, 6) * t]  # fmt: skip
    for f in picks:
        leaf = rows.clone().requires_grad_()
        y = f(leaf)
        y.backward(torch.ones_like(y))
    for a, b in ((numbers, numbers % 3 + 1), (numbers, 2), (numbers[:, None], numbers[1:5])):
        for g in (torch.eq, torch.ne, torch.lt, torch.add, torch.mul, torch.floor_divide, torch.remainder):
            g(a, b)
        (a == b).sum(0)
        (a == b).float().mean()


def attention() -> None:
    """Transformers by hand, narrow and wide, and recurrent cells."""
    for width, side in ((32, 32), (64, 32), (64, 64)):
        heads_by_hand(width, side)
    recurrence()
    library_attention()


def library_attention() -> None:
    """Attention for short and long sequences, narrow and wide heads, with each kind of mask."""
    for length in (12, 24, 40):
        for width in (16, 32, 64):
            hidden = torch.ones(length, length).tril() > 0
            for options in (
                {},
                {"is_causal": True, "dropout_p": 0.1},
                {"attn_mask": hidden},
                {"attn_mask": torch.zeros(length, length)},
            ):
                if "attn_mask" in options and width == 64:
                    continue
                q, k, v = (torch.randn(2, 2, length, width, requires_grad=True) for _ in range(3))
                F.scaled_dot_product_attention(q, k, v, **options).sum().backward()


def numbers() -> None:
    """Weighted sums of losses, and Python's numbers on either side of tensors of zero to three
    dimensions.
    """
    for sizes in ([], [6], [4, 6], [3, 4, 6]):
        for number in (2, 0.5):
            forms: list[Callable] = [
                lambda x, y, n=number: x + n * y, lambda x, y, n=number: x * n + y * n,
                lambda x, y, n=number: n - x * y, lambda x, y, n=number: (n * x + n) / (x + y + n),
                lambda x, y, n=number: x / n - y / n, lambda x, y, n=number: n / (x + n),
                lambda x, y, n=number: torch.add(x, y, alpha=n),
                lambda x, y, n=number: torch.sub(x, y, alpha=n),
                lambda x, y, n=number: torch.sub(n, x, alpha=n), lambda x, y, n=number: (x - y) ** n,
                lambda x, y, n=number: (x * y).exp() / n, lambda x, y, n=number: (1 - x) * n]  # fmt: skip
            for f in forms:
                x, y = (torch.rand(sizes, requires_grad=True) for _ in range(2))
                z = f(x, y)
                z.backward(torch.ones_like(z))
                if isinstance(number, int):
                    f(torch.arange(1, 7).expand(*sizes, 6), torch.arange(1, 7))
    x, y = (torch.rand(4, 6, requires_grad=True) for _ in range(2))
    parts = [
        x.mean(),
        y.square().mean(),
        x.abs().sum(),
        (x * y).sum(1).mean(),
        x.logsumexp(-1).mean(),
        x.norm(),
    ]
    (sum(parts) + 0.1 * parts[0] - 2 * parts[1] + torch.stack(parts).sum() / 3).backward()
    for steps in (5, 10, 50):
        torch.linspace(1e-4, 0.02, steps)
        (1 - torch.linspace(1e-4, 0.02, steps)).cumprod(0)[torch.arange(4)].sqrt()


def contrast() -> None:
    """Contrastive pairs, images with their masks, latent variables, nodes with their neighbours."""
    net = nn.Linear(16, 16)
    scale = nn.Parameter(torch.tensor(2.0))

    def pairs() -> torch.Tensor:
        a, b = (F.normalize(net(torch.randn(8, 16)), dim=-1) for _ in range(2))
        scores = scale.exp() * a @ b.t()
        every = torch.cat([a, b]) @ torch.cat([a, b]).t() / 0.1
        every = every.masked_fill(torch.eye(16, dtype=torch.bool), float("-inf"))
        at = torch.arange(8)
        same = F.cross_entropy(every, torch.cat([at + 8, at]))
        triple = F.triplet_margin_loss(a, b, b.roll(1, 0)) + F.relu(a - b + 0.2).mean()
        both = (F.cross_entropy(scores, at) + F.cross_entropy(scores.t(), at)) / 2
        return (
            both
            + same
            + triple
            + (1 - F.cosine_similarity(a, b)).mean()
            + 2 * (a[1:] - b[:-1]).square().mean()
        )

    step(pairs, torch.optim.Adam([*net.parameters(), scale]))
    encode, mean, spread = nn.Linear(16, 8), nn.Linear(8, 4), nn.Linear(8, 4)
    decode = nn.Linear(4, 16)
    optimizer = torch.optim.Adam([p for m in (encode, mean, spread, decode) for p in m.parameters()])

    def latent() -> torch.Tensor:
        x = torch.rand(8, 16)
        h = F.relu(encode(x))
        m, v = mean(h), spread(h)
        z = m + torch.exp(0.5 * v) * torch.randn_like(v)
        again = torch.sigmoid(decode(z))
        fit = F.binary_cross_entropy(again, x, reduction="sum")
        return fit - 0.5 * torch.sum(1 + v - m.pow(2) - v.exp())

    step(latent, optimizer)
    paint = nn.Conv2d(3, 1, 3, 1, 1)

    def masks() -> torch.Tensor:
        y, t = paint(torch.randn(2, 3, 8, 8)), (torch.rand(2, 1, 8, 8) > 0.5).float()
        p = y.sigmoid()
        dice = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
        each = 1 - (2 * (p * t).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1)
        return (
            F.binary_cross_entropy_with_logits(y, t) + dice + each.mean() + F.mse_loss(p, t) + F.l1_loss(p, t)
        )

    step(masks, torch.optim.SGD(paint.parameters(), lr=0.1))
    node = nn.Linear(6, 6)
    graph = torch.arange(12), torch.arange(12).flip(0)

    def nodes() -> torch.Tensor:
        h = node(torch.randn(12, 6))
        message = h[graph[0]]
        total = torch.zeros(12, 6).index_add(0, graph[1], message)
        degree = torch.zeros(12).index_add(0, graph[1], torch.ones(12)).clamp(min=1)
        h = F.elu(total / degree.unsqueeze(-1)) + h
        edge = F.leaky_relu((h[graph[0]] * h[graph[1]]).sum(-1), 0.2)
        share = torch.exp(edge - edge.max())
        share = share / (torch.zeros(12).index_add(0, graph[1], share)[graph[1]] + 1e-9)
        h = torch.zeros(12, 6).index_add(0, graph[1], share.unsqueeze(-1) * h[graph[0]])
        picked = torch.arange(12) % 3 == 0
        return F.cross_entropy(h[picked], torch.arange(12)[picked] % 6) + h.relu().max(0)[0].sum()

    step(nodes, torch.optim.Adam(node.parameters()))


def text() -> None:
    """Embedded words with positions and masks, averaged and classified."""
    for width in (16, 64):
        words, places = nn.Embedding(40, width, padding_idx=0), nn.Embedding(12, width)
        norm, head, out = nn.LayerNorm(width), nn.Linear(width, 40), nn.Linear(width, 4)
        at = torch.randint(0, 40, [4, 12])
        table = nn.Parameter(torch.randn(1, 12, width))
        parameters = [p for m in (words, places, norm, head, out) for p in m.parameters()] + [table]

        def loss(at=at, words=words, places=places, norm=norm, head=head, out=out, table=table):
            there = (at != 0).unsqueeze(-1).float()
            x = norm(words(at) * 2 + places(torch.arange(12)) + table[:, : at.shape[1]])
            pooled = (x * there).sum(1) / there.sum(1).clamp(min=1)
            largest = x.masked_fill(there == 0, float("-inf")).max(1)[0]
            logits = head(x)
            shifted = F.cross_entropy(logits[:, :-1].reshape(-1, 40), at[:, 1:].reshape(-1), ignore_index=0)
            loss_of_words = F.cross_entropy(logits.transpose(1, 2), at, label_smoothing=0.1)
            classes = F.cross_entropy(out(pooled + largest), torch.arange(4)) + F.nll_loss(
                F.log_softmax(out(x[:, -1]), -1), torch.arange(4), weight=torch.ones(4)
            )
            return (
                shifted
                + loss_of_words
                + classes
                + F.cross_entropy(out(x.mean(1)), torch.arange(4), weight=torch.ones(4), label_smoothing=0.1)
            )

        for optimizer in (torch.optim.Adam(parameters), torch.optim.SGD(parameters, lr=0.1, momentum=0.9)):
            step(loss, optimizer)
        mix = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12), nn.Dropout(0.1))

        def mixer(at=at, words=words, norm=norm, mix=mix):
            x = words(at)
            x = x + mix(norm(x).transpose(1, 2)).transpose(1, 2)
            return x.mean(1).square().mean() + x.sum(2).mean()

        step(mixer, torch.optim.AdamW([*mix.parameters(), *norm.parameters(), *words.parameters()]))


def diffusion() -> None:
    """Diffusion: images with times, group norms, additive terms for every pixel, losses between images."""
    denoise(16, 4)
    denoise(32, 8)


def denoise(width: int, groups: int) -> None:
    """One of the networks of `diffusion`."""
    before, after = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
    norm, time, narrow = nn.GroupNorm(groups, width), nn.Linear(8, width), nn.Conv2d(width, width, 1)
    parameters = [p for m in (before, after, norm, time, narrow) for p in m.parameters()]
    spread = torch.linspace(1e-4, 0.02, 20)
    signal = (1 - spread).cumprod(0)

    def loss(side: int, of: Callable) -> torch.Tensor:
        x, noise, t = torch.randn(4, 3, side, side), torch.randn(4, 3, side, side), torch.arange(4)
        a = signal[t].view(-1, 1, 1, 1)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        rates = torch.exp(-torch.arange(4) * 0.5)
        angles = t.float()[:, None] * rates[None]
        h = before(noisy)
        h = h + time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        h = h + F.silu(norm(h))
        small = narrow(F.avg_pool2d(F.silu(norm(h)), 2))
        h = h + small.repeat_interleave(2, -1).repeat_interleave(2, -2)
        return of(after(F.silu(norm(h))), noise)

    for side in (8, 16):
        for of in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
            step(lambda side=side, of=of: loss(side, of), torch.optim.AdamW(parameters))


def heads_by_hand(width: int, side: int) -> None:
    """Attention by hand: heads are split, multiplied and merged, with the steps that variants put in
    between.
    """
    n, length, heads = 4, (side // 8) ** 2, 4
    projections = nn.Linear(width, 3 * width)
    norm, out, mix = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(heads, heads)
    gamma, token = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(1, 1, width))
    positions = nn.Parameter(torch.zeros(1, length + 1, width))
    gate = nn.Parameter(torch.ones(heads))
    patches = nn.Conv2d(3, width, 8, 8)
    parts = nn.ModuleList([projections, norm, out, mix, patches])
    optimizer = torch.optim.AdamW([*parts.parameters(), gamma, token, positions, gate])

    def of_heads(x: torch.Tensor, way: int) -> tuple[torch.Tensor, ...]:
        m, count, _ = x.shape
        qkv = projections(x)
        if way == 0:
            return qkv.reshape(m, count, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if way == 3:
            qkv = qkv.reshape(m, count, 3, heads, -1).permute(2, 0, 3, 1, 4)
            return qkv[0], qkv[1], qkv[2]
        if way == 1:
            return tuple(t.reshape(m, count, heads, -1).permute(0, 2, 1, 3) for t in qkv.chunk(3, -1))
        return tuple(t.view(m, count, heads, -1).transpose(1, 2) for t in qkv.split(width, -1))

    def loss(way: int, between: int) -> torch.Tensor:
        x = patches(torch.randn(n, 3, side, side)).flatten(2).transpose(1, 2)
        x = torch.cat([token.expand(n, -1, -1), x], 1) + positions if between % 2 else x + positions[:, 1:]
        h = norm(x)
        q, k, v = of_heads(h, way)
        q = q * width**-0.5 if between < 2 else q
        scores = q @ k.transpose(-2, -1)
        if between >= 2:
            scores = scores * width**-0.5
        if between == 1:
            scores = mix(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if between == 2:
            hidden = torch.ones(x.shape[1], x.shape[1]).tril() == 0
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = scores.softmax(dim=-1)
        if between == 3:
            share = torch.sigmoid(gate.view(1, -1, 1, 1))
            weights = (1.0 - share) * weights + share * weights.flip(-1)
            weights = weights / weights.sum(dim=-1).unsqueeze(-1)
        if between == 1:
            weights = mix(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = F.dropout(weights, 0.1) @ v
        if between == 0:
            y = F.scaled_dot_product_attention(q, k, v)
        y = out(y.transpose(1, 2).reshape(n, -1, width))
        x = x + (gamma * y if between else F.dropout(y, 0.1))
        x = x + F.gelu(out(norm(x)), approximate="tanh" if between else "none")
        x = x + out(x.transpose(1, 2).contiguous().transpose(1, 2))
        pooled = norm(x)[:, 0] if between % 2 else norm(x).mean(1)
        return F.cross_entropy(pooled, torch.arange(n))

    for way in range(4):
        for between in range(4):
            step(lambda way=way, between=between: loss(way, between), optimizer)


def recurrence() -> None:
    cell, state, embedding = nn.Linear(8, 64), nn.Linear(16, 64, bias=False), nn.Embedding(50, 8)

    def recurrent() -> torch.Tensor:
        x = embedding(torch.arange(24).view(4, 6))
        h = c = torch.zeros(4, 16)
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (cell(x[:, t]) + state(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1).square().mean() + torch.cat(outputs, 1).sum()

    step(
        recurrent, torch.optim.SGD([*cell.parameters(), *state.parameters(), *embedding.parameters()], lr=0.1)
    )


def recurrent_layers() -> None:
    """Recurrent layers of each kind, over four, two and one sequences at a time in registers, with
    numbers of units that fill four vectors, pairs of vectors, vectors, and none of these.
    """
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for units in (64, 32, 48, 20):
            layer, x = kind(8, units), torch.randn(3, 7, 8)
            layer(x)[0].sum().backward()
            with torch.no_grad():
                layer(x)


def complete_models() -> None:
    """Two training steps of each common kind of model: the second uses existing states and gradients."""
    for kind in KINDS:
        for loss, optimizer in kind():
            step(loss, optimizer)


def in_bfloat16(program: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            program()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder that receives the kernels"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch._C.record_kernels_to(str(args.out))
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # warnings of these calls do not matter here
    mixed = [in_bfloat16(f) for f in (cnn, mlp, transformer, attention, text)]
    for program in (
        cnn,
        mlp,
        transformer,
        operators,
        optimizers,
        layers,
        losses,
        convolutions,
        shapes,
        attention,
        numbers,
        contrast,
        text,
        diffusion,
        recurrent_layers,
        complete_models,
        *mixed,
    ):
        program()
    torch._C.record_kernels_to("")
    files = [f for f in args.out.rglob("*") if f.is_file()]
    if not files:
        sys.exit(f"no kernel came into {args.out}")
    print(f"{len(files)} kernels, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
