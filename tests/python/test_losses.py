"""Gradients of losses where a formula has a corner: logits of 0, distances of 0."""

import math

import numpy as np
import pytest

import facula as F

fn = F.nn.functional


@pytest.mark.parametrize("logit", [0.0, -0.0, 0.5, -3.0])
def test_the_gradient_of_multilabel_soft_margin_is_the_sigmoid_less_the_target(logit):
    targets = F.tensor([[0.0, 1.0, 0.5, 1.0]], dtype=F.float64)
    x = F.full((1, 4), logit, dtype=F.float64, requires_grad=True)
    fn.multilabel_soft_margin_loss(x, targets).backward()
    want = (1 / (1 + math.exp(-logit)) - targets.numpy()) / 4
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=0, atol=1e-16)


def test_a_distance_of_nothing_has_no_gradient():
    point = F.tensor([[1.0, -2.0, 0.0]])
    for f in (
        lambda x: fn.pairwise_distance(x, point, eps=0.0),
        lambda x: fn.triplet_margin_loss(x, point, point, eps=0.0),
        lambda x: (
            fn.triplet_margin_loss(x, point, x.detach() + 0.1, eps=0.0, swap=True)
            - fn.triplet_margin_loss(point, point, x + 0.1, eps=0.0)
        ),
    ):
        x = point.clone().requires_grad_()
        f(x).sum().backward()
        assert F.isfinite(x.grad).all()
    x = point.clone().requires_grad_()
    fn.pairwise_distance(x, point, eps=0.0).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("loss", "error", "want"),
    [
        (lambda x: fn.smooth_l1_loss(x, F.zeros_like(x), beta=0.5), 0.0, 2.0),
        (lambda x: fn.huber_loss(x, F.zeros_like(x), delta=0.25), 0.0, 1.0),
        (lambda x: fn.huber_loss(x, F.zeros_like(x), delta=0.25), -0.25, 0.0),
        (lambda x: fn.binary_cross_entropy_with_logits(x, F.ones_like(x)), 0.0, 0.25),
        (
            lambda x: fn.binary_cross_entropy_with_logits(x, F.ones_like(x), pos_weight=F.tensor(3.0)),
            -0.0,
            0.75,
        ),
        (lambda x: -fn.logsigmoid(x).sum(), 0.0, 0.25),
        (lambda x: fn.multilabel_soft_margin_loss(x, F.ones_like(x)), 0.0, 0.25),
    ],
)
def test_second_derivatives_at_corners_of_the_formula(loss, error, want):
    x = F.tensor([[error]], dtype=F.float64, requires_grad=True)
    (slope,) = F.autograd.grad(loss(x), x, create_graph=True)
    (curvature,) = F.autograd.grad(slope.sum(), x)
    assert curvature.item() == pytest.approx(want, abs=1e-15)


@pytest.mark.parametrize("p", [1, 2])
def test_margins_over_classes_have_no_slope_at_the_bound_and_skip_nan(p):
    # PyTorch's: it counts what is greater than 0.
    nan = math.nan
    x = F.tensor([[2.0, 1.0, 0.0], [nan, 1.0, 0.0]], requires_grad=True)
    y = fn.multi_margin_loss(x, F.tensor([0, 0]), p=p, reduction="none")
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0] and x.grad.tolist() == [[0.0] * 3] * 2
    x.grad = None
    y = fn.multilabel_margin_loss(x, F.tensor([[0, -1, -1], [0, -1, -1]]), reduction="none")
    y.sum().backward()
    assert y.tolist() == [0.0, 0.0] and x.grad.tolist() == [[0.0] * 3] * 2


def test_margins_over_classes_have_the_shape_of_their_target_and_refuse_what_does_not_fit():
    x, weight = F.arange(3.0), F.ones(2)
    assert fn.multi_margin_loss(x, F.tensor([1]), reduction="none").shape == (1,)
    assert fn.multi_margin_loss(x, F.tensor(1), reduction="none").shape == ()
    for call in (
        lambda: fn.multi_margin_loss(x, F.tensor([1]), weight=weight),
        lambda: fn.multi_margin_loss(x, F.tensor([1]), weight=F.ones(3, dtype=F.float64)),
        lambda: fn.multi_margin_loss(F.ones(2, 3), F.tensor([[1], [0]])),
        lambda: fn.multi_margin_loss(F.ones(2, 0), F.tensor([1, 0])),
        lambda: fn.multilabel_margin_loss(F.ones(1, 3), F.tensor([[0, 1, -1]], dtype=F.int32)),
    ):
        with pytest.raises(RuntimeError, match="margin_loss"):
            call()


