"""Small models of common kinds, for :mod:`facula.warm`: entire training steps use layouts, sums of
gradients and optimizers that single layers do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import facula as torch

nn, F = torch.nn, torch.nn.functional

Step = tuple[Callable[[], torch.Tensor], torch.optim.Optimizer]


def classes(n: int, of: int) -> torch.Tensor:
    return torch.arange(n) % of


def pictures(n: int, side: int, channels: int = 3) -> torch.Tensor:
    return torch.randn(n, channels, side, side)


class Apply(nn.Module):
    """A module with parts, which are modules or parameters, and a function that uses them."""

    def __init__(self, function: Callable, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.function(self, *x)


def convolution(c: int, out: int, *options: int, groups: int = 1) -> nn.Module:
    return nn.Conv2d(c, out, *options, groups=groups, bias=False)


def residual() -> Iterator[Step]:
    def block(c: int, out: int, stride: int) -> nn.Module:
        def forward(m: Apply, x: torch.Tensor) -> torch.Tensor:
            y = m.bn2(m.conv2(F.relu(m.bn1(m.conv1(x)))))
            return F.relu(y + m.skip(x))

        skip = (
            nn.Identity()
            if stride == 1
            else nn.Sequential(convolution(c, out, 1, stride), nn.BatchNorm2d(out))
        )
        return Apply(
            forward, conv1=convolution(c, out, 3, stride, 1), bn1=nn.BatchNorm2d(out),
            conv2=convolution(out, out, 3, 1, 1), bn2=nn.BatchNorm2d(out), skip=skip)  # fmt: skip

    for side, n in ((32, 8), (32, 16), (64, 4)):
        net = nn.Sequential(
            convolution(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
            block(16, 16, 1), block(16, 32, 2), block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(64, 10))  # fmt: skip
        x, y = pictures(n, side), classes(n, 10)
        for nesterov in (True, False):
            yield (
                lambda net=net, x=x, y=y: F.cross_entropy(net(x), y),
                torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=1e-4, nesterov=nesterov),
            )


def dense() -> Iterator[Step]:
    def grow(c: int, by: int) -> nn.Module:
        def forward(m: Apply, x: torch.Tensor) -> torch.Tensor:
            parts = [x]
            for norm, narrow, norm2, conv in m.layers:
                y = narrow(F.relu(norm(torch.cat(parts, 1))))
                parts.append(conv(F.relu(norm2(y))))
            return torch.cat(parts, 1)

        layers = [
            nn.ModuleList([nn.BatchNorm2d(c + k * by), convolution(c + k * by, 4 * by, 1),
                           nn.BatchNorm2d(4 * by), convolution(4 * by, by, 3, 1, 1)])
            for k in range(3)]  # fmt: skip
        return Apply(forward, layers=nn.ModuleList(layers))

    for pool in (nn.AvgPool2d(2), nn.MaxPool2d(2)):
        net = nn.Sequential(
            convolution(3, 16, 3, 1, 1), grow(16, 8), nn.BatchNorm2d(40), nn.ReLU(), convolution(40, 24, 1),
            pool, grow(24, 8), nn.BatchNorm2d(48), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(48, 10))  # fmt: skip
        x, y = pictures(8, 32), classes(8, 10)
        yield (
            lambda net=net, x=x, y=y: F.cross_entropy(net(x), y),
            torch.optim.SGD(net.parameters(), 0.1, 0.9),
        )


def segmentation() -> Iterator[Step]:
    def double(c: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(c, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True))  # fmt: skip

    def forward(m: Apply, x: torch.Tensor) -> torch.Tensor:
        a = m.a(x)
        b = m.b(F.max_pool2d(a, 2))
        c = m.c(F.max_pool2d(b, 2))
        b = m.d(torch.cat([m.up2(c), b], 1))
        return m.head(m.e(torch.cat([m.up1(b), a], 1)))

    for side in (32, 64):
        net = Apply(
            forward, a=double(3, 8), b=double(8, 16), c=double(16, 32), d=double(32, 16), e=double(16, 8),
            up2=nn.ConvTranspose2d(32, 16, 2, 2), up1=nn.ConvTranspose2d(16, 8, 2, 2),
            head=nn.Conv2d(8, 1, 1))  # fmt: skip
        x, mask = pictures(4, side), (pictures(4, side, 1) > 0).float()

        def loss(net: nn.Module = net, x: torch.Tensor = x, mask: torch.Tensor = mask) -> torch.Tensor:
            y = net(x)
            p = y.sigmoid()
            overlap = (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
            return F.binary_cross_entropy_with_logits(y, mask) + 1 - overlap

        yield loss, torch.optim.AdamW(net.parameters())


def separable() -> Iterator[Step]:
    def inverted(c: int, out: int, stride: int, activation: nn.Module) -> nn.Module:
        wide = 4 * c
        body = nn.Sequential(
            convolution(c, wide, 1), nn.BatchNorm2d(wide), activation,
            convolution(wide, wide, 3, stride, 1, groups=wide), nn.BatchNorm2d(wide), activation,
            convolution(wide, out, 1), nn.BatchNorm2d(out))  # fmt: skip
        same = c == out and stride == 1
        return Apply(lambda m, x: x + m.body(x) if same else m.body(x), body=body)

    for activation in (nn.ReLU6(), nn.Hardswish(), nn.SiLU()):
        net = nn.Sequential(
            convolution(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish(), inverted(16, 16, 1, activation),
            inverted(16, 24, 2, activation), inverted(24, 24, 1, activation), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 10))  # fmt: skip
        x, y = pictures(8, 32), classes(8, 10)
        yield (
            lambda net=net, x=x, y=y: F.cross_entropy(net(x), y, label_smoothing=0.1),
            torch.optim.SGD(net.parameters(), 0.1, weight_decay=4e-5),
        )


def gated() -> Iterator[Step]:
    squeeze = Apply(
        lambda m, x: x * torch.sigmoid(m.up(F.silu(m.down(x.mean((2, 3), keepdim=True))))),
        down=nn.Conv2d(32, 8, 1), up=nn.Conv2d(8, 32, 1))  # fmt: skip
    for last in (nn.Hardsigmoid(), nn.Hardswish(), nn.ReLU()):
        net = nn.Sequential(
            convolution(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.SiLU(),
            convolution(16, 32, 3, 2, 1, groups=4), nn.BatchNorm2d(32), nn.SiLU(), squeeze,
            convolution(32, 32, 1), nn.BatchNorm2d(32), last,
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))  # fmt: skip
        x, y = pictures(8, 32), classes(8, 10)
        yield (
            lambda net=net, x=x, y=y: F.cross_entropy(net(x), y),
            torch.optim.Adam(net.parameters(), weight_decay=1e-4),
        )


def autoencoders() -> Iterator[Step]:
    for activation in (nn.ELU(), nn.ReLU(), nn.LeakyReLU(0.2)):
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), activation, nn.Conv2d(8, 16, 3, 2, 1), activation, nn.Flatten(),
            nn.Linear(784, 16), nn.Linear(16, 784), nn.Unflatten(1, (16, 7, 7)), activation,
            nn.ConvTranspose2d(16, 8, 4, 2, 1), activation, nn.ConvTranspose2d(8, 1, 4, 2, 1),
            nn.Sigmoid())  # fmt: skip
        x = torch.rand(8, 1, 28, 28)
        yield lambda net=net, x=x: F.mse_loss(net(x), x), torch.optim.Adam(net.parameters())


def waves() -> Iterator[Step]:
    def gate(c: int, dilation: int) -> nn.Module:
        a, b = (nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation) for _ in range(2))
        return Apply(
            lambda m, x: x + m.out(torch.tanh(m.a(x)) * torch.sigmoid(m.b(x))), a=a, b=b,
            out=nn.Conv1d(c, c, 1))  # fmt: skip

    for activation in (nn.LeakyReLU(0.1), nn.ReLU()):
        net = nn.Sequential(
            nn.Conv1d(1, 16, 9, stride=4, padding=4), nn.BatchNorm1d(16), activation, gate(16, 1),
            gate(16, 2), nn.MaxPool1d(4), gate(16, 4), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(16, 10))  # fmt: skip
        x, y = torch.randn(4, 1, 1024), classes(4, 10)
        yield lambda net=net, x=x, y=y: F.cross_entropy(net(x), y), torch.optim.Adam(net.parameters())


def denoising() -> Iterator[Step]:
    def block(c: int, out: int) -> nn.Module:
        def forward(m: Apply, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            h = m.conv1(F.silu(m.norm1(x))) + m.time(F.silu(t))[:, :, None, None]
            return m.conv2(F.silu(m.norm2(h))) + m.skip(x)

        return Apply(
            forward, norm1=nn.GroupNorm(4, c), norm2=nn.GroupNorm(4, out), time=nn.Linear(32, out),
            conv1=nn.Conv2d(c, out, 3, padding=1), conv2=nn.Conv2d(out, out, 3, padding=1),
            skip=nn.Conv2d(c, out, 1))  # fmt: skip

    rates = torch.exp(torch.arange(16) * -0.5)

    def forward(m: Apply, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        angles = at[:, None].float() * rates[None]
        t = torch.cat([angles.sin(), angles.cos()], -1)
        h = F.avg_pool2d(m.first(m.stem(x), t), 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
        return m.head(m.norm(m.second(h, t)))

    for last in (nn.InstanceNorm2d(16, affine=True), nn.GroupNorm(4, 16)):
        net = Apply(
            forward, stem=nn.Conv2d(3, 16, 3, padding=1), first=block(16, 32), second=block(32, 16),
            norm=last, head=nn.Conv2d(16, 3, 3, padding=1))  # fmt: skip
        x, at = pictures(4, 16), torch.arange(4) * 10

        def loss(net: nn.Module = net, x: torch.Tensor = x, at: torch.Tensor = at) -> torch.Tensor:
            noise = torch.randn_like(x)
            keep = torch.cos(at.float() / 50)[:, None, None, None]
            return F.smooth_l1_loss(net(keep * x + (1 - keep**2).sqrt() * noise, at), noise)

        yield loss, torch.optim.AdamW(net.parameters())


def mixed_heads() -> Iterator[Step]:
    width, heads = 64, 4
    scale = (width // heads) ** -0.5

    def all_to_all(m: Apply, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        q, k, v = m.qkv(x).reshape(n, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        scores = m.before((q * scale @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = m.after(scores.softmax(dim=-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return m.out((F.dropout(weights, 0.1) @ v).transpose(1, 2).reshape(n, length, width))

    def one_to_all(m: Apply, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        q = m.q(x[:, 0]).unsqueeze(1).reshape(n, 1, heads, -1).permute(0, 2, 1, 3)
        k, v = (f(x).reshape(n, length, heads, -1).permute(0, 2, 1, 3) for f in (m.k, m.v))
        weights = (q * scale @ k.transpose(-2, -1)).softmax(dim=-1)
        return m.out((weights @ v).transpose(1, 2).reshape(n, 1, width))

    def line(of: int = width, to: int = width) -> nn.Module:
        return nn.Linear(of, to)

    def block(attention: nn.Module) -> nn.Module:
        gammas = {name: nn.Parameter(torch.ones(width) * 1e-2) for name in ("gamma1", "gamma2")}
        return Apply(
            lambda m, x: x, attention=attention, norm1=nn.LayerNorm(width, eps=1e-6),
            norm2=nn.LayerNorm(width, eps=1e-6),
            mlp=nn.Sequential(line(to=4 * width), nn.GELU(), line(4 * width)), **gammas)  # fmt: skip

    def forward(m: Apply, images: torch.Tensor) -> torch.Tensor:
        x = m.patches(images).flatten(2).transpose(1, 2) + m.positions
        for b in m.blocks:
            x = x + b.gamma1 * b.attention(b.norm1(x))
            x = x + b.gamma2 * b.mlp(b.norm2(x))
        token, b = m.token.expand(x.shape[0], -1, -1), m.last
        token = token + b.gamma1 * b.attention(b.norm1(torch.cat((token, x), dim=1)))
        token = token + b.gamma2 * b.mlp(b.norm2(token))
        return m.head(m.norm(torch.cat((token, x), dim=1))[:, 0])

    every = [
        block(Apply(all_to_all, qkv=line(to=3 * width), out=line(), before=line(heads, heads),
                    after=line(heads, heads)))
        for _ in range(2)]  # fmt: skip
    net = Apply(
        forward, patches=nn.Conv2d(3, width, 8, 8), positions=nn.Parameter(torch.zeros(1, 16, width)),
        token=nn.Parameter(torch.zeros(1, 1, width)), blocks=nn.ModuleList(every),
        last=block(Apply(one_to_all, q=line(), k=line(), v=line(), out=line())),
        norm=nn.LayerNorm(width, eps=1e-6), head=line(to=10))  # fmt: skip
    x, y = pictures(4, 32), classes(4, 10)
    yield lambda: F.cross_entropy(net(x), y), torch.optim.AdamW(net.parameters())


def language() -> Iterator[Step]:
    words, places, norm = nn.Embedding(65, 64), nn.Embedding(64, 64), nn.LayerNorm(64)
    tokens = torch.arange(4 * 65).view(4, 65) % 65
    parts = nn.ModuleList([words, places, norm])

    def tied() -> torch.Tensor:
        h = words(tokens[:, :-1]) + places(torch.arange(64))
        logits = F.linear(norm(h), words.weight)
        return F.cross_entropy(logits.reshape(-1, 65), tokens[:, 1:].reshape(-1))

    yield tied, torch.optim.AdamW(parts.parameters())

    table, filters, out = (
        nn.Embedding(1000, 32, padding_idx=0),
        nn.Conv1d(32, 64, 3, padding=1),
        nn.Linear(96, 4),
    )
    text = torch.arange(16 * 24).view(16, 24) * 7919 % 1000
    sorted_out = nn.ModuleList([table, filters, out])

    def topic() -> torch.Tensor:
        x = table(text)
        there = (text != 0).unsqueeze(-1).to(x.dtype)
        mean = (x * there).sum(1) / there.sum(1).clamp(min=1)
        peak = F.relu(filters(x.transpose(1, 2))).amax(-1)
        logits = out(F.dropout(torch.cat([mean, peak], -1), 0.3))
        return F.nll_loss(F.log_softmax(logits, dim=1), classes(16, 4))

    for optimizer in (
        torch.optim.SGD(sorted_out.parameters(), 0.1, 0.9, dampening=0.1),
        torch.optim.SGD(sorted_out.parameters(), 0.1, 0.9),
        torch.optim.Adam(sorted_out.parameters()),
    ):
        yield topic, optimizer


def pairs() -> Iterator[Step]:
    net = nn.Sequential(
        nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.PReLU(),
        nn.Linear(64, 32))  # fmt: skip
    heat = nn.Parameter(torch.tensor(2.0))
    left, right = torch.randn(32, 64), torch.randn(32, 64)

    def loss() -> torch.Tensor:
        a, b = F.normalize(net(left), dim=-1), F.normalize(net(right), dim=-1)
        logits, at = a @ b.t() * heat.exp(), torch.arange(32)
        both = (F.cross_entropy(logits, at) + F.cross_entropy(logits.t(), at)) / 2
        triple = F.triplet_margin_loss(a, b, b.roll(1, 0), margin=0.3)
        return both + triple + F.relu(F.cosine_similarity(a, b.roll(1, 0)) - 0.2).mean()

    yield loss, torch.optim.Adam([*net.parameters(), heat], amsgrad=True)
    yield loss, torch.optim.AdamW([*net.parameters(), heat])


def neighbours() -> Iterator[Step]:
    nodes, source, target = torch.randn(64, 16), torch.arange(256) * 7 % 64, torch.arange(256) * 13 % 64
    batch = torch.arange(64) // 8

    def attend(c: int, out: int) -> nn.Module:
        def forward(m: Apply, x: torch.Tensor) -> torch.Tensor:
            h = m.message(x)
            e = F.leaky_relu(torch.cat([h[source], h[target]], -1) @ m.score, 0.2).squeeze(-1)
            e = torch.exp(e - e.max().detach())
            total = torch.zeros(x.shape[0]).index_add(0, target, e)
            share = e / (total[target] + 1e-9)
            sums = torch.zeros(x.shape[0], h.shape[1]).index_add(0, target, h[source] * share.unsqueeze(-1))
            return m.update(torch.cat([x, sums], -1))

        return Apply(
            forward, message=nn.Linear(c, out), update=nn.Linear(c + out, out),
            score=nn.Parameter(torch.randn(2 * out, 1) * 0.1))  # fmt: skip

    first, second, head = attend(16, 32), attend(32, 32), nn.Linear(32, 3)
    net = nn.ModuleList([first, second, head])

    def loss() -> torch.Tensor:
        x = F.elu(second(F.elu(first(nodes))))
        pooled = torch.zeros(8, 32).scatter_add(0, batch[:, None].expand(-1, 32), x)
        count = (batch[:, None] == torch.arange(8)).sum(0).unsqueeze(-1)
        return F.cross_entropy(head(pooled / count), classes(8, 3))

    yield loss, torch.optim.Adam(net.parameters(), weight_decay=5e-4)


def objectives() -> Iterator[Step]:
    net = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Linear(32, 8), nn.SELU(), nn.Linear(8, 8))
    x, y, at = torch.randn(16, 16), torch.randn(16, 8), classes(16, 8)
    some, signs = (y > 0).float(), (y > 0).float() * 2 - 1

    def loss() -> torch.Tensor:
        z = net(x)
        p, q = F.log_softmax(z, -1), F.softmax(y, -1)
        return torch.stack([
            F.mse_loss(z, y), F.l1_loss(z, y), F.smooth_l1_loss(z, y), F.huber_loss(z, y),
            F.huber_loss(z, y, delta=0.5), F.cross_entropy(z, at, weight=torch.linspace(0.5, 1.5, 8)),
            F.kl_div(p, q, reduction="batchmean"), F.binary_cross_entropy_with_logits(z, some),
            F.hinge_embedding_loss(z, signs), F.soft_margin_loss(z, signs), F.multi_margin_loss(z, at),
            F.multilabel_soft_margin_loss(z, some), F.gaussian_nll_loss(z, y, F.softplus(z) + 0.1),
            F.poisson_nll_loss(z, some), F.cosine_embedding_loss(z, y, signs[:, 0]),
            F.margin_ranking_loss(z[:, 0], z[:, 1], signs[:, 0]), z.logsumexp(-1).mean(), z.var(0).mean(),
            z.norm(), -(p.exp() * p).sum(-1).mean()]).sum()  # fmt: skip

    yield loss, torch.optim.SGD(net.parameters(), 0.01)


KINDS = (
    residual, dense, segmentation, separable, gated, autoencoders, waves, denoising, mixed_heads, language,
    pairs, neighbours, objectives)  # fmt: skip
