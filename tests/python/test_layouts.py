"""Hidden layouts: elements may lie in memory in another order than strides say, and nobody can tell."""

import copy
import pickle
import threading
from itertools import permutations

import facula._C as C
import numpy as np
import pytest
from support.operators import arguments, bits, call, cases, to_numpy

import facula as F
from facula import nn

NHWC = (0, 2, 3, 1)
ALL = cases()
BY_NAME = {c.name: c for c in ALL}
RANDOM_MEMORY = {"empty", "empty_like"}


def images(*sizes, order=NHWC):
    n = 1
    for s in sizes:
        n *= s
    return C.in_physical_order(F.arange(n, dtype=F.float32).reshape(*sizes), order)


def ranks_of(sample):
    return {len(s) for a in sample.values() if a["kind"] != "literal" for s in a["sizes"] if len(s) > 1}


def orders(rank):
    """Every order of few dimensions; of many the ones that occur, and the reverse."""
    everything = [p for p in permutations(range(rank)) if p != tuple(range(rank))]
    if rank <= 3:
        return everything
    return [(0, *range(2, rank), 1), tuple(reversed(range(rank))), (1, 0, *range(2, rank))]


@pytest.mark.parametrize(
    "name", [c.name for c in ALL if c.samples and not c.random and c.base not in RANDOM_MEMORY]
)
def test_operators_give_the_same_in_every_physical_order(name):
    case = BY_NAME[name]
    dtype = next(d for d in ("float32", "int64", "bool", *case.dtypes) if d in case.dtypes)
    for number, sample in enumerate(case.samples):
        for rank in ranks_of(sample):
            for order in orders(rank):
                layout = "hidden " + "".join(map(str, order))
                plain, hidden = arguments(case, number, dtype), arguments(case, number, dtype, layout)
                wanted, got = call(case, plain), call(case, hidden)
                if case.writes:  # what it wrote
                    wanted, got = wanted + tensors_of(plain), got + tensors_of(hidden)
                for w, g in zip(wanted, got, strict=True):
                    what = f"{name}, sample {number}, {layout}"
                    assert w.shape == g.shape and w.dtype == g.dtype and w.stride() == g.stride(), what
                    if case.kind in ("pointwise", "view") or not w.dtype.is_floating_point:
                        assert bits(w) == bits(g), what
                    else:
                        scale = max(1.0, float(np.abs(to_numpy(w)).max())) if w.numel() else 1.0
                        np.testing.assert_allclose(
                            to_numpy(g), to_numpy(w), rtol=2e-5, atol=2e-6 * scale, err_msg=what
                        )


def tensors_of(args):
    out = []
    for a in args.values():
        out += (
            [a]
            if isinstance(a, F.Tensor)
            else [t for t in a if isinstance(t, F.Tensor)]
            if isinstance(a, list)
            else []
        )
    return out


@pytest.mark.parametrize(
    "name",
    [c.name for c in ALL if c.samples and c.in_place and not c.random and hasattr(F.Tensor, c.base + "_")],
)
def test_in_place_forms_write_into_hidden_memory(name):
    case = BY_NAME[name]
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    for number, sample in enumerate(case.samples):
        for rank in ranks_of(sample):
            if "self" not in sample or len(sample["self"]["sizes"][0]) != rank:
                continue
            args = (
                arguments(case, number, dtype),
                arguments(case, number, dtype, "hidden " + "".join(map(str, orders(rank)[0]))),
            )
            plain, target = (a.pop("self") for a in args)
            versions = plain._version, target._version
            try:
                wanted = getattr(plain, case.base + "_")(**args[0])
            except RuntimeError:
                continue  # results of another dtype or shape than self
            alias = target.view(target.shape)
            assert getattr(target, case.base + "_")(**args[1]) is target
            # A procedure may sum in the order that its operands have in memory, and so does renorm.
            sums = case.kind == "procedure" or case.base == "renorm"
            assert bits(wanted) == bits(target) or (sums and F.allclose(wanted, target))
            assert case.kind == "view" or bits(alias) == bits(target)  # t_() and its like move no element
            assert target._version - versions[1] == plain._version - versions[0]


def test_strides_show_the_plain_order():
    x = images(2, 3, 4, 5)
    assert C.physical_order(x) == NHWC
    assert (
        x.stride() == (60, 20, 5, 1)
        and x.is_contiguous()
        and not x.is_contiguous(memory_format=F.channels_last)
    )
    assert x.contiguous() is x and C.physical_order(x) == NHWC


