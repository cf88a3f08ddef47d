"""No operator answers a missing derivative with silence: a gradient, an error, or a zero with its reason."""

import secrets

import numpy as np
import pytest
from support.gradients import entries
from support.operators import cases

import facula as F

ALL = cases()


def test_operators_have_a_gradient_or_raise_or_say_why_it_is_zero():
    """A tenth of the operators; ``make gradients`` looks at all and writes the table."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for k in rng.permutation(len(ALL))[: len(ALL) // 10]:
        entries(ALL[k], rng)


def test_definitions_without_gradient_of_floating_results_give_a_reason():
    """For each result of the samples that is floating where an operand is, without computing gradients."""
    silent = []
    for case in ALL:
        if case.differentiable or case.undifferenced:
            continue
        if any(e.state == "zero" for e in entries(case, np.random.default_rng(1))):
            silent.append(case.name)
    assert silent == []


X = F.tensor([3.0, 1.0, 3.0], dtype=F.float64)
MATRIX = F.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=F.float64)
WITHOUT = {
    "_unique2": lambda x: x.unique(),
    "unique_dim": lambda x: F.unique(x.view(3, 1), dim=0, return_counts=True)[0],
    "unique_consecutive": lambda x: x.unique_consecutive(return_inverse=True)[0],
    "geqrf": lambda x: F.geqrf(x.view(3, 1))[1],
    "aten::linalg_ldl_factor_ex": lambda x: F.linalg.ldl_factor(MATRIX * x[0])[0],
    "aten::linalg_ldl_solve": lambda x: F.linalg.ldl_solve(
        MATRIX * x[0], F.linalg.ldl_factor(MATRIX)[1], MATRIX
    ),
    "aten::heaviside": lambda x: F.heaviside(x, X),
    "aten::floor_divide": lambda x: 7 // x + x // 2,
    "aten::binomial": lambda x: F.binomial(X, x / 4),
    "aten::bernoulli": lambda x: F.bernoulli(x, 0.5),
    "aten::histogram": lambda x: F.histogram(x, 2)[0],
    "aten::_histogramdd_from_bin_cts": lambda x: F.histogramdd(x.view(3, 1), [2])[0],
    "igamma: input": lambda x: F.igamma(x, X),
    "igammac: input": lambda x: F.igammac(x, X),
    "zeta": lambda x: F.special.zeta(x + 1, X),
    "_standard_gamma_grad": lambda x: F._standard_gamma_grad(x, X),
}


@pytest.mark.parametrize("of", WITHOUT)
def test_operators_without_derivative_raise_in_backward_as_pytorch(of):
    x = X.clone().requires_grad_()
    y = WITHOUT[of](x)
    assert y.requires_grad
    text = f"derivative for {of} is" if of.startswith("aten::") else f"the derivative for '{of}' is"
    with pytest.raises(NotImplementedError, match=f"{text} not implemented"):
        (y.sum() + x.sum()).backward()
    assert not WITHOUT[of](x.detach()).requires_grad


def test_nodes_without_derivative_are_called_as_in_pytorch():
    x = X.clone().requires_grad_()
    assert x.unique().grad_fn.name() == "Unique2Backward0"
    assert x.unique_consecutive().grad_fn.name() == "UniqueConsecutiveBackward0"
    assert F.heaviside(x, X).grad_fn.name() == "NotImplemented"


def test_second_derivative_of_the_ctc_loss_raises():
    logits = F.randn(5, 2, 3, dtype=F.float64).log_softmax(2).requires_grad_()
    lengths = F.tensor([5, 5]), F.tensor([2, 2])
    loss = F.nn.functional.ctc_loss(logits, F.tensor([[1, 2], [1, 1]]), *lengths)
    (g,) = F.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="_ctc_loss_backward"):
        g.sum().backward()


def test_weights_of_counts_have_the_gradient_of_sums():
    w = X.clone().requires_grad_()
    index = F.tensor([2, 0, 2])
    (F.bincount(index, w) * F.tensor([5.0, 7.0, 11.0])).sum().backward()
    assert w.grad.tolist() == [11, 5, 11]
    hist, _ = F.histogram(
        F.tensor([0.5, 1.5, 0.6]), F.tensor([0.0, 1.0, 2.0]), weight=(v := F.ones(3).requires_grad_())
    )
    (hist * F.tensor([3.0, 4.0])).sum().backward()
    assert v.grad.tolist() == [3, 4, 3]


def test_operators_without_derivative_do_not_disturb_other_gradients():
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    mask = F.heaviside(x.detach(), X)
    (mask * y).sum().backward()
    assert y.grad.tolist() == mask.tolist()
    lower, upper = F.igamma(X, y), X.clone()
    (F.autograd.grad(lower.sum(), y)[0] + upper).sum()
