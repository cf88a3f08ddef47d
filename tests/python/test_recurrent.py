"""Layers over sequences: all steps by one call or step by step, whatever asks for their gradients."""

import gc
import weakref

import numpy as np
import pytest

import facula
from facula import nn

LAYERS = [
    lambda: nn.LSTM(2, 3),
    lambda: nn.LSTM(2, 3, num_layers=2, bidirectional=True, bias=False),
    lambda: nn.LSTM(2, 3, proj_size=2, bidirectional=True),
    lambda: nn.GRU(2, 3, bidirectional=True),
    lambda: nn.RNN(2, 3, bidirectional=True),
    lambda: nn.RNN(2, 3, nonlinearity="relu"),
]


def sequences(packed, steps=4):
    x = facula.randn(steps, 3, 2, dtype=facula.float64)
    lengths = [steps, max(steps - 1, 1), 1]
    return nn.utils.rnn.pack_padded_sequence(x, lengths) if packed else x


def computed(make, packed, steps=4):
    """A function of all parameters of a layer, and what they are."""
    facula.manual_seed(0)
    layer, x = make().double(), sequences(packed, steps)
    names = [name for name, _ in layer.named_parameters()]

    def f(*values):
        y, states = facula.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))
        states = states if isinstance(states, tuple) else (states,)
        return y.data if packed else y, *states

    return f, tuple(layer.parameters())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("make", LAYERS)
def test_gradients_and_their_gradients_agree_with_finite_differences(make, packed):
    f, parameters = computed(make, packed)
    assert facula.autograd.gradcheck(f, parameters)
    assert facula.autograd.gradgradcheck(f, parameters)


@pytest.mark.parametrize("make", LAYERS)
def test_a_sequence_of_one_step_has_the_gradients_of_finite_differences(make):
    f, parameters = computed(make, False, steps=1)
    assert facula.autograd.gradcheck(f, parameters)


def loss(layer, x, h):
    y, _ = layer(x, h)
    return (y * y).sum()


def given(steps=5):
    facula.manual_seed(1)
    layer = nn.LSTM(2, 3)
    h = tuple(facula.randn(1, 2, 3, requires_grad=True) for _ in range(2))
    return layer, facula.randn(steps, 2, 2, requires_grad=True), h


def test_a_second_backward_of_a_kept_graph_adds_the_same_gradients():
    layer, x, h = given()
    y = loss(layer, x, h)
    y.backward(retain_graph=True)
    first = [p.grad.clone() for p in layer.parameters()]
    y.backward()
    for p, once in zip(layer.parameters(), first, strict=True):
        assert (p.grad == once + once).all()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_a_graph_of_the_gradient_gives_the_same_gradient():
    layer, x, h = given()
    wanted = [*layer.parameters(), x, *h]
    plain = facula.autograd.grad(loss(layer, x, h), wanted)
    again = facula.autograd.grad(loss(layer, x, h), wanted, create_graph=True)
    for a, b in zip(plain, again, strict=True):
        assert b.requires_grad
        facula.testing.assert_close(a, b)


def test_only_the_steps_that_reach_the_loss_count():
    layer, x, h = given()
    layer(x, h)[0][:2].sum().backward()
    gradients = [p.grad for p in layer.parameters()]
    short = facula.autograd.grad(layer(x[:2], h)[0].sum(), list(layer.parameters()))
    for a, b in zip(gradients, short, strict=True):
        facula.testing.assert_close(a, b)


def test_frozen_weights_get_no_gradient_and_the_others_theirs():
    layer, x, h = given()
    expected = facula.autograd.grad(loss(layer, x, h), [layer.weight_ih_l0, layer.bias_hh_l0, x])
    layer.weight_hh_l0.requires_grad_(False)
    found = facula.autograd.grad(loss(layer, x, h), [layer.weight_ih_l0, layer.bias_hh_l0, x])
    for a, b in zip(found, expected, strict=True):
        facula.testing.assert_close(a, b)


def test_a_state_that_was_written_to_before_backward_raises():
    layer, x, _ = given()
    h = tuple(facula.zeros(1, 2, 3) for _ in range(2))
    y = loss(layer, x, h)
    h[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_hooks_on_what_is_saved_see_the_states_of_all_steps():
    layer, x, h = given()
    expected = facula.autograd.grad(loss(layer, x, h), list(layer.parameters()))
    with facula.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), facula.from_numpy):
        y = loss(layer, x, h)
    for a, b in zip(facula.autograd.grad(y, list(layer.parameters())), expected, strict=True):
        facula.testing.assert_close(a, b)