def test_pointwise_results_lie_as_their_operands():
    y = F.relu(images(2, 3, 4, 5) - 7) * 2
    assert C.physical_order(y) == NHWC and y.is_contiguous()
    assert y.tolist() == (F.relu(F.arange(120).reshape(2, 3, 4, 5).float() - 7) * 2).tolist()


def test_memory_is_restored_once_and_shared_with_numpy():
    x = images(2, 3, 4, 5)
    before = C.layout_counts()["restored"]
    a, address = x.numpy(), x.data_ptr()
    assert (a == np.arange(120).reshape(2, 3, 4, 5)).all()
    assert C.layout_counts()["restored"] == before + 1 and C.physical_order(x) is None
    x[0, 1, 2, 3] = -1
    assert a[0, 1, 2, 3] == -1
    a[1, 2, 3, 4] = -2
    F.conv2d(x, F.ones(1, 3, 1, 1))
    assert x[1, 2, 3, 4].item() == -2 and x.data_ptr() == address
    y = images(2, 3, 4, 5)
    b = np.from_dlpack(y)
    y.mul_(2)
    assert (b == 2 * np.arange(120).reshape(2, 3, 4, 5)).all()


def test_views_made_before_and_after_restoring_share_memory():
    x = images(2, 3, 4, 5)

    def views():
        return [
            x[0],
            x.permute(3, 1, 0, 2),
            x.view(2, 3, 20),
            x[:, 1:, ::2],
            x.flatten(),
            x.as_strided((4,), (7,), 3),
        ]

    before = views()
    x.neg_()
    after = views()
    plain = -np.arange(120.0).reshape(2, 3, 4, 5)
    wanted = [
        plain[0],
        plain.transpose(3, 1, 0, 2),
        plain.reshape(2, 3, 20),
        plain[:, 1:, ::2],
        plain.ravel(),
        plain.ravel()[[3, 10, 17, 24]],
    ]
    for a, b, w in zip(before, after, wanted, strict=True):
        assert (a + 0).tolist() == (b + 0).tolist() == w.tolist()
    before[0].zero_()
    before[4][1] = 5
    assert x[0].tolist() == after[0].tolist() and x[0, 0, 0, 1].item() == 5 and x[0].sum().item() == 5


def test_writes_through_views_reach_hidden_memory():
    x = images(2, 3, 4, 5)
    x[:, 1].fill_(-3)
    x.permute(0, 2, 3, 1)[0, 0, 0].mul_(10)
    assert C.physical_order(x) == NHWC
    plain = np.arange(120.0).reshape(2, 3, 4, 5)
    plain[:, 1] = -3
    plain.transpose(0, 2, 3, 1)[0, 0, 0] *= 10
    assert x.tolist() == plain.tolist()


def test_operands_in_different_orders_meet():
    x, y, z = images(2, 3, 4, 5), images(2, 3, 4, 5, order=(3, 2, 1, 0)), F.arange(120.0).reshape(2, 3, 4, 5)
    assert (x + y + z).tolist() == (z * 3).tolist()
    x += y
    assert x.tolist() == (z * 2).tolist()
    x.add_(x[:1].clone())
    assert x.tolist() == (z * 2 + (z * 2)[:1]).tolist()


def test_out_and_copies():
    x, z = images(2, 3, 4, 5), F.arange(120.0).reshape(2, 3, 4, 5)
    F.add(z, 1, out=x)
    assert x.tolist() == (z + 1).tolist()
    small = images(1, 2, 2, 2)
    F.add(z, 1, out=small)
    assert small.shape == z.shape and small.tolist() == (z + 1).tolist()
    y = images(2, 3, 4, 5)
    for other in (
        y.clone(),
        copy.deepcopy(y),
        pickle.loads(pickle.dumps(y)),
        y.detach(),
        y.to(F.float64),
        F.tensor(y.tolist()),
    ):
        assert other.tolist() == z.tolist() and other.is_contiguous()
    w = F.zeros(2, 3, 4, 5)
    w.data = images(2, 3, 4, 5)
    w.add_(1)
    assert w.tolist() == (z + 1).tolist()


def test_bits_seen_as_another_dtype():
    x = images(2, 3, 4, 5)
    if hasattr(x, "view") and "view.dtype" in BY_NAME:
        assert (
            x.view(F.int32).tolist()
            == np.arange(120, dtype=np.float32).view(np.int32).reshape(2, 3, 4, 5).tolist()
        )
        assert x.tolist() == F.arange(120.0).reshape(2, 3, 4, 5).tolist()


