"""Inside one operator float16 and bfloat16 are computed as float32: a result is rounded once."""

import facula.nn.functional as F
import numpy as np
import pytest

import facula


def halves(*shape):
    return facula.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 3).to(
        facula.bfloat16
    )


CASES = {
    "softmax": lambda x: facula.softmax(x, 1),
    "softmax over columns": lambda x: facula.softmax(x, 0),
    "log_softmax": lambda x: facula.log_softmax(x, 1),
    "logsumexp": lambda x: facula.logsumexp(x, 1),
    "var": lambda x: facula.var(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (300,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "softplus": F.softplus,
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, facula.sigmoid(x).detach(), reduction="none"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_result_in_bfloat16_is_the_float32_result_rounded_once(name):
    f, x = CASES[name], halves(200, 300)
    want = (
        f(x.float())
        if "entropy" not in name
        else F.binary_cross_entropy_with_logits(x.float(), facula.sigmoid(x).float(), reduction="none")
    )
    got = f(x)
    assert got.dtype == facula.bfloat16
    error = (got.double() - want.double()).abs() / want.double().abs().clamp(min=1e-30)
    assert float(error.max()) <= 2.0**-8 * 1.001  # half a step of bfloat16


def steps_off(found, exact):
    """The largest distance from the exact number, in steps of float16."""
    exact = exact.detach().numpy().astype(np.float64)
    step = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    return np.max(np.abs(found.detach().double().numpy() - exact) / step)


@pytest.mark.parametrize("n", [2047, 2048, 2049])
def test_rows_of_every_length_are_rounded_once(n):
    x = halves(3, n)
    for f in (facula.softmax, facula.log_softmax):
        got, want = f(x, 1).double(), f(x.float(), 1).double()
        assert float(((got - want) / want).abs().max()) <= 2.0**-8 * 1.001
        leaf, wide = x.detach().requires_grad_(), x.double().requires_grad_()
        seed = halves(3, n)
        (got,) = facula.autograd.grad(f(leaf, 1), [leaf], seed)
        (want,) = facula.autograd.grad(f(wide, 1), [wide], seed.double())
        size = want.abs().clamp(min=want.abs().max().item() * 2.0**-12)
        assert float(((got.double() - want) / size).abs().max()) <= 2.0**-8 * 1.01


def test_a_bias_is_added_to_a_transposed_convolution_before_it_is_rounded():
    random = np.random.default_rng(1)
    given = [random.standard_normal(s).astype(np.float16) for s in ((4, 3, 20), (3, 5, 3), (5,))]
    half, wide = ([facula.from_numpy(x.astype(t)) for x in given] for t in (np.float16, np.float64))
    found, exact = (F.conv_transpose1d(*x, stride=2, padding=1) for x in (half, wide))
    assert found.dtype == facula.float16 and steps_off(found, exact) <= 0.51


def test_the_gradient_of_a_divisor_in_float16_does_not_come_from_a_rounded_quotient():
    random = np.random.default_rng(2)
    given = [random.uniform(0.5, 2, s).astype(np.float16) for s in ((30, 20), (20,), (30, 20))]
    given[2] -= np.float16(1.25)
    of = []
    for t in (np.float16, np.float64):
        x, y, g = (facula.from_numpy(z.astype(t)) for z in given)
        y.requires_grad_()
        (x / y).backward(g)
        of.append(y.grad)
    assert steps_off(*of) <= 0.51


def test_of_three_matrices_the_first_two_are_multiplied_first_if_it_is_all_the_same():
    a, b, c = (halves(4, 4) for _ in range(3))
    b, c = b.T, c + 1
    assert facula.equal(facula.linalg.multi_dot([a, b, c]), (a @ b) @ c)
    assert not facula.equal((a @ b) @ c, a @ (b @ c))
