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