def test_versions_guard_hidden_values_that_were_saved():
    x = images(2, 3, 4, 5).requires_grad_()
    y = (x * 1).relu()
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_gradients_of_views_of_hidden_memory():
    F.manual_seed(0)
    x = F.randn(2, 3, 6, 6).requires_grad_()
    w = F.randn(4, 3, 3, 3).requires_grad_()
    y = F.conv2d(x, w, padding=1)
    assert C.physical_order(y) == NHWC
    (y[:, 1:3, ::2] * F.relu(y).flatten(1).sum(1).reshape(2, 1, 1, 1)).sum().backward()
    got = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    y = F.conv2d(x.double(), w.double(), padding=1)  # float64: computed in the logical layout
    assert C.physical_order(y) is None
    (y[:, 1:3, ::2] * F.relu(y).flatten(1).sum(1).reshape(2, 1, 1, 1)).sum().backward()
    for g, t in zip(got, (x, w), strict=True):
        np.testing.assert_allclose(
            g.numpy(), t.grad.numpy(), rtol=1e-4, atol=1e-5 * t.grad.abs().max().item()
        )


def test_threads_restore_and_read_at_the_same_time():
    plain = F.arange(2 * 32 * 16 * 16).reshape(2, 32, 16, 16).float()
    for _ in range(20):
        x = C.in_physical_order(plain, NHWC)
        wrong = []

        def read(k, x=x, wrong=wrong):
            got = [
                lambda: (x * 2).numpy(),
                lambda: x.numpy() * 2,
                lambda: x.flatten().numpy().reshape(x.shape) * 2,
            ][k % 3]()
            if not (got == plain.numpy() * 2).all():
                wrong.append(k)

        threads = [threading.Thread(target=read, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def test_weights_are_read_while_another_thread_packs_them():
    x = F.randn(2, 64, 12, 12)
    for _ in range(8):
        conv = nn.Conv2d(64, 64, 3, padding=1)
        with F.no_grad():
            expected = conv(x).numpy().copy()
        step = F.optim.SGD(conv.parameters(), lr=0.0, momentum=0.9)  # the order changes, the values do not
        stop, wrong = threading.Event(), []

        def read(conv=conv, stop=stop, wrong=wrong, expected=expected):
            while not stop.is_set():
                with F.no_grad():
                    y = conv(x).numpy()
                if not np.allclose(y, expected, atol=1e-4):
                    wrong.append(np.abs(y - expected).max())

        readers = [threading.Thread(target=read) for _ in range(2)]
        for t in readers:
            t.start()
        for _ in range(3):
            conv(x).sum().backward()
            step.step()
            step.zero_grad()
            conv.weight.detach().numpy()  # plain again, so that the next step packs once more
        stop.set()
        for t in readers:
            t.join()
        assert not wrong


def test_no_step_is_lost_where_another_thread_restores_the_weight():
    def train(conv, meanwhile):
        step = F.optim.SGD(conv.parameters(), lr=1.0, momentum=0.9)
        stop = threading.Event()

        def read():
            while not stop.is_set():
                meanwhile(conv.weight.detach())

        readers = [threading.Thread(target=read) for _ in range(2)]
        for t in readers:
            t.start()
        for _ in range(6):
            conv(x).square().mean().backward()
            step.step()
            step.zero_grad()
        stop.set()
        for t in readers:
            t.join()
        return conv.weight.detach().numpy()

    x = F.randn(2, 64, 12, 12)
    for _ in range(10):
        conv = nn.Conv2d(64, 64, 3, padding=1)
        other = copy.deepcopy(conv)
        start = conv.weight.detach().clone().numpy()
        expected = train(conv, lambda w: threading.Event().wait(0.001))
        got = train(other, lambda w: w.sum())  # whose memory is in the logical layout
        assert np.abs(expected - start).max() > 0.01
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_joined_images_stay_channels_last():
    a, b = (F.randn(2, c, 5, 6).contiguous(memory_format=F.channels_last) for c in (3, 8))
    y = F.cat([a, b], 1)
    assert y.stride() == (330, 1, 66, 11)
    np.testing.assert_array_equal(y.numpy(), np.concatenate([a.numpy(), b.numpy()], 1))
    assert F.cat([a, a], 0).stride() == a.stride() and F.cat([a, a], 2).stride() == (180, 1, 18, 3)
    assert F.cat([a, a.double()], 1).stride() == (180, 1, 36, 6)
    assert F.cat([a, b.contiguous()], 1).is_contiguous() and F.cat([a.contiguous(), b], 1).is_contiguous()
    assert F.cat([a, F.empty(0)], 1).is_contiguous() and F.cat([F.empty(0), a], 1).is_contiguous()
    one = F.randn(2, 1, 4, 5)  # either format: plain
    assert F.cat([one, one], 1).is_contiguous()
    assert F.cat([a[:, :1], a[:, :1]], 1).stride() == (60, 1, 12, 2)
    volume = F.randn(2, 4, 5, 6, 3).permute(0, 4, 1, 2, 3)
    assert F.cat([volume, volume], 1).stride() == (720, 1, 180, 36, 6)
    out = F.empty(2, 11, 5, 6)
    assert F.cat([a, b], 1, out=out).is_contiguous() and (out == y).all()
    x, w = a.clone().requires_grad_(), F.randn(2, 11, 5, 6)
    (F.cat([x, b], 1) * w).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), w[:, :3].numpy())


