"""Sizes at the edges: more elements than 32 bits count, numbers that overflow, no elements at all, indices
outside.
"""

import os

import pytest
from support.bad_calls import empty_calls, environment

import facula as F

fn = F.nn.functional
x = F.arange(6.0).reshape(2, 3)
one = F.ones(1)
image, window = F.ones(1, 1, 4, 4), F.ones(1, 1, 2, 2)


@pytest.mark.skipif(
    os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 6 << 30, reason="needs 6 GiB"
)
def test_positions_beyond_32_bits_are_reached():
    n = 2**31 + 8
    x = F.zeros(n, dtype=F.int8)
    assert x[-1:].fill_(3).tolist() == [3] and x[-2].item() == 0
    x[2**31], x[7] = 5, 1
    far = F.tensor([n - 1, 2**31, -1 % n, 7])
    assert (
        x[far].tolist() == F.gather(x, 0, far).tolist() == F.index_select(x, 0, far).tolist() == [3, 5, 3, 1]
    )
    assert x.sum().item() == 9
    assert x.argmax().item() == 2**31 and x.max().item() == 5
    assert x[2**31 - 2 : 2**31 + 2].tolist() == [0, 0, 5, 0] and x[:: 2**30].tolist() == [0, 0, 5]
    assert x.view(-1, 8).sum(0).tolist() == [5, 0, 0, 0, 0, 0, 0, 4]
    assert x.view(8, -1).argmax(1).tolist()[-1] == 2**31 - 7 * (n // 8)
    assert x.add_(1)[far].tolist() == [4, 6, 4, 2]
    with pytest.raises(IndexError):
        x[F.tensor([n])]


TOO_LARGE = """
F.zeros(2**62)
F.empty(2**40, 2**40)
F.zeros(2**31, 2**31, 2**31)
one.expand(2**62)
one.expand(2**61, 4)
one.view(1, 1).expand(2**32, 2**32)
F.broadcast_to(x, (2**62, 2, 3))
F.meshgrid(one.expand(2**40), one.expand(2**40))
F.cartesian_prod(one.expand(2**40), one.expand(2**40))
F.arange(2**62)
F.arange(0, 1e300)
F.linspace(0, 1, 2**62)
F.eye(2**40)
F.full((2**62,), 1)
F.randperm(2**62)
F.randn(2**31, 2**31, 2**31)
x.repeat(2**62, 1)
x.repeat(2**62, 2**62)
x.tile((2**62, 2**62))
x.repeat_interleave(2**62)
F.cat([one.expand(2**59)] * 2)
F.stack([one.expand(2**59)] * 4)
fn.pad(x, (2**62, 2**62))
fn.conv2d(image, window, padding=2**62)
fn.conv2d(image, window, padding=2**31)
fn.conv2d(image, window, dilation=2**62)
fn.conv2d(image, window, dilation=2**62, padding=2**61)
fn.conv2d(image, window, groups=2**40)
fn.conv_transpose2d(image, window, stride=2**62)
fn.max_pool2d(image, 2**62)
fn.max_pool2d(image, 2, dilation=2**62)
fn.max_pool2d(image, 2, padding=2**62)
fn.adaptive_avg_pool2d(image, 2**40)
fn.one_hot(F.tensor([1]), 2**62)
F.as_strided(x, (2,), (2**62,))
F.as_strided(x, (2,), (1,), 2**63 - 1)
F.as_strided(x, (4, 4), (2**62, 2**62))
F.fft.fft(F.ones(4), n=2**62)
x.new_zeros(2**62)
x.view(2**62, -1)
x.reshape(2**32, 2**32)
""".strip().splitlines()


@pytest.mark.parametrize("call", TOO_LARGE)
def test_a_size_that_overflows_is_an_error(call):
    with pytest.raises(RuntimeError) as e:
        eval(call)
    assert "internal" not in str(e.value)


NEGATIVE = """
F.zeros(-1)
F.zeros(-2**63)
F.empty(3, -2)
F.full((-1,), 1)
F.eye(-1)
F.rand(-1)
F.randperm(-1)
F.linspace(0, 1, -1)
one.expand(-2)
x.repeat(-1, 1)
x.narrow(0, 0, -1)
x.unfold(0, -1, 1)
x.split(-1)
x.chunk(-1)
x.topk(-1)
x.view(-2)
x.as_strided((-2,), (1,))
x.as_strided((2,), (-1,))
fn.pad(x, (-5, 0))
fn.conv2d(image, window, padding=-1)
fn.conv2d(image, window, stride=-1)
fn.conv2d(image, window, dilation=-1)
fn.conv2d(image, window, groups=-1)
fn.max_pool2d(image, -1)
fn.avg_pool2d(image, 2, padding=-1)
fn.adaptive_avg_pool2d(image, -2)
F.repeat_interleave(F.tensor([-1]))
F.fft.fft(F.ones(4), n=-1)
""".strip().splitlines()


@pytest.mark.parametrize("call", NEGATIVE)
def test_a_negative_size_is_an_error(call):
    with pytest.raises((RuntimeError, ValueError, IndexError)) as e:
        eval(call)
    assert "internal" not in str(e.value)


def test_ends_and_steps_beyond_every_size_mean_the_rest():
    far = 2**63 - 1
    assert x[:, 1:far].shape == (2, 2) and x[far:].shape == (0, 3)
    assert x[:, ::far].tolist() == [[0.0], [3.0]] and x[::far].tolist() == [[0.0, 1.0, 2.0]]
    assert x[:, ::far].sum().item() == 3 and x[:, :: 3 << 61].clone().tolist() == [[0.0], [3.0]]
    assert x[0 : 2**70].shape == (2, 3)
    for i in (far, -far, 3 << 61, 2**62):
        with pytest.raises(IndexError):
            x[i]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("F.tensor(2**70)", ValueError),
        ("F.tensor([2**63])", ValueError),
        ("F.zeros(2**63)", TypeError),
        ("x.view(2**70)", TypeError),
        ("x.expand(2**70, 2, 3)", TypeError),
        ("x.narrow(0, 2**70, 1)", ValueError),
        ("x.topk(2**70)", ValueError),
        ("x[2**63]", ValueError),
        ("x + 2**70", OverflowError),
        ("F.full((2,), 2**70)", OverflowError),
        ("x.max(0.5)", TypeError),
        ("F.min(x, 1.0)", TypeError),
    ],
)
def test_numbers_beyond_64_bits_raise_what_pytorch_raises(call, kind):
    with pytest.raises(kind) as e:
        eval(call)
    assert type(e.value) is kind


