"""Models whose forward pass `compile` takes as one program: results, gradients and buffers as in eager."""

import copy
import importlib
import sys
from pathlib import Path

import facula.nn.functional as F
import pytest

import facula
import facula.nn as nn


def conv(i, o, k=3, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, k, stride, k // 2, bias=False), nn.BatchNorm2d(o))


class Block(nn.Module):
    def __init__(self, i, o, stride=1):
        super().__init__()
        self.a, self.b = conv(i, o, 3, stride), conv(o, o)
        self.shortcut = conv(i, o, 1, stride) if stride > 1 or i != o else None

    def forward(self, x):
        y = self.b(F.relu(self.a(x), inplace=True))
        y += x if self.shortcut is None else self.shortcut(x)
        return F.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width=8, classes=10):
        super().__init__()
        self.stem = nn.Sequential(conv(3, width), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        blocks, i = [], width
        for k in range(4):
            for stride in (1 + (k > 0), 1):
                blocks.append(Block(i, width << k, stride))
                i = width << k
        self.blocks = nn.ModuleList(blocks)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(i, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(facula.flatten(self.pool(x), 1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(
            {"up": nn.Linear(width, 4 * width), "act": nn.GELU(), "down": nn.Linear(4 * width, width)}
        )

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        m = self.mlp
        return x + m["down"](m["act"](m.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, layers=4, width=32, heads=4, words=50, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets=None):
        _, t = tokens.size()
        assert t <= self.places.num_embeddings, f"length {t}"
        x = self.words(tokens) + self.places(facula.arange(0, t, dtype=facula.long))
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss


class LanguageModel(nn.Module):
    def __init__(self, words=30, width=16):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.rnn = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, tokens, state=None):
        y, state = self.rnn(self.words(tokens), state)
        return self.head(y), state


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU())
        self.mean, self.spread = nn.Linear(8, 3), nn.Linear(8, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12), nn.Sigmoid())

    def forward(self, x):
        h = self.encoder(x)
        mean, spread = self.mean(h), self.spread(h)
        std = facula.exp(0.5 * spread)
        z = mean + facula.randn_like(std) * std
        return {"out": self.decoder(z), "kl": -0.5 * facula.sum(1 + spread - mean.pow(2) - spread.exp())}


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 8, 16]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.head = nn.Linear(16, 4)

    def forward(self, points):
        for layer, norm in zip(self.layers, self.norms):
            points = F.relu(norm(layer(points)))
        return F.log_softmax(self.head(facula.max(points, 2, keepdim=True)[0].view(-1, 16)), dim=-1)


def cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(),
                         nn.Flatten(),
                         nn.Dropout(0.1), nn.Linear(8 * 25, 10), nn.LogSoftmax(dim=1))  # fmt: skip


def transformer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def tokens(*shape, n=30):
    return facula.randint(0, n, shape)


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)),
        lambda: (facula.randn(5, 6),),
    ),
    "cnn": (cnn, lambda: (facula.randn(2, 3, 16, 16),)),
    "resnet18": (ResNet18, lambda: (facula.randn(4, 3, 32, 32),)),
    "gpt": (GPT, lambda: (tokens(2, 16), tokens(2, 16))),
    "lstm": (LanguageModel, lambda: (tokens(2, 7),)),
    "vae": (VAE, lambda: (facula.rand(4, 12),)),
    "pointnet": (PointNet, lambda: (facula.randn(4, 3, 10),)),
    "transformer": (transformer, lambda: (facula.randn(2, 5, 16),)),
}