def test_joined_hidden_images_are_hidden():
    parts = [images(2, 3, 4, 5), images(2, 8, 4, 5)]
    for dim, pair in [(1, parts), (0, parts[:1] * 2), (-1, parts[1:] * 2)]:
        before = C.layout_counts()
        y = F.cat(pair, dim)
        assert y.is_contiguous() and C.physical_order(y) == NHWC
        assert C.layout_counts()["restored"] == before["restored"]
        np.testing.assert_array_equal(
            y.clone().numpy(), np.concatenate([p.clone().numpy() for p in pair], dim)
        )


def test_what_is_like_a_tensor_keeps_its_strides():
    """Strides as PyTorch gives them."""
    x = F.randn(2, 3, 4, 5).contiguous(memory_format=F.channels_last)
    turned, gaps = F.randn(2, 3, 4).permute(1, 2, 0), F.randn(4, 6)[:, ::2]
    like = [F.rand_like, F.randn_like, F.empty_like, F.zeros_like, lambda t: F.randint_like(t, 5)]
    for f in like:
        assert f(x).stride() == (60, 1, 15, 3)
        assert f(turned).stride() == (4, 1, 12)
        assert f(gaps).stride() == (3, 1)
    y = F.nn.functional.dropout(x, 0.5)
    assert y.stride() == x.stride()
    r = F.randn_like(F.empty(64, 64, 8, 8).contiguous(memory_format=F.channels_last))
    assert abs(r.mean().item()) < 0.02 and abs(r.std().item() - 1) < 0.02 and not r._is_view()


# What PyTorch 2.13 shows for images `a` in channels_last and `turned`, dense with permuted dimensions.
RESULT_STRIDES = {
    "F.zeros_like(a, memory_format=F.contiguous_format)": (60, 20, 5, 1),
    "F.ones_like(a, memory_format=F.contiguous_format)": (60, 20, 5, 1),
    "F.full_like(a, 2, memory_format=F.contiguous_format)": (60, 20, 5, 1),
    "F.empty_like(a, memory_format=F.contiguous_format)": (60, 20, 5, 1),
    "F.rand_like(a, memory_format=F.contiguous_format)": (60, 20, 5, 1),
    "F.randn_like(a.contiguous(), memory_format=F.channels_last)": (60, 1, 15, 3),
    "F.randint_like(a.contiguous(), 5, memory_format=F.channels_last)": (60, 1, 15, 3),
    "F.zeros_like(a.contiguous(), memory_format=F.channels_last)": (60, 1, 15, 3),
    "F.full_like(turned, 2)": (1, 20, 5),
    "F.cat([a, a], 1)": (120, 1, 30, 6),
    "F.cat([a, a.contiguous()], 1)": (120, 20, 5, 1),
    "F.cat([a, a], 3)": (120, 1, 30, 3),
    "F.stack([a, a])": (120, 60, 1, 15, 3),
    "F.stack([a, a], 1)": (120, 3, 1, 30, 6),
    "F.stack([a, a], -1)": (120, 40, 10, 2, 1),
    "F.stack([turned, turned])": (60, 12, 4, 1),
    'fn.pad(a, (1, 1, 1, 1), mode="reflect")': (126, 1, 21, 3),
    'fn.pad(a, (1, 1, 1, 1), mode="replicate")': (126, 1, 21, 3),
    'fn.pad(a, (1, 1, 1, 1), mode="circular")': (126, 42, 7, 1),
    "fn.pad(a, (1, 1))": (84, 1, 21, 3),
    "fn.pixel_shuffle(F.cat([a] * 4, 1), 2)": (240, 1, 30, 3),
    "fn.pixel_unshuffle(F.cat([a, a], 3), 2)": (120, 1, 60, 12),
    "fn.max_pool2d(a, 2)": (12, 1, 6, 3),
    "fn.avg_pool2d(a, 2)": (12, 1, 6, 3),
    "fn.adaptive_avg_pool2d(a, 2)": (12, 1, 6, 3),
    "a.flip(1)": (60, 1, 15, 3),
    "turned.flip(0)": (1, 20, 5),
    "a.roll(1, 1)": (60, 1, 15, 3),
    "a.sort(1)[0]": (60, 1, 15, 3),
    "a.sort(1)[1]": (60, 1, 15, 3),
    "turned.sort(0)[0]": (1, 20, 5),
    "turned.index_fill(0, F.tensor([0]), 1.0)": (1, 20, 5),
    "turned.cumsum(0)": (12, 4, 1),
    "turned.clone()": (1, 20, 5),
    "turned.gather(0, F.zeros(5, 3, 4, dtype=F.int64))": (12, 4, 1),
    "a.index_select(1, F.tensor([0, 1]))": (40, 20, 5, 1),
    "a.sum(1, keepdim=True)": (20, 20, 5, 1),
    "a.mean((2, 3), keepdim=True)": (3, 1, 1, 1),
    "fn.conv2d(a, F.ones(4, 3, 3, 3))": (24, 1, 12, 4),
    "fn.channel_shuffle(a, 3)": (60, 1, 15, 3),
    "fn.glu(F.cat([a, a], 1), 1)": (60, 1, 15, 3),
    "a.repeat(1, 2, 1, 1)": (120, 20, 5, 1),
}