PUBLIC = [o for o in F._C.operators() if not o["name"].startswith("_")]


@pytest.mark.parametrize("operator", PUBLIC, ids=lambda o: o["name"] + "." + o["overload"])
def test_no_elements_give_a_result_or_a_clear_error(operator):
    names = environment()
    for call in empty_calls(operator):
        if "from=" in call:  # no name of an argument in Python
            continue
        try:
            eval(call, names)
        except (RuntimeError, IndexError, ValueError, NotImplementedError, AssertionError) as e:
            assert "internal" not in str(e) and str(e), call


INDEX_OUTSIDE = """
F.gather(x, 1, F.tensor([[3], [0]]))
F.gather(x, 1, F.tensor([[-4], [0]]))
F.index_select(x, 0, F.tensor([2]))
x[F.tensor([0, 2])]
x[F.tensor([0]), F.tensor([3])]
x[F.tensor([2**62])]
x[F.tensor([-2**63])]
x.clone().index_put_((F.tensor([2]),), F.tensor(1.0))
x.clone().index_add_(0, F.tensor([2]), F.ones(1, 3))
x.clone().scatter_(1, F.tensor([[3]]), 1.0)
x.clone().scatter_(1, F.tensor([[-1]]), 1.0)
x.clone().scatter_add_(1, F.tensor([[2**40]]), F.ones(1, 1))
F.zeros(0, 3)[F.tensor([0])]
F.zeros(3, 0)[:, F.tensor([0])]
F.zeros(0).scatter(0, F.tensor([0]), 1.0)
fn.embedding(F.tensor([4]), F.ones(4, 2))
fn.embedding(F.tensor([0]), F.ones(0, 2))
fn.cross_entropy(F.ones(2, 3), F.tensor([0, 3]))
fn.cross_entropy(F.ones(2, 3), F.tensor([0, -1]))
fn.nll_loss(F.ones(2, 3), F.tensor([0, 5]))
""".strip().splitlines()


@pytest.mark.parametrize("call", INDEX_OUTSIDE)
def test_an_index_outside_is_an_error(call):
    with pytest.raises((IndexError, RuntimeError)) as e:
        eval(call)
    assert "internal" not in str(e.value)