def test_a_graph_that_is_dropped_frees_what_it_saved_without_the_garbage_collector():
    class Box:
        def __init__(self, t):
            self.t = t

    alive = weakref.WeakSet()

    def pack(t):
        box = Box(t)
        alive.add(box)
        return box

    layer, x, h = given()
    with facula.autograd.graph.saved_tensors_hooks(pack, lambda box: box.t):
        y = layer(x, h)[0]
    assert len(alive) > 5
    gc.disable()
    try:
        del y
        assert len(alive) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("biases", [([12], [1]), ([1], [12]), ([12], [3])])
def test_biases_of_a_wrong_size_are_refused(biases):
    a, b = (facula.zeros(*n) for n in biases)
    with pytest.raises(RuntimeError, match="bias"):
        facula.lstm(
            facula.ones(3, 2, 4),
            [facula.zeros(1, 2, 3)] * 2,
            [facula.zeros(12, 4), facula.zeros(12, 3), a, b],
            *(True, 1, 0.0, False, False, False),
        )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_numpy(kind, x, h, c, weights):
    """One direction of a layer over [steps, batch, features], by its equations."""
    w_ih, w_hh, b_ih, b_hh, *w_hr = weights
    outputs = []
    for row in x:
        of_input, of_state = row @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        if kind == "LSTM":
            i, f, g, o = np.split(of_input + of_state, 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif kind == "GRU":
            (r, z, n), (hr, hz, hn) = np.split(of_input, 3, axis=-1), np.split(of_state, 3, axis=-1)
            z = sigmoid(z + hz)
            h = (1 - z) * np.tanh(n + sigmoid(r + hr) * hn) + z * h
        else:
            h = np.tanh(of_input + of_state)
        h = h @ w_hr[0].T if w_hr else h
        outputs.append(h)
    return np.stack(outputs), h, c


# Units that fill vectors or do not, sequences that fill blocks or do not.
SIZES = [(1, 1), (3, 2), (16, 5), (20, 7), (32, 8), (33, 1), (48, 3), (64, 13)]


@pytest.mark.parametrize("units, batch", SIZES)
@pytest.mark.parametrize("kind, projected", [("LSTM", 0), ("LSTM", 1), ("GRU", 0), ("RNN", 0)])
def test_values_are_those_of_the_equations(kind, projected, units, batch):
    if projected and units == 1:
        pytest.skip("a projection is smaller than what it projects")
    facula.manual_seed(0)
    more = {"proj_size": units // 2 + 1 if units > 3 else 1} if projected else {}
    layer = getattr(nn, kind)(5, units, dtype=facula.float64, **more)
    x, h = facula.randn(6, batch, 5).double(), facula.randn(1, batch, more.get("proj_size", units)).double()
    c = facula.randn(1, batch, units).double()
    y, states = layer(x, (h, c) if kind == "LSTM" else h)
    weights = [p.detach().numpy() for p in layer.parameters()]
    expected = by_numpy(kind, x.numpy(), h[0].numpy(), c[0].numpy(), weights)
    found = [y, *((s[0] for s in states) if kind == "LSTM" else states)]
    for a, b in zip(found, expected, strict=False):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype, bound", [(facula.float32, 1e-5), (facula.float64, 1e-13)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("units, batch", SIZES)
@pytest.mark.parametrize("make", ["LSTM", "projected", "GRU", "RNN", "relu", "no bias"])
def test_gradients_by_one_call_are_those_step_by_step(make, units, batch, packed, dtype, bound):
    if make == "projected" and units == 1:
        pytest.skip("a projection is smaller than what it projects")
    facula.manual_seed(0)
    more = {
        "projected": {"proj_size": max(1, units // 2)},
        "relu": {"nonlinearity": "relu"},
        "no bias": {"bias": False},
    }
    kind = {"projected": "LSTM", "relu": "RNN", "no bias": "GRU"}.get(make, make)
    layer = getattr(nn, kind)(5, units, bidirectional=True, dtype=dtype, **more.get(make, {}))
    x = facula.randn(6, batch, 5, dtype=dtype, requires_grad=True)
    size = more.get(make, {}).get("proj_size", units)
    hx = [facula.randn(2, batch, n, dtype=dtype, requires_grad=True) for n in (size, units)]
    states = tuple(hx) if kind == "LSTM" else hx[0]
    lengths = sorted((6 - 5 * k // batch for k in range(batch)), reverse=True)

    def gradients(again):
        given = nn.utils.rnn.pack_padded_sequence(x, lengths) if packed else x
        y, last = layer(given, states)
        y = y.data if packed else y
        loss = (y * y.cos()).sum() + sum((s * s).sum() for s in (last if kind == "LSTM" else [last]))
        wanted = [x, *(hx if kind == "LSTM" else hx[:1]), *layer.parameters()]
        return facula.autograd.grad(loss, wanted, create_graph=again)

    for a, b in zip(gradients(False), gradients(True), strict=True):
        scale = b.abs().max().clamp(min=1e-3)
        assert (a - b).abs().max() <= bound * scale


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_bits_are_the_same_for_any_number_of_threads_and_in_any_company(kind):
    facula.manual_seed(0)
    layer, x = getattr(nn, kind)(24, 40), facula.randn(30, 37, 24)
    threads = facula.get_num_threads()

    def results(x):
        layer.zero_grad()
        y = layer(x)[0]
        y.square().sum().backward()
        return y.detach(), [p.grad.clone() for p in layer.parameters()]

    try:
        facula.set_num_threads(1)
        y, gradients = results(x)
        for n in (2, 3, 7):
            facula.set_num_threads(n)
            again, others = results(x)
            assert facula.equal(again, y)
            assert all(facula.equal(a, b) for a, b in zip(others, gradients, strict=True))
    finally:
        facula.set_num_threads(threads)
    given = facula.nn.functional.linear(x, layer.weight_ih_l0)
    alone = facula.nn.functional.linear(x[:, 5:6], layer.weight_ih_l0)
    if facula.equal(given[:, 5:6], alone):  # the product of the input is a library's
        assert facula.equal(layer(x[:, 5:6])[0], y[:, 5:6])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_without_gradients_the_bits_are_the_same(kind):
    facula.manual_seed(0)
    layer, x = getattr(nn, kind)(3, 20, num_layers=2, bidirectional=True), facula.randn(5, 6, 3)
    y = layer(x)[0]
    with facula.no_grad():
        assert facula.equal(layer(x)[0], y)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
def test_what_is_not_finite_stays_in_its_sequence_and_goes_where_the_equations_say(kind, value):
    facula.manual_seed(0)
    layer, x = getattr(nn, kind)(3, 5, dtype=facula.float64), facula.randn(4, 3, 3).double()
    x[1, 1, 2] = value
    x.requires_grad_()
    y = layer(x)[0]
    weights = [p.detach().numpy() for p in layer.parameters()]
    zeros = np.zeros((3, 5))
    with np.errstate(all="ignore"):
        expected = by_numpy(kind, x.detach().numpy(), zeros, zeros, weights)[0]
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-13)
    (g,) = facula.autograd.grad(y.sum(), x)
    (steps,) = facula.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
    assert facula.isfinite(g[:, [0, 2]]).all()
    facula.testing.assert_close(g, steps.detach(), equal_nan=True)


def test_operands_of_any_strides_are_read_where_they_are():
    facula.manual_seed(0)
    layer = nn.LSTM(4, 6, batch_first=True)
    x, h = facula.randn(3, 5, 4), facula.randn(1, 1, 6)
    expected = layer(x, (h.repeat(1, 3, 1), h.repeat(1, 3, 1)))[0]
    h = h.expand(1, 3, 6)
    for name, p in list(layer.named_parameters()):
        if p.dim() == 2:
            layer._parameters[name] = nn.Parameter(p.detach().t().contiguous().t())
    strided = facula.empty(4, 5, 3).permute(2, 1, 0).copy_(x)
    facula.testing.assert_close(layer(strided, (h, h))[0], expected, rtol=1e-5, atol=1e-6)


def test_a_bias_that_both_products_share_gets_both_gradients():
    facula.manual_seed(0)
    layer, x = nn.LSTM(2, 3), facula.randn(4, 2, 2)
    layer(x)[0].sum().backward()
    a, b = layer.bias_ih_l0.grad, layer.bias_hh_l0.grad
    assert facula.equal(a, b)
    a.zero_()
    assert (b != 0).any()


def test_products_are_counted_although_one_call_makes_them():
    from facula.utils.flop_counter import FlopCounterMode

    x = facula.randn(5, 3, 8)
    for layer, weights in (
        (nn.GRU(8, 16), 48 * (8 + 16)),
        (nn.LSTM(8, 16, proj_size=4), 64 * (8 + 4) + 4 * 16),
    ):
        with FlopCounterMode(display=False) as counted:
            y = layer(x)[0]
        assert counted.get_total_flops() == 2 * 5 * 3 * weights
        with FlopCounterMode(display=False) as counted:
            y.sum().backward()
        # Of the weights and of the states; x has no gradient.
        assert counted.get_total_flops() == 2 * 5 * 3 * (2 * weights - layer.weight_ih_l0.numel())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_outputs_may_be_written_to_before_backward(kind):
    facula.manual_seed(0)
    layer, x = getattr(nn, kind)(2, 3), facula.randn(4, 2, 2)
    mask = (facula.randn(4, 2, 3) > 0).float()
    expected = facula.autograd.grad((layer(x)[0] * mask).sum(), list(layer.parameters()))
    y = layer(x)[0]
    y.mul_(mask)
    for a, b in zip(facula.autograd.grad(y.sum(), list(layer.parameters())), expected, strict=True):
        facula.testing.assert_close(a, b)