@pytest.mark.parametrize("call", RESULT_STRIDES)
def test_results_show_the_strides_that_pytorch_shows(call):
    a = F.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=F.channels_last)
    turned = F.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1)
    names = {"F": F, "fn": nn.functional, "a": a, "turned": turned}
    got = eval(call, names)
    assert got.stride() == RESULT_STRIDES[call]
    if "rand" not in call and "empty" not in call:
        names |= {"a": a.contiguous(), "turned": turned.contiguous()}
        assert F.equal(got, eval(call, names))


def test_explicit_channels_last_stays_visible():
    x = F.randn(2, 3, 8, 8).contiguous(memory_format=F.channels_last)
    y = F.max_pool2d(F.relu(F.conv2d(x, F.randn(4, 3, 3, 3))), 2)
    assert y.is_contiguous(memory_format=F.channels_last) and C.physical_order(y) is None
    x = x.contiguous()
    y = F.max_pool2d(F.relu(F.conv2d(x, F.randn(4, 3, 3, 3))), 2)
    assert y.is_contiguous() and C.physical_order(y) == NHWC


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def train(dtype, steps):
    F.manual_seed(0)
    net = Net()
    net.to(dtype)
    optimizer = F.optim.AdamW(net.parameters(), lr=1e-2)
    x = (F.arange(8 * 3 * 16 * 16) * 7919 % 1009).reshape(8, 3, 16, 16).to(dtype) / 500 - 1
    t = F.arange(8) % 5
    losses, counts = [], []
    for _ in range(steps):
        before = C.layout_counts()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), t)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after = C.layout_counts()
        counts.append({k: after[k] - before[k] for k in after})
    return losses, counts, net


def test_a_network_learns_the_same_in_hidden_layouts():
    hidden, counts, net = train(F.float32, 12)
    plain, no_counts, _ = train(F.float64, 12)
    assert counts[-1]["physical"] > 5 and no_counts[-1] == {"physical": 0, "restored": 0, "reordered": 0}
    np.testing.assert_allclose(hidden, plain, rtol=2e-3)
    assert train(F.float32, 12)[0] == hidden  # bit for bit
    assert all(p.is_contiguous() and p.grad.is_contiguous() for p in net.parameters())


def test_activations_are_never_restored_in_a_training_step():
    _, counts, _ = train(F.float32, 3)
    assert counts[-1]["restored"] == 0


@pytest.fixture(params=[F.contiguous_format, F.channels_last], ids=str)
def memory_format(request):
    return request.param