def leaves(x):
    if isinstance(x, facula.Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for y in x for t in leaves(y)] if isinstance(x, (list, tuple)) else []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_forward_and_gradients_match_eager(name, training):
    make, inputs = MODELS[name]
    facula.manual_seed(0)
    eager = make().train(training)
    model = copy.deepcopy(eager)
    compiled = facula.compile(model, fullgraph=True)
    for call in range(3):
        args = inputs()
        results = []
        for m in (compiled, eager):
            facula.manual_seed(call)
            m.zero_grad()
            out = m(*args)
            sum(t.float().sum() for t in leaves(out) if t.requires_grad).backward()
            results.append(leaves(out))
        for a, b in zip(*results, strict=True):
            assert facula.allclose(a, b, rtol=1e-5, atol=1e-5), name
    for (key, a), b in zip(model.named_parameters(), eager.parameters()):
        assert (a.grad - b.grad).norm() <= 1e-4 * b.grad.norm() + 1e-6, key
    for (key, a), b in zip(model.named_buffers(), eager.buffers()):
        assert facula.allclose(a, b, rtol=1e-5, atol=1e-6), key
    report = compiled.__dict__["_run"].report()
    assert report["captures"] <= 2 and not report["plain_runs"], report


def test_a_training_loop_follows_eager():
    facula.manual_seed(1)
    eager = ResNet18(4)
    model = copy.deepcopy(eager)
    losses = []
    for m in (facula.compile(model), eager):
        facula.manual_seed(2)
        optimizer, all = facula.optim.SGD(m.parameters(), lr=0.05, momentum=0.9), []
        for _ in range(4):
            images, labels = facula.randn(8, 3, 32, 32), tokens(8, n=10)
            optimizer.zero_grad()
            loss = F.cross_entropy(m(images), labels)
            loss.backward()
            optimizer.step()
            all.append(loss.item())
        losses.append(all)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_whole_training_step_follows_eager():
    def trained(wrap):
        facula.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = facula.optim.Adam(model.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        x, y = facula.randn(8, 4), facula.randn(8, 1)
        return [run(x, y).item() for _ in range(6)]

    assert trained(facula.compile) == pytest.approx(trained(lambda f: f), rel=1e-5)


@pytest.mark.parametrize("name", ["MLP", "VAE", "LLaMA 6x256", "DCGAN", "DLRM", "PPO"])
def test_programs_of_the_benchmark_match_eager_without_a_break(name, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    monkeypatch.delitem(sys.modules, "run", raising=False)
    compare = importlib.import_module("compile").compare_forward
    result = compare(name)
    assert result["outputs"] <= 1e-5 and result["gradients"] <= 1e-4, result
    assert not result["breaks"] and (result["captures"], result["plain"]) == (1, 0), result


@pytest.mark.parametrize("name", MODELS)
def test_training_steps_are_one_program(name):
    def trained(wrap):
        facula.manual_seed(4)
        make, inputs = MODELS[name]
        model, args = make().train(), inputs()
        optimizer = facula.optim.AdamW(model.parameters(), lr=1e-3)

        def step(*args):
            optimizer.zero_grad()
            results = facula.utils._pytree.tree_leaves(model(*args))
            loss = sum((r.float() ** 2).mean() for r in results)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        facula.manual_seed(5)
        return [run(*args).detach().item() for _ in range(4)], run

    got, compiled = trained(lambda f: facula.compile(f, fullgraph=True))
    assert got == pytest.approx(trained(lambda f: f)[0], rel=1e-4)
    report = compiled.report()
    assert report["captures"] == 1 and report["hits"] == 3 and not report["plain_runs"]


def test_values_saved_for_a_backward_pass_stay_in_the_layout_of_convolutions():
    facula.manual_seed(0)
    block = lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())  # noqa: E731
    plain = nn.Sequential(*(block() for _ in range(4)), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 3))
    compiled = facula.compile(copy.deepcopy(plain))
    x = facula.randn(2, 16, 16, 16)

    def reorders_of(model):
        for _ in range(4):
            before = facula._C.layout_counts()["reordered"]
            model.zero_grad()
            model(x).square().sum().backward()
        return facula._C.layout_counts()["reordered"] - before

    assert reorders_of(compiled) <= reorders_of(plain)
    for p, q in zip(plain.parameters(), compiled.parameters()):
        assert p.grad.stride() == q.grad.stride()
        assert facula.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-4 * p.grad.abs().max().item())
