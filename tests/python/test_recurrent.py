"""Layers over sequences: gradients of their weights are one product for all steps, whatever asks for them."""

import gc
import weakref

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