def packed(memory_format, step=True):
    """A convolution that was trained one step: weight, gradient and state lie in a library's packed form."""
    F.manual_seed(0)
    conv = nn.Conv2d(16, 32, 3, padding=1).to(memory_format=memory_format)
    optimizer = F.optim.AdamW(conv.parameters(), lr=1e-2)
    before = conv.weight.detach().clone()
    conv(F.randn(2, 16, 8, 8)).square().mean().backward()
    if step:
        optimizer.step()
    return conv, optimizer, before


def test_weights_gradients_and_state_stay_packed(memory_format):
    conv, optimizer, _ = packed(memory_format)
    state = optimizer.state[conv.weight]
    values = [conv.weight, conv.weight.grad, state["exp_avg"], state["exp_avg_sq"]]
    if C.physical_order(conv.weight.grad) is None:
        pytest.skip("the library chose no packed form on this processor")
    x = C.in_physical_order(F.randn(2, 16, 8, 8), NHWC)
    for _ in range(3):
        orders = {C.physical_order(v) for v in values}
        assert (
            len(orders) == 1
            and None not in orders
            and all(v.is_contiguous(memory_format=memory_format) for v in values)
        )
        before = C.layout_counts()
        optimizer.zero_grad(set_to_none=False)
        y = conv(x)
        (y * y).backward(y.detach())
        optimizer.step()
        after = C.layout_counts()
        assert (after["restored"], after["reordered"]) == (before["restored"], before["reordered"])


def test_a_packed_step_is_that_of_plain_memory(memory_format):
    conv, optimizer, before = packed(memory_format, step=False)
    g = F.tensor(conv.weight.grad.tolist())  # restores
    bias_gradient = conv.bias.grad.clone()
    plain = nn.Conv2d(16, 32, 3, padding=1)  # row-major
    plain.weight.data.copy_(before)
    plain.bias.data.copy_(conv.bias.detach())
    plain.weight.grad, plain.bias.grad = g, bias_gradient
    again, other, _ = packed(memory_format, step=False)  # not restored
    other.step()
    F.optim.AdamW(plain.parameters(), lr=1e-2).step()
    assert again.weight.tolist() == plain.weight.tolist()


def test_elementwise_operators_work_on_packed_memory(memory_format):
    conv, _, _ = packed(memory_format)
    w = conv.weight.detach()
    order = C.physical_order(w)
    a = [F.relu(w) * 2 + w, w.double(), w > 0, w.clone().add_(1), F.zeros_like(w), F.where(w > 0, w, -w)]
    b = np.array(copy.deepcopy(w).tolist(), dtype=np.float32)
    assert [C.physical_order(t) for t in a[:3]] == [order] * 3 or order is None
    for got, want in zip(
        a, [np.maximum(b, 0) * 2 + b, b.astype(np.float64), b > 0, b + 1, b * 0, np.abs(b)], strict=True
    ):
        np.testing.assert_array_equal(np.array(got.tolist(), dtype=want.dtype), want)


def test_other_operators_see_packed_memory_as_plain(memory_format):
    conv, _, _ = packed(memory_format)
    w = conv.weight.detach()
    copies = [
        w.sum(),
        w[3:5, 1].flatten(),
        w + w[:1],
        w.permute(2, 3, 1, 0).reshape(-1),
        w.reshape(32, 144) @ F.ones(144),
        w.amax((1, 2, 3)),
    ]
    b = np.array(w.tolist())
    wanted = [
        b.sum(),
        b[3:5, 1].ravel(),
        b + b[:1],
        b.transpose(2, 3, 1, 0).ravel(),
        b.reshape(32, 144).sum(1),
        b.max((1, 2, 3)),
    ]
    for got, want in zip(copies, wanted, strict=True):
        np.testing.assert_allclose(np.array(got.tolist()), want, rtol=1e-5, atol=1e-5)


def test_weights_learn_the_same_in_both_formats():
    weights = []
    for memory_format in (F.contiguous_format, F.channels_last):
        conv, optimizer, _ = packed(memory_format)
        images = F.randn(2, 16, 8, 8).to(memory_format=memory_format)
        for _ in range(3):
            optimizer.zero_grad()
            conv(images).square().mean().backward()
            optimizer.step()
        assert conv.weight.grad.stride() == conv.weight.stride()
        weights.append(conv.weight.detach().numpy())
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-4, atol=1e-6)


