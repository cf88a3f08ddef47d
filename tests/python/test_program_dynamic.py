"""Programs for sizes that they were not traced with (dynamic=True), and what Python sees of sizes then."""

import copy
import math
import pickle

import pytest
from facula.program import load, trace
from test_program import same

import facula
from facula import nn, optim
from facula.nn import functional as F


def parts_of_a_product(x):  # which begin where the sizes say
    n = x.size(0)
    y = x.tanh().view(-1, 4)
    y = y @ y.T
    a, b = y[n:, :2], y[n : n + 2, :2]
    return a.T @ a + b @ b.T + y.T[-2:, n : n + 2] @ b.T + y[2 * n :][:2, -2:] @ b


FOLLOW = {
    "view by its size": lambda x: x.view(x.size(0), -1).sum(1),
    "reshape by its shape": lambda x: x.reshape(x.shape[0] * x.shape[1], 4) * 2,
    "times its size": lambda x: x * x.size(0) + x.shape[1],
    "by its size": lambda x: x.sum(0) / x.size(0) - x.numel(),
    "zeros of its size": lambda x: facula.zeros(x.size(0), x.size(1)) + x.mean(-1),
    "new_ones": lambda x: x.new_ones(x.shape).cumsum(0),
    "expand": lambda x: x[:1].expand(x.size(0), -1, -1) + x,
    "slice": lambda x: x[: x.size(0) - 1] * 2,
    "slice from": lambda x: x[:, x.size(1) // 2 :] * 2,
    "narrow": lambda x: x.narrow(0, 1, x.size(0) - 1).exp(),
    "flatten": lambda x: x.flatten(0, 1).softmax(0),
    "product of its shape": lambda x: x.reshape(-1, math.prod(x.shape)),
    "unpacked": lambda x: (lambda b, t, c: x.view(b, t, 2, c // 2).transpose(1, 2).flatten(2))(*x.shape),
    "interpolate": lambda x: F.interpolate(x, size=x.size(2)),
    "one_hot": lambda x: F.one_hot(x[:, 0, 0].long().clamp(0, 1), x.size(0)).float(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[2:]),
    "a comparison": lambda x: x * 2 if x.size(0) > 1 else x,
    "group_norm": lambda x: F.group_norm(x.transpose(1, 2), 2),
    "instance_norm": lambda x: F.instance_norm(x.transpose(1, 2)),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 2),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 2),
    "batch_norm": lambda x: F.batch_norm(x.transpose(1, 2), None, None, training=True),
    "mean pooling": lambda x: F.avg_pool1d(x, 2),
    "arange": lambda x: x + facula.arange(x.size(0))[:, None, None] * facula.arange(x.size(1))[:, None],
    "arange by two": lambda x: x.sum() + facula.arange(1, 2 * x.size(0), 2, dtype=facula.float32),
    "arange down": lambda x: x.sum() + facula.arange(x.size(0) - 1, -1, -1),
    "arange down by two": lambda x: x.sum() + facula.arange(2 * x.size(0), 0, -2, dtype=facula.int16),
    "arange from it": lambda x: x.sum() + facula.arange(x.size(0), x.size(0) + 3),
    "a causal mask": lambda x: x.masked_fill(facula.ones(x.size(1), 4).tril() == 0, 0.0),
    "a mask of lengths": lambda x: x * (facula.ones(x.size(0), x.size(1), 1).cumsum(1) > 1),
    "parts of a product": parts_of_a_product,
    "a tensor of it": lambda x: x + facula.tensor([x.size(0), 2]).sum(),
    "stack": lambda x: facula.stack([x, x.flip(0)], 1).view(2 * x.size(0), *x.shape[1:]),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOW)
def test_a_program_follows_sizes_that_python_computes_with(name, tmp_path):
    f = FOLLOW[name]
    program = trace(f, facula.randn(5, 3, 4, requires_grad=True), dynamic=True)
    program.save(tmp_path / "p")
    for p in (program, load(tmp_path / "p")):
        for n, t in ((5, 3), (3, 7), (11, 3), (4, 4), (7, 6)):
            ours, theirs = (facula.randn(n, t, 4, requires_grad=True) for _ in range(2))
            with facula.no_grad():
                theirs.copy_(ours)
            a, b = p(ours), f(theirs)
            same(a, b, 1e-6)
            if b.requires_grad:
                # The sum of the squares of normalised values is constant: its gradient is rounding alone.
                (a * a * a).sum().backward(), (b * b * b).sum().backward()
                same(ours.grad, theirs.grad, 1e-5)


PIN = {
    "float": lambda x: x * float(x.size(0)),
    "true division": lambda x: x * (x.size(0) / 2),
    "a power": lambda x: x * x.size(0) ** 2,
    "sqrt": lambda x: x / math.sqrt(x.size(0)),
    "range": lambda x: sum(x[k] for k in range(x.size(0))),
    "a list": lambda x: x.split([1] * x.size(0))[0],
    "a key": lambda x: x * {4: 2.0}.get(x.size(0), 1.0),
    "a format": lambda x: x * float(f"{x.size(0):d}"),
    "a copy": lambda x: x * copy.deepcopy(x.size(0)) + pickle.loads(pickle.dumps(x.size(0))),
    "bits": lambda x: x * (x.size(0) & 6) + (x.size(0) << 1) + x.size(0).bit_length() + abs(-x.size(0)),
    "a number of a list": lambda x: x + [1, 2, 3, 4, 5][x.size(0)],
    "equality": lambda x: x * 2 if x.shape == (4, 3) else x,
    "divmod": lambda x: x * divmod(x.size(0), 3)[1],
}


@pytest.mark.parametrize("name", PIN)
def test_what_only_a_number_can_be_holds_for_that_number(name):
    f, x = PIN[name], facula.randn(4, 3)
    program = trace(f, x, dynamic=True)
    same(program(x), f(x), 1e-6)
    with pytest.raises(ValueError, match="relied on sizes"):
        program(facula.randn(6, 3))


def test_a_size_is_an_int_to_programs():
    def f(x):
        n = x.size(0)
        assert isinstance(n, int) and isinstance(n, facula.SymInt) and type(n) is facula.SymInt
        assert str(n) == "s0" and str(x.shape) == "facula.Size([s0, s1])" and str(n * 2 + 1) == "s0*2 + 1"
        assert n == x.size(0) and n > 0 and n * 2 - n == n and round(n) is n
        with pytest.raises(TypeError):
            n + "a"
        with pytest.raises(AttributeError, match="nothing"):
            n.nothing  # noqa: B018
        return x

    program = trace(f, facula.ones(4, 3), dynamic=True)
    assert program(facula.ones(6, 2)).shape == (6, 2)


def test_a_size_that_leaves_the_trace_is_the_number_that_it_was():
    kept = []
    trace(lambda x: (kept.append(x.size(0)), x + 1)[1], facula.ones(4, 3), dynamic=True)
    (n,) = kept
    assert n == 4 and n + 1 == 5 and {4: 1}[n] and list(range(n)) == [0, 1, 2, 3] and f"{n}" == "4"
    assert facula.ones(n).shape == (4,)
    other = trace(lambda x: x + n, facula.ones(6, 3), dynamic=True)  # whose s0 is another
    same(other(facula.ones(2, 2)), facula.full((2, 2), 5.0))


class SumOfAll(facula.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum()

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.shape) * ctx.shape[0]


def test_a_backward_may_keep_sizes_alone(tmp_path):
    program = trace(
        lambda x: SumOfAll.apply(x.sin()) * 2, facula.randn(4, 3, requires_grad=True), dynamic=True
    )
    program.save(tmp_path / "p")
    for p in (program, load(tmp_path / "p")):
        for n in (4, 7, 2):
            x = facula.randn(n, 3, requires_grad=True)
            p(x).backward()
            same(x.grad, 2 * n * x.detach().cos(), 1e-6)


def convolutions():
    def block(i, o, stride):
        return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

    layers = block(3, 8, 1) + block(8, 16, 2) + block(16, 16, 1) + [nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 4))


@pytest.mark.parametrize(
    "make", [lambda p: optim.SGD(p, lr=0.05, momentum=0.9), lambda p: optim.AdamW(p, lr=1e-3)]
)
def test_a_convolutional_step_trains_on_batches_of_any_size(make):
    def world():
        facula.manual_seed(5)
        model = convolutions()
        optimizer = make(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    facula.manual_seed(1)
    batches = [
        (facula.randn(n, 3, s, s), facula.randint(0, 4, (n,)))
        for n, s in ((4, 12), (7, 12), (2, 16), (4, 12))
    ]
    (ours, traced), (theirs, eager) = world(), world()
    traced(*batches[0]), eager(*batches[0])
    program = trace(traced, *batches[0], dynamic=True)
    for x, y in batches:
        same(program(x, y), eager(x, y), 1e-5)
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert facula.allclose(a.double(), b.double(), atol=1e-5), name