def test_an_infinite_variance_explains_every_error():
    var = F.tensor([math.inf, 1e-9], requires_grad=True)
    x = F.tensor([1.0, 2.0], requires_grad=True)
    y = fn.gaussian_nll_loss(x, F.zeros(2), var, eps=0.5, reduction="none")
    y.sum().backward()
    np.testing.assert_allclose(y.tolist(), [math.inf, (math.log(0.5) + 8) / 2], rtol=1e-6)
    np.testing.assert_allclose(x.grad.tolist(), [0.0, 4.0])
    np.testing.assert_allclose(var.grad.tolist(), [0.0, 0.5 * (2 - 16)])
    assert math.isnan(fn.gaussian_nll_loss(x, x, F.tensor([1.0, math.nan])).item())
    assert fn.gaussian_nll_loss(x, x, 1e300).item() == math.inf  # as a float32


def test_targets_of_other_dtypes_count_as_numbers():
    x = F.tensor([0.5, -1.0], requires_grad=True)
    signs = F.tensor([1, 0], dtype=F.uint8)
    want = np.log1p(np.exp([-0.5, 0.0]))
    np.testing.assert_allclose(fn.soft_margin_loss(x, signs, reduction="none").tolist(), want, rtol=1e-6)
    assert fn.soft_margin_loss(x, F.ones(2, dtype=F.float64)).dtype == F.float32
    mask = F.tensor([True, False])
    assert fn.mse_loss(x, mask, reduction="none").tolist() == [0.25, 1.0]
    assert fn.smooth_l1_loss(x, mask, reduction="none").tolist() == [0.125, 0.5]
    with pytest.raises(RuntimeError, match="soft_margin_loss"):
        fn.soft_margin_loss(x, mask)


def test_classes_are_the_last_dimension_of_the_input_though_a_target_has_more():
    x, targets = F.zeros(2, 3), F.zeros(5, 2, 3)
    assert fn.multilabel_soft_margin_loss(x, targets, reduction="none").shape == (5, 3)


@pytest.mark.parametrize("p", [2.0, 3.0, 4.0])
@pytest.mark.parametrize(
    "distance",
    [
        lambda x, p: fn.pairwise_distance(x, F.zeros(1, 2), p=p, eps=0.0),
        lambda x, p: fn.triplet_margin_loss(x, F.zeros(2, 2), F.full((2, 2), -9.0), p=p, eps=0.0),
        lambda x, p: F.dist(x[0], F.zeros(2), p) + F.dist(x[1], F.zeros(2), p),
    ],
)
def test_composites_keep_the_rules_of_what_they_call_in_second_derivatives(distance, p):
    # The body of a norm would divide by the length; its rule does not. PyTorch's is 0 for p > 2.
    x = F.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
    (slope,) = F.autograd.grad(distance(x, p).sum(), x, create_graph=True)
    (curvature,) = F.autograd.grad((slope * F.tensor([[1.0, 2.0], [3.0, 4.0]])).sum(), x)
    assert F.isfinite(curvature).all() and curvature[0].abs().max() < 1e-3


def test_probabilities_are_checked_over_a_batch_of_calls_and_not_on_meta():
    x, target = F.rand(3, 4), F.rand(3, 4)
    want = [fn.binary_cross_entropy(a, b).item() for a, b in zip(x, target)]
    np.testing.assert_allclose(F.func.vmap(fn.binary_cross_entropy)(x, target).numpy(), want, rtol=1e-6)
    x[2, 1] = 1.5
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.func.vmap(fn.binary_cross_entropy)(x, target)
    assert fn.binary_cross_entropy(x.to("meta"), target.to("meta")).shape == ()