def test_gradients_in_channels_last_sum_over_steps():
    nets = [packed(f, step=False)[0] for f in (F.contiguous_format, F.channels_last)]
    for net in nets:
        net(F.arange(2048.0).reshape(2, 16, 8, 8) / 1000).sum().backward()
    np.testing.assert_array_equal(nets[0].weight.grad.numpy(), nets[1].weight.grad.numpy())
    assert nets[1].weight.grad.is_contiguous(memory_format=F.channels_last)


def test_memory_whose_address_is_known_is_never_moved(memory_format):
    conv, optimizer, _ = packed(memory_format, step=False)
    a = conv.weight.detach().numpy()
    for _ in range(3):
        optimizer.step()
        assert C.physical_order(conv.weight) is None and (a == conv.weight.detach().numpy()).all()
    a[:] = 1
    assert (conv.weight == 1).all().item()


def test_state_dicts_and_optimizers_survive_packed_weights(memory_format):
    conv, optimizer, _ = packed(memory_format)
    saved = pickle.loads(pickle.dumps((conv.state_dict(), optimizer.state_dict())))
    fresh = nn.Conv2d(16, 32, 3, padding=1)
    fresh.load_state_dict(saved[0])
    other = F.optim.AdamW(fresh.parameters(), lr=1e-2)
    other.load_state_dict(saved[1])
    x = F.randn(2, 16, 8, 8)
    for net, opt in ((conv, optimizer), (fresh, other)):
        opt.zero_grad()
        net(x).square().mean().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
    # The library may convolve each format by an algorithm that rounds otherwise: a millionth of a step.
    np.testing.assert_allclose(
        conv.weight.detach().numpy(), fresh.weight.detach().numpy(), rtol=1e-6, atol=1e-6 * 1e-2
    )


@pytest.mark.parametrize("dtype", [F.float32, F.float64, F.bfloat16], ids=str)
def test_what_pytorch_gives_row_by_row_can_be_viewed(dtype):
    """Of operands in another order; and those that have channels last keep them where PyTorch's do."""
    F.manual_seed(0)
    rows = {
        "softmax": lambda x: nn.functional.softmax(x, 1),
        "log_softmax": lambda x: nn.functional.log_softmax(x, -1),
        "layer_norm": lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
        "kthvalue": lambda x: x.kthvalue(2, 1)[0],
        "median": lambda x: x.median(1, keepdim=True)[0],
    }
    channels = {
        "group_norm": lambda x: nn.functional.group_norm(x, 1),
        "batch_norm": lambda x: nn.functional.batch_norm(x, None, None, training=True),
        "batch_norm of given": lambda x: nn.functional.batch_norm(
            x, *(f(x.shape[1], dtype=dtype) for f in (F.zeros, F.ones))
        ),
    }
    swapped = F.randn(7, 3, 5).to(dtype).transpose(0, 2)
    last = F.randn(2, 4, 6, 5).to(dtype).contiguous(memory_format=F.channels_last)
    for name, f in {**rows, **channels}.items():
        for x in (swapped, last):
            kept = x is last and name in channels
            x, y = (t.detach().requires_grad_() for t in (x, x.contiguous()))
            result, expected = f(x), f(y)
            assert result.is_contiguous(memory_format=F.channels_last if kept else F.contiguous_format)
            gradient = F.randn(result.shape).to(dtype)
            result.backward(gradient)
            expected.backward(gradient)
            bound = {"rtol": 2e-2, "atol": 1e-2} if dtype == F.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
            assert F.allclose(result, expected, **bound), name
            assert F.allclose(x.grad, y.grad, **bound), name
    assert nn.functional.one_hot(F.tensor([[0, 1, 2], [2, 1, 0]]).t()).view(-1).sum() == 6


# What PyTorch 2.13 shows for volumes of shape [2, 3, 4, 5, 6] in channels_last_3d.
VOLUMES = (360, 1, 90, 18, 3)
OF_VOLUMES = {
    "a.clone()": VOLUMES,
    "a + 1": VOLUMES,
    "a.double()": VOLUMES,
    "F.empty_like(a)": VOLUMES,
    "F.randn_like(a)": VOLUMES,
    "a.contiguous()": (360, 120, 30, 6, 1),
    "a.contiguous().clone(memory_format=F.channels_last_3d)": VOLUMES,
    "a.contiguous().to(memory_format=F.channels_last_3d)": VOLUMES,
    "a.contiguous().half(memory_format=F.channels_last_3d)": VOLUMES,
    "F.zeros_like(a.contiguous(), memory_format=F.channels_last_3d)": VOLUMES,
    "F.empty(2, 3, 4, 5, 6, memory_format=F.channels_last_3d)": VOLUMES,
    "F.empty(0).resize_(2, 3, 4, 5, 6, memory_format=F.channels_last_3d)": VOLUMES,
    "F.cat([a, a], 1)": (720, 1, 180, 36, 6),
    "f.pad(a, (1, 1))": (480, 1, 120, 24, 3),
    "f.interpolate(a, scale_factor=2, mode='trilinear')": (2880, 1, 360, 36, 3),
    "f.conv3d(a, W)": (240, 1, 80, 20, 4),
    "f.conv3d(a.contiguous(), W.contiguous(memory_format=F.channels_last_3d))": (240, 1, 80, 20, 4),
    "f.conv3d(a.contiguous(), W)": (240, 60, 20, 5, 1),
    "f.conv3d(a, W[:3, :1], padding='same', groups=3)": VOLUMES,
    "f.conv_transpose3d(a, W.transpose(0, 1))": (840, 1, 168, 28, 4),
    "f.max_pool3d(a, 2)": (36, 1, 18, 9, 3),
    "f.max_pool3d(a, 2, return_indices=True)[1]": (36, 1, 18, 9, 3),
    "f.avg_pool3d(a, 2)": (36, 12, 6, 3, 1),
    "nn.BatchNorm3d(3)(a)": VOLUMES,
    "nn.GroupNorm(3, 3)(a)": VOLUMES,
}


@pytest.mark.parametrize("call", OF_VOLUMES)
def test_volumes_have_the_strides_of_pytorch_in_channels_last_3d(call):
    plain = F.randn(2, 3, 4, 5, 6)
    a = plain.contiguous(memory_format=F.channels_last_3d)
    assert a.stride() == VOLUMES and F.equal(a, plain)
    weight = F.linspace(-1, 1, 96).view(4, 3, 2, 2, 2)
    names = {"F": F, "nn": nn, "f": nn.functional, "W": weight}
    F.manual_seed(0)
    result = eval(call, {**names, "a": a})
    assert result.stride() == OF_VOLUMES[call]
    if "empty" not in call and "randn" not in call:
        F.manual_seed(0)
        expected = eval(call, {**names, "a": plain})
        F.testing.assert_close(result, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("f", ["conv3d(x, w, stride=2)", "conv_transpose3d(x, w)", "max_pool3d(x, 2)"])
def test_gradients_of_volumes_in_channels_last_3d_are_those_of_contiguous_ones(f):
    plain, w = F.randn(2, 3, 4, 5, 6), F.randn(3, 3, 2, 2, 2)
    gradients = []
    for form in (F.contiguous_format, F.channels_last_3d):
        x = plain.clone(memory_format=form).requires_grad_()
        y = eval("nn.functional." + f, {"nn": nn, "x": x, "w": w})
        (y * F.arange(float(y.numel())).view(y.shape)).sum().backward()
        gradients.append(x.grad)
    F.testing.assert_close(*gradients, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("name", "rank"), [("channels_last", 4), ("channels_last_3d", 5)])
def test_a_format_with_channels_last_fits_one_rank(name, rank):
    form = getattr(F, name)
    assert repr(form) == f"facula.{name}" and pickle.loads(pickle.dumps(form)) is form
    for other in (3, 4, 5):
        x = F.randn(*[2] * other)
        assert not x.is_contiguous(memory_format=form)
        makers = [
            lambda: x.contiguous(memory_format=form),
            lambda: x.clone(memory_format=form),
            lambda: x.to(memory_format=form),
            lambda: F.empty(x.shape, memory_format=form),
            lambda: F.empty(0).resize_(x.shape, memory_format=form),
        ]
        for make in makers:
            if other == rank:
                assert make().is_contiguous(memory_format=form)
                continue
            with pytest.raises(RuntimeError, match=rf"{name} requires a tensor of rank {rank} .*got shape"):
                make()


def test_a_module_moves_weights_of_volumes_to_channels_last_3d():
    m = nn.Sequential(nn.Conv3d(2, 3, 2), nn.Flatten(), nn.Linear(3, 1)).to(memory_format=F.channels_last_3d)
    assert m[0].weight.is_contiguous(memory_format=F.channels_last_3d) and m[2].weight.is_contiguous()
    with pytest.raises(RuntimeError, match="rank 5"):
        nn.Conv2d(2, 2, 2).to(memory_format=F.channels_last_3d)
    with pytest.raises(RuntimeError, match="rank 4"):
        nn.Conv3d(2, 2, 2).to(memory_format=F.channels_last)