REFUSED = [
    (lambda x: fn.binary_cross_entropy(x, F.zeros(2)), [0.5, 2.0], RuntimeError, "all elements of input"),
    (
        lambda x: fn.binary_cross_entropy(x, F.zeros(2)),
        [0.5, math.nan],
        RuntimeError,
        "all elements of input",
    ),
    (lambda x: fn.binary_cross_entropy(F.zeros(2), x), [-0.1, 0.5], RuntimeError, "all elements of target"),
    (lambda x: fn.gaussian_nll_loss(F.zeros(2), F.zeros(2), x), [1.0, -1.0], ValueError, "var has negative"),
    (lambda x: fn.multi_margin_loss(F.zeros(2, 3), x.long()), [0.0, 3.0], RuntimeError, "out of bounds"),
    (lambda x: fn.multi_margin_loss(F.zeros(2, 3), x.long()), [0.0, -1.0], RuntimeError, "out of bounds"),
    (lambda x: fn.multilabel_margin_loss(F.zeros(2), x.long()), [-1.0, 2.0], RuntimeError, "out of range"),
    (lambda x: fn.multilabel_margin_loss(F.zeros(2), x.long()), [0.0, -2.0], RuntimeError, "out of range"),
]


@pytest.mark.parametrize(("f", "values", "kind", "text"), REFUSED)
def test_elements_that_a_loss_does_not_take_are_refused(f, values, kind, text):
    """Called, in a batch of calls, and in a program, whose inputs were right when it was traced."""
    given = F.tensor(values)
    with pytest.raises(kind, match=text):
        f(given)
    with pytest.raises(kind, match=text):
        F.func.vmap(f)(given.expand(3, 2))
    program = F.program.trace(f, F.tensor([0.5, 0.5]))
    program(F.tensor([0.25, 0.75]))
    if "bounds" not in text:  # an index, whose type a program does not know
        with pytest.raises(kind, match=text):
            program(given)


def test_a_loss_names_itself_as_it_was_called():
    for call, name in (
        (lambda: fn.binary_cross_entropy(F.full((2,), 2.0), F.zeros(2)), "binary_cross_entropy"),
        (lambda: fn.gaussian_nll_loss(F.zeros(2), F.zeros(2), -F.ones(2)), "gaussian_nll_loss"),
        (
            lambda: fn.triplet_margin_with_distance_loss(F.ones(2, 3), F.ones(2, 3), F.ones(3)),
            "triplet_margin_with_distance_loss",
        ),
    ):
        with pytest.raises((RuntimeError, ValueError), match=rf"^{name}: (?!_)"):
            call()


def test_a_margin_may_be_any_number():
    """True is 1; beside integers a margin has no fraction, as in PyTorch."""
    x = F.tensor([0.25, -0.5])
    assert fn.hinge_embedding_loss(x, -F.ones(2), margin=True).item() == 1.125
    whole = fn.hinge_embedding_loss(
        F.tensor([1, 2, 250], dtype=F.uint8), F.tensor([1, -1, 1]), 0.5, reduction="none"
    )
    assert whole.tolist() == [1, 254, 250] and whole.dtype == F.uint8
    assert fn.multi_margin_loss(F.zeros(1, 2), F.tensor([0]), margin=True).item() == 0.5
    for loss in (fn.hinge_embedding_loss, fn.multi_margin_loss):
        with pytest.raises(RuntimeError, match="without overflow"):
            loss(F.zeros(1, 2), F.tensor([0]), margin=1e300)


@pytest.mark.parametrize(
    "flags, reduction",
    [
        ({"size_average": 0}, "sum"),
        ({"size_average": 1}, "mean"),
        ({"reduce": 0}, "none"),
        ({"reduce": 1, "size_average": False}, "sum"),
        ({"size_average": False, "reduce": False}, "none"),
        ({"reduce": True}, "mean"),
    ],
)
def test_flags_of_old_count_by_their_truth(flags, reduction):
    """As in PyTorch, where 0 is False."""
    x, y = F.arange(4.0), F.ones(4)
    with pytest.warns(UserWarning, match=f"please use reduction='{reduction}' instead"):
        found = F.nn.functional.mse_loss(x, y, **flags)
    assert F.equal(found, F.nn.functional.mse_loss(x, y, reduction=reduction))
    with pytest.warns(UserWarning, match=f"reduction='{reduction}'"):
        assert F.nn.MSELoss(**flags).reduction == reduction
