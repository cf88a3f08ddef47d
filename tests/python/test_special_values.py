"""Scalar functions at NaN, infinities, signed zeros and branch points: values and gradients as PyTorch 2.13
gives them (whole vectors: its loops over what remains treat NaN otherwise in places).
"""

import cmath
import math
import os
import subprocess
import sys

import facula.nn.functional as F
import numpy as np
import pytest

import facula as T

inf, nan = math.inf, math.nan


def same(ours, theirs, tolerance=1e-6):
    """Equal, NaN to NaN and zeros by sign, or close."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        if math.isnan(b):
            assert math.isnan(a), (ours, theirs)
        elif b == 0 or math.isinf(b):
            assert a == b and math.copysign(1, a) == math.copysign(1, b), (ours, theirs)
        else:
            assert math.isclose(a, b, rel_tol=tolerance), (ours, theirs)


POINTS = [nan, inf, -inf, 0.0, -0.0, 3.0, -3.0, 1e30, -1e30, 0.5, 20.0]
SELU, SELU_NEGATIVE = 1.0507010221481323, -1.7580993175506592
# (expression, values, gradients; None where PyTorch's own paths differ)
BODIES = [
    ("F.elu(x)", [nan, inf, -1, 0.0, -0.0, 3, math.expm1(-3), 1e30, -1, 0.5, 20],
     [None, 1, 0.0, 1, 1, 1, math.exp(-3), 1, 0.0, 1, 1]),
    ("F.celu(x)", [nan, inf, -1, 0.0, -0.0, 3, math.expm1(-3), 1e30, -1, 0.5, 20],
     [None, 1, 0.0, 1, 1, 1, math.exp(-3), 1, 0.0, 1, 1]),
    ("F.selu(x)", [nan, inf, SELU_NEGATIVE, 0.0, -0.0, 3 * SELU, -1.6705687046051025, 1.0507010e30,
                   SELU_NEGATIVE, 0.5 * SELU, 20 * SELU],
     [None, SELU, 0.0, -SELU_NEGATIVE, -SELU_NEGATIVE, SELU, 0.08753060549497604, SELU, 0.0, SELU, SELU]),
    ("F.softplus(x)", [nan, inf, 0.0, math.log(2), math.log(2), 3.0485873222351074, 0.04858735203742981, 1e30,
                       0.0, 0.9740769863128662, 20],
     [nan, 1, 0.0, 0.5, 0.5, 0.9525741338729858, 0.04742587357759476, 1, 0.0, 0.622459352016449, 1]),
    ("F.hardsigmoid(x)", [nan, 1, 0.0, 0.5, 0.5, 1, 0.0, 1, 0.0, 3.5 / 6, 1],
     [0.0, 0.0, 0.0, 1 / 6, 1 / 6, 0.0, 0.0, 0.0, 0.0, 1 / 6, 0.0]),
    ("F.hardswish(x)", [nan, inf, nan, 0.0, -0.0, 3, -0.0, 1e30, -0.0, 0.2916666567325592, 20],
     [nan, 1, 0.0, 0.5, 0.5, 1, 0.0, 1, 0.0, 2 / 3, 1]),
    ("F.relu6(x)", [nan, 6, 0.0, 0.0, None, 3, 0.0, 6, 0.0, 0.5, 6],
     [0.0, 0.0, 0.0, 0.0, 0.0, 1, 0.0, 0.0, 0.0, 1, 0.0]),
    ("F.hardtanh(x)", [nan, 1, -1, 0.0, -0.0, 1, -1, 1, -1, 0.5, 1],
     [0.0, 0.0, 0.0, 1, 1, 0.0, 0.0, 0.0, 0.0, 1, 0.0]),
    ("F.hardshrink(x)", [nan, inf, -inf, 0.0, 0.0, 3, -3, 1e30, -1e30, 0.0, 20],
     [0.0, 1, 1, 0.0, 0.0, 1, 1, 1, 1, 0.0, 1]),
    ("F.softshrink(x)", [nan, inf, -inf, 0.0, None, 2.5, -2.5, 1e30, -1e30, 0.0, 19.5],
     [0.0, 1, 1, 0.0, 0.0, 1, 1, 1, 1, 0.0, 1]),
    ("F.relu(x)", [nan, inf, 0.0, 0.0, -0.0, 3, 0.0, 1e30, 0.0, 0.5, 20],
     [1, 1, 0.0, 0.0, 0.0, 1, 0.0, 1, 0.0, 1, 1]),
    ("F.prelu(x, T.tensor([0.25]))", [nan, inf, -inf, 0.0, -0.0, 3, -0.75, 1e30, -2.5e29, 0.5, 20],
     [0.25, 1, 0.25, 0.25, 0.25, 1, 0.25, 1, 0.25, 1, 1]),
    ("F.huber_loss(x, T.zeros_like(x), reduction='none')",
     [nan, inf, inf, 0.0, 0.0, 2.5, 2.5, 1e30, 1e30, 0.125, 19.5],
     [nan, 1, -1, None, None, 1, -1, 1, -1, 0.5, 1]),
    ("F.smooth_l1_loss(x, T.zeros_like(x), reduction='none')",
     [nan, inf, inf, 0.0, 0.0, 2.5, 2.5, 1e30, 1e30, 0.125, 19.5],
     [nan, 1, -1, None, None, 1, -1, 1, -1, 0.5, 1]),
    ("x.clamp(-0.5, 0.5)", [nan, 0.5, -0.5, 0.0, -0.0, 0.5, -0.5, 0.5, -0.5, 0.5, 0.5],
     [0.0, 0.0, 0.0, 1, 1, 0.0, 0.0, 0.0, 0.0, 1, 0.0]),
    ("x.clamp(min=0.5)", [nan, inf, 0.5, 0.5, 0.5, 3, 0.5, 1e30, 0.5, 0.5, 20],
     [0.0, 1, 0.0, 0.0, 0.0, 1, 0.0, 1, 0.0, 1, 1]),
    ("x.clamp(max=0.5)", [nan, 0.5, -inf, 0.0, -0.0, 0.5, -3, 0.5, -1e30, 0.5, 0.5],
     [0.0, 0.0, 1, 1, 1, 0.0, 1, 0.0, 1, 1, 0.0]),
    ("x.angle()", [nan, 0.0, math.pi, 0.0, 0.0, 0.0, math.pi, 0.0, math.pi, 0.0, 0.0], [0.0] * 11),
    ("x ** 0.5", [nan, inf, nan, 0.0, -0.0, 3**0.5, nan, 1e15, nan, 0.5**0.5, 20**0.5],
     [nan, 0.0, nan, inf, -inf, 0.28867512941360474, nan, 5e-16, nan, 0.7071067690849304, 0.1118033975362]),
]  # fmt: skip


@pytest.mark.parametrize("text, values, gradients", BODIES, ids=[b[0] for b in BODIES])
def test_a_side_that_is_not_taken_has_no_influence(text, values, gradients):
    points = POINTS * 8  # whole vectors of every width
    x = T.tensor(points, requires_grad=True)
    y = eval(text, {"F": F, "T": T, "x": x})
    y.backward(T.ones_like(y))
    for ours, theirs in ((y.tolist(), values * 8), (x.grad.tolist(), gradients * 8)):
        pairs = [(a, float(b)) for a, b in zip(ours, theirs) if b is not None]
        if ours != y.tolist():  # the sign of a zero gradient is nobody's business
            pairs = [(abs(a) if a == 0 else a, abs(b) if b == 0 else b) for a, b in pairs]
        same([a for a, _ in pairs], [b for _, b in pairs])


def test_binary_cross_entropy_has_finite_gradients_where_it_is_certain():
    x = T.tensor([0.0, 1, 0, 1, 0.5], requires_grad=True)
    t = T.tensor([0.0, 1, 1, 0, 0.5], requires_grad=True)
    loss = F.binary_cross_entropy(x, t, reduction="none")
    loss.sum().backward()
    same([abs(v) for v in loss.tolist()], [0.0, 0.0, 100, 100, math.log(2)])
    same([v + 0.0 for v in x.grad.tolist()], [0.0, 0.0, -1e12, 1e12, 0.0])
    same(t.grad.tolist(), [inf, -inf, inf, -inf, 0.0])


@pytest.mark.parametrize("other, slope", [(1.0, 57735028.0), (0.0, 0.0)])
def test_cosine_similarity_of_a_zero_vector_has_a_gradient(other, slope):
    a, b = T.zeros(1, 3, requires_grad=True), T.full((1, 3), other, requires_grad=True)
    y = F.cosine_similarity(a, b)
    y.backward()
    same(y.tolist(), [0.0])
    same(a.grad[0].tolist(), [slope] * 3)
    same(b.grad[0].tolist(), [0.0] * 3)


NUMBERS = [
    nan,
    inf,
    -inf,
    300.0,
    -1.0,
    -300.7,
    70000.0,
    -70000.0,
    3e9,
    -3e9,
    5e18,
    1e20,
    2147483648.0,
    4294967297.0,
]
INT32, INT64 = -(2**31), -(2**63)
CASTS = {
    "uint8": [0, 0, 0, 44, 255, 212, 112, 144, 0, 0, 0, 0, 0, 1],
    "int8": [0, 0, 0, 44, -1, -44, 112, -112, 0, 0, 0, 0, 0, 0],
    "int16": [0, 0, 0, 300, -1, -300, 4464, -4464, 0, 0, 0, 0, 0, 0],
    "int32": [INT32, INT32, INT32, 300, -1, -300, 70000, -70000] + [INT32] * 6,
    "int64": [INT64, INT64, INT64, 300, -1, -300, 70000, -70000, 3 * 10**9, -3 * 10**9, 5 * 10**18, INT64,
              2**31, 2**32 + 1],
}  # fmt: skip


@pytest.mark.parametrize("to", CASTS)
@pytest.mark.parametrize("copies", [1, 7])
def test_floats_wrap_into_integers_as_on_x86(to, copies):
    x = T.tensor(NUMBERS * copies, dtype=T.float64)
    assert x.to(getattr(T, to)).tolist() == CASTS[to] * copies
    assert T.stack([x, x], 1)[:, 0].to(getattr(T, to)).tolist() == CASTS[to] * copies
    assert [v.to(getattr(T, to)).item() for v in x[:14]] == CASTS[to]
    assert x[3:8].to(T.float32).to(getattr(T, to)).tolist() == CASTS[to][3:8]
    assert T.zeros_like(x, dtype=getattr(T, to)).copy_(x).tolist() == CASTS[to] * copies


DIVISIONS = [
    (1.0, 0.1, 9.0), (-1.0, 0.1, -10.0), (1.0, -0.1, -10.0), (inf, 1.0, nan), (1.0, inf, 0.0),
    (-1.0, inf, -1.0), (1.0, 0.0, inf), (-1.0, 0.0, -inf), (0.0, 0.0, nan), (0.0, -1.0, -0.0),
    (-0.0, 1.0, -0.0), (7.0, 2.0, 3.0), (-7.0, 2.0, -4.0), (1e300, 1e-300, inf),
    (1e300, 7.0, 1.4285714285714286e299), (5e-324, 2.0, 0.0), (-5e-324, 2.0, -1.0), (nan, 1.0, nan),
    (9007199254740993.0, 3.0, 3002399751580330.0), (-9e15, 0.7, -1.2857142857142856e16),
    (6.0, 3.0, 2.0), (-6.0, 3.0, -2.0), (0.3, 0.1, 2.0), (-0.3, 0.1, -3.0),
]  # fmt: skip


def test_floor_division_is_that_of_the_remainder():
    x, y = (T.tensor([d[k] for d in DIVISIONS], dtype=T.float64) for k in (0, 1))
    expected = [d[2] for d in DIVISIONS]
    same((x // y).tolist(), expected, 0)
    same(T.div(x, y, rounding_mode="floor").tolist(), expected, 0)
    same([(a // b).item() for a, b in zip(x, y)], expected, 0)
    assert (T.tensor([1.0, 2.0, -1.0], dtype=T.bfloat16) // 0.1).tolist() == [9, 19, -10]
    assert T.div(T.tensor([1.0, -1.0], dtype=T.bfloat16), T.tensor([0.1, 0.1], dtype=T.bfloat16),
                 rounding_mode="trunc").tolist() == [10, -10]  # fmt: skip


def test_lerp_reaches_its_end():
    a, b = T.tensor([1e8, -1e30, inf]), T.tensor([1.0, 2.0, 0.0])
    same(T.lerp(a, b, 1.0).tolist(), [1.0, 2.0, nan])
    same(T.lerp(a, b, T.tensor([1.0, 1.0, 0.7])).tolist(), [1.0, 2.0, inf])
    same(T.lerp(a, b, 0.0).tolist()[:2], [1e8, -1e30])


def test_polygamma_of_negative_numbers():
    x = T.tensor([-0.5, -2.3, -3.7, -10.1, 0.3], dtype=T.float64)
    expected = {
        1: [8.934802200117687, 14.72591216089887, 14.842421864106473, 103.26156923946817, 12.245364544940365],
        2: [-0.82879664423432, 68.71379252927028, -68.89345468867353, 1998.6507800707025, -75.27253658872601],
        3: [193.40909103400242, 768.9350646661426, 768.9946494408655, 60014.25021906149, 743.1417646550497],
        4: [-3.4742498266722257, 9738.671736569253, -9738.778730383647, 2399973.834285297, -9883.46855549699],
        5: [15371.113548602436, 165660.05361165263, 165660.15728399347, 120000297.90873626, 164634.846099223],
    }
    for n, values in expected.items():
        same(T.polygamma(n, x).tolist(), values, 1e-8)  # PyTorch's trigamma has 9 digits
    for n in (2, 30, 40):  # where the terms on either side of zero cancel
        at_half, one_up = (T.polygamma(n, T.tensor(v, dtype=T.float64)).item() for v in (-0.5, 1.5))
        same([at_half], [one_up], 1e-9)
    assert T.polygamma(1000, x).isnan().logical_or(T.polygamma(1000, x).isinf()).all()
    y = x.clone().requires_grad_()
    T.polygamma(2, y).sum().backward()
    same(y.grad.tolist(), expected[3], 1e-8)


def test_dtypes_of_threshold_and_margin_ranking_loss():
    x = T.tensor([1, 2, 3])
    assert F.threshold(x, 1.7, 20.6).dtype == T.int64 and F.threshold(x, 1.7, 20.6).tolist() == [20, 2, 3]
    one = T.tensor([1, 1])
    assert F.margin_ranking_loss(T.tensor([1, 2]), T.tensor([3, 1]), one, reduction="none").dtype == T.float32


def test_small_powers_of_complex_numbers_are_products():
    z = T.tensor([1 + 2j, -3 + 0.5j, 1j], dtype=T.complex128, requires_grad=True)
    for n in (1, 2, 3, -1, -2):
        assert (z**n).tolist()[2] == 1j**n  # no digit is lost
    for n in (1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 1 + 2j, 0):
        numbers, powers = z.tolist(), T.full((3,), n, dtype=T.complex128)
        for y in (z**n, z**powers):
            assert all(abs(a - b**n) < 1e-13 * abs(b**n) for a, b in zip(y.tolist(), numbers))
    (z**2).sum().abs().backward()
    assert all(math.isfinite(abs(g)) for g in z.grad.tolist())


def test_numbers_that_a_dtype_does_not_hold_are_refused():
    x, half, small = T.ones(3), T.ones(3, dtype=T.float16), T.ones(3, dtype=T.int8)
    for call in (
        lambda: T.add(x, x, alpha=1e300),
        lambda: T.rsub(half, half, alpha=7e4),
        lambda: T.sub(small, small, alpha=300),
        lambda: F.elu(half, alpha=1e300),
        lambda: F.celu(x, alpha=-1e300),
        lambda: F.leaky_relu(x, 1e300),
        lambda: F.softplus(x, 1, 1e300),
        lambda: F.threshold(half, 1, 7e4),
        lambda: F.threshold(small, 300, 1),
        lambda: F.hardshrink(half, 7e4),
        lambda: F.hardtanh(small, -1, 300),
        lambda: T.where(x > 0, x, 1e300),
        lambda: T.where(small > 0, small, 300),
        lambda: T.addcmul(small, small, small, value=300),
        lambda: T.addcdiv(x, x, x, value=1e300),
        lambda: T.lerp(x, x, 1e300),
        lambda: T.pow(small, 300),
        lambda: T.pow(half, 7e4),
    ):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    # Sixteen bits compute in float32; infinity is a number of every floating dtype.
    assert F.elu(half, alpha=7e4).tolist() == [1, 1, 1] and F.leaky_relu(x, math.inf).tolist() == [1, 1, 1]
    assert T.where(half > 1, half, 1e300).tolist() == [math.inf] * 3


def test_factors_of_sums_have_the_category_of_the_result():
    x, n = T.ones(2), T.ones(2, dtype=T.int64)
    for f in (T.add, T.sub, T.rsub):
        with pytest.raises(RuntimeError, match="Boolean alpha"):
            f(x, x, alpha=True)
        with pytest.raises(RuntimeError, match="must not be a floating"):
            f(n, n, alpha=0.5)
        with pytest.raises(RuntimeError, match="alpha"):
            f(x, x, alpha=1j)
    most = T.tensor([3.4028234663852886e38])
    assert T.sub(most, most, alpha=2).tolist() == (-most).tolist()  # rounded once
    with pytest.raises(RuntimeError, match="alpha cannot be 0"):
        F.celu(x, 0.0)


def test_integers_are_dropped_all_or_none():
    for dtype in (T.int64, T.uint8, T.bool):
        x = T.ones(3).to(dtype)
        assert F.dropout(x, 0.0).tolist() == F.dropout(x, 0.5, training=False).tolist() == x.tolist()
        assert F.dropout(x, 1.0).tolist() == (x ^ x).tolist()
        with pytest.raises(RuntimeError, match="can't be cast"):
            F.dropout(x, 0.5)


def test_limits_keep_the_signs_of_zeros():
    zeros = T.tensor([0.0, -0.0])
    for low, high in ((0.0, 6.0), (-0.0, 6.0), (-1.0, 0.0), (-1.0, -0.0)):
        same(F.hardtanh(zeros, low, high).tolist(), [0.0, -0.0])
    for x in F.hardtanh(T.tensor([-2.0, 0.0, 2.0]), -1, math.nan).tolist():
        assert math.isnan(x)
    with pytest.raises(RuntimeError, match="unsigned"):
        F.hardtanh(T.ones(2, dtype=T.uint8), -1, 6)
    same(F.hardshrink(T.tensor([-2.0, 0.5, math.nan]), math.nan).tolist(), [-2.0, 0.5, math.nan])


def test_gradients_of_clamp_with_tensors_at_ties_and_crossed_limits():
    inf = math.inf
    x = T.tensor([0.0, 1.0, 5.0, -inf, math.nan, 2.0], requires_grad=True)
    low = T.tensor([0.0, 2.0, 1.0, inf, 1.0, 3.0], requires_grad=True)
    high = T.tensor([1.0, 2.0, 4.0, inf, 0.0, 1.0], requires_grad=True)
    T.clamp(x, low, high).sum().backward()
    same(x.grad.tolist(), [1, 0, 0, 0, 0, 0])
    same(low.grad.tolist(), [0, 0, 0, 0, 0, 0])
    same(high.grad.tolist(), [0, 0, 1, 0, 1, 1])
    for f, gradients in ((T.clamp_min, ([1, 0, 1], [0, 1, 0])), (T.clamp_max, ([1, 1, 0], [0, 0, 1]))):
        a, b = T.tensor([1.0, 1.0, 3.0], requires_grad=True), T.tensor([1.0, 2.0, 1.0], requires_grad=True)
        f(a, b).sum().backward()
        same(a.grad.tolist(), gradients[0])
        same(b.grad.tolist(), gradients[1])


def test_complex_functions_of_the_largest_numbers_are_finite():
    most = 1.7976931348623157e308
    z = T.tensor([complex(most, most), complex(-most, 1), complex(3, -most)], dtype=T.complex128)
    for f, g in ((T.log, cmath.log), (T.asin, cmath.asin), (T.acos, cmath.acos), (T.acosh, cmath.acosh)):
        for a, w in zip(f(z).tolist(), z.tolist()):
            assert cmath.isclose(a, g(w), rel_tol=1e-14), (g, w, a)
    near = T.tensor([complex(1, 2.2e-308), complex(-1, -2.2e-308)], dtype=T.complex128)
    for a, w in zip(T.atanh(near).tolist(), near.tolist()):
        assert cmath.isclose(a, cmath.atanh(w), rel_tol=1e-14)


def test_indices_into_one_element_are_checked_in_fused_programs():
    # The producer's single element is read for every index; the index is looked at all the same.
    for n in (1, 3):
        x, target = T.zeros(n, 1), T.full((n,), 1, dtype=T.int64)
        for reduction in ("none", "sum", "mean"):
            with pytest.raises(IndexError):
                F.cross_entropy(x, target, reduction=reduction)
        assert F.cross_entropy(x, target * 0).item() == 0


def test_convolutions_without_outputs_or_kernel_are_refused():
    x = T.zeros(2, 3, 8, 8)
    for weight, message in (((0, 3, 3, 3), "at least 1 at dimension 0"), ((4, 3, 0, 2), "greater than zero")):
        with pytest.raises(RuntimeError, match=message):
            F.conv2d(x, T.zeros(*weight))
    with pytest.raises(RuntimeError, match="at least 1 at dimension 0"):
        F.conv_transpose2d(T.zeros(2, 0, 4, 4), T.zeros(0, 2, 3, 3))
    with pytest.raises(RuntimeError, match="makes output channels"):
        F.conv_transpose2d(T.zeros(2, 3, 5), T.zeros(2, 0, 2, 3), stride=2)
    # No batch is a result; without input channels PyTorch gives no output channels.
    assert F.conv_transpose2d(T.zeros(0, 2, 4, 4), T.zeros(2, 3, 3, 3)).shape == (0, 3, 6, 6)
    assert F.conv2d(T.zeros(2, 0, 8, 8), T.zeros(4, 0, 3, 3)).shape == (2, 0, 6, 6)


def test_erfinv_to_the_last_digits():
    # mpmath's, near 0, on either side of the branches and near 1.
    expected = {
        1e-300: 8.86226925452758e-301,
        0.25: 0.2253120550121781,
        0.999: 2.3267537655135246,
        0.99999: 3.123413274341571,
        1 - 2.0**-40: 5.05125408524939,
        1 - 2.0**-53: 5.8635847487551676,
    }
    x = T.tensor(list(expected), dtype=T.float64)
    same(T.erfinv(x).tolist(), list(expected.values()), 4e-16)
    for dtype in (T.float16, T.bfloat16, T.float32, T.float64):
        ends = T.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -math.inf, math.nan], dtype=dtype)
        same(T.erfinv(ends).tolist(), [0.0, -0.0, math.inf, -math.inf] + [math.nan] * 3)
    assert T.erfinv(T.tensor([1e-45])).item() > 0
    single = T.cat([T.linspace(-0.9999, 0.9999, 1001), T.tensor([1 - 2.0**-24])])
    exact = T.erfinv(single.double())
    assert ((T.erfinv(single).double() - exact).abs() <= 2 * 2.0**-23 * exact.abs()).all()


def test_divide_rounds_as_div_in_every_form():
    x, n, two = T.tensor([7.0, -7.0]), T.tensor([7, -7]), T.tensor(2)
    for mode, whole in (("floor", [3, -4]), ("trunc", [3, -3])):
        for a in (x, n):
            for f in (T.div, T.divide):
                assert f(a, 2, rounding_mode=mode).tolist() == f(a, two, rounding_mode=mode).tolist() == whole
                assert f(a, two, rounding_mode=mode, out=T.empty(2, dtype=a.dtype)).tolist() == whole
                assert f(a, two, rounding_mode=mode).dtype == a.dtype
            assert a.divide(2, rounding_mode=mode).tolist() == whole
            assert a.clone().divide_(two, rounding_mode=mode).tolist() == whole
    assert T.divide(n, 2, rounding_mode=None).tolist() == T.true_divide(n, 2).tolist() == [3.5, -3.5]
    for bad in (lambda: T.divide(x, 2, rounding_mode="up"), lambda: n.clone().divide_(2, rounding_mode=None)):
        with pytest.raises(RuntimeError):
            bad()


def test_small_complex_products_keep_infinities():
    """Sums of products of parts; a product with 1 + 0j would make NaN of infinity."""
    a = np.array([[1 + 2j, complex(inf, 1)], [3 - 1j, 0.5j]])
    b = np.array([[2 - 1j, 1 + 1j, 0.5], [1 + 3j, -2 + 1j, 1 - 1j]])
    parts = [a.real @ b.real - a.imag @ b.imag, a.real @ b.imag + a.imag @ b.real]
    assert np.isinf(parts[0][0]).all() and np.isinf(parts[1][0]).all()
    for dtype in (T.complex64, T.complex128):
        x, y = (T.tensor(m.tolist(), dtype=dtype) for m in (a, b))
        turned = T.tensor(a.T.tolist(), dtype=dtype).t()
        gaps = T.stack([x, x], -1)[..., 0]
        zero = T.zeros(2, 3, dtype=dtype)
        for got in (
            *(m @ y for m in (x, turned, gaps, x.conj().conj())),
            T.bmm(x[None], y[None])[0],
            T.addmm(zero, x, y),
            T.addmm(zero + complex(nan, nan), x, y, beta=0),
            T.matmul(x.expand(3, 2, 2), y)[2],
        ):
            for ours, want in zip((got.real, got.imag), parts):
                same(ours.flatten().tolist(), want.flatten().tolist())


def test_complex_products_agree_at_every_size():
    """Those that are small enough for a loop of our own, and those of a library."""
    rng = np.random.default_rng(0)
    for m, k, n in (
        (1, 1, 1),
        (2, 3, 4),
        (8, 8, 8),
        (8, 8, 9),
        (1, 600, 1),
        (3, 1, 200),
        (5, 7, 0),
        (4, 0, 3),
    ):
        a, b, c = (rng.normal(size=(2, *s, 2)).view(complex)[..., 0] for s in ((m, k), (k, n), (m, n)))
        x, y, z = (T.from_numpy(v.copy()) for v in (a, b, c))
        want = a @ b
        assert np.allclose(T.bmm(x, y).numpy(), want)
        assert np.allclose((x.conj() @ y).numpy(), a.conj() @ b)
        assert np.allclose((x.mH.contiguous().mH @ y).numpy(), want)
        alpha, beta = 2 - 1j, 0.5j
        got = T.baddbmm(z, x, y, alpha=alpha, beta=beta).numpy()
        assert np.allclose(got, beta * c + alpha * want)
        assert np.allclose(z.clone().baddbmm_(x, y).numpy(), c + want)


@pytest.mark.parametrize("base", ["exp", "exp2"])
@pytest.mark.parametrize("dtype, last", [("float32", -149), ("float64", -1074)])
def test_exponentials_are_rounded_where_they_become_denormal_and_zero(base, dtype, last):
    if dtype == "float64" and np.finfo(np.longdouble).minexp >= last:
        pytest.skip("no wider type")
    unit = math.log(2) if base == "exp" else 1.0
    small = math.log2(np.finfo(dtype).tiny)
    points = [
        p * unit for p in (small - 1, small, small + 0.06, small + 1, last - 2, last - 1, last, last + 1)
    ]
    near = np.concatenate([p + np.linspace(-0.3, 0.3, 67) for p in points]).astype(dtype)
    far = np.array([-1e4, np.finfo(dtype).min, -inf, -200 * unit, -500 * unit, 5 * last * unit], dtype)
    x = np.concatenate([near, far, near[::-1]])
    wide = getattr(np, base)(x.astype(np.longdouble)).astype(dtype)
    ours = getattr(T, base)(T.tensor(x)).numpy()
    tiny = np.finfo(dtype).smallest_subnormal
    assert np.abs(ours - wide).max() <= np.finfo(dtype).eps * np.finfo(dtype).tiny * 4 + tiny
    subnormal = wide < np.finfo(dtype).tiny
    assert (np.abs(ours - wide)[subnormal] <= tiny).all()
    assert (ours[np.isneginf(x) | (x < (last - 2) * unit)] == 0).all()


def test_roots_are_rounded_once():
    """Next to the middle of two numbers, of squares and their neighbours, of every exponent, and of none."""
    random = np.random.default_rng(3)
    digits = [*random.integers(2**52, 2**53, 3000), *range(2**52, 2**52 + 500), *range(2**53 - 500, 2**53)]
    middles = np.array([float((2 * int(n) + 1) ** 2) for n in digits])
    squares = np.array([float(int(n) ** 2) for n in digits])
    hard = np.concatenate(
        [middles, squares] + [np.nextafter(x, to) for x in (middles, squares) for to in (0, inf)]
    )
    scales = [1.0, 2.0, 2.0**-60, 2.0**-1000, 2.0**-1100, 2.0**900]
    any_bits = random.integers(-(2**63), 2**63 - 1, 100000).view(np.float64)
    ends = [
        0.0,
        -0.0,
        inf,
        -inf,
        nan,
        -1.0,
        5e-324,
        2.0**-900,
        np.nextafter(2.0**-900, 0),
        1.7976931348623157e308,
    ]
    with np.errstate(all="ignore"):
        for x in [*(hard * s for s in scales), any_bits, random.random(10007), np.array(ends * 7)]:
            ours, exact = T.tensor(x).sqrt().numpy(), np.sqrt(x)
            np.testing.assert_array_equal(ours, exact)
            assert (np.signbit(ours) == np.signbit(exact))[~np.isnan(exact)].all()


@pytest.mark.skipif("FACULA_CPU_CAPABILITY" in os.environ, reason="compares this with another")
def test_tables_of_avx2_hold_the_same():
    program = (
        "import sys, facula as T; x = T.linspace(-6, 6, 20011)\n"
        "f = T.nn.functional\n"
        "y = [x.sigmoid(), f.silu(x), f.gelu(x), T.special.ndtr(x), x.exp(), x.abs().log()]\n"
        "y += [x.erf(), (x / 6).erfinv(), x.tanh()]\n"
        "sys.stdout.buffer.write(T.stack(y).numpy().tobytes())"
    )
    results = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | chosen, stdout=subprocess.PIPE, check=True
        ).stdout
        for chosen in ({}, {"FACULA_CPU_CAPABILITY": "avx2"})
    ]
    ours, other = (np.frombuffer(r, "float32") for r in results)
    np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e-22, 1.0, 1e22, 1e30])
def test_angles_of_tiny_and_huge_numbers_have_their_gradient(scale):
    """By float64, whose squares neither overflow nor vanish here."""
    wide = T.tensor([3 * scale, -scale], dtype=T.float64), T.tensor([4 * scale, 2 * scale], dtype=T.float64)
    square = wide[0] ** 2 + wide[1] ** 2
    expected = -wide[1] / square, wide[0] / square
    z = T.complex(wide[0].float(), wide[1].float()).requires_grad_()
    z.angle().sum().backward()
    x, y = (w.float().requires_grad_() for w in wide)
    T.atan2(y, x).sum().backward()
    for got in ((z.grad.real, z.grad.imag), (x.grad, y.grad)):
        for g, e in zip(got, expected):
            T.testing.assert_close(g.double(), e, rtol=1e-6, atol=2.0**-149)


def test_the_angle_of_nothing_has_gradient_zero():
    x, y = T.zeros(2).requires_grad_(), T.zeros(2).requires_grad_()
    T.atan2(y, x).sum().backward()
    assert x.grad.tolist() == [0, 0] and y.grad.tolist() == [0, 0]


def test_volumes_sampled_at_infinity_are_zero_as_pytorchs():
    grid = T.zeros(1, 1, 1, 4, 3)
    for k, value in enumerate((math.inf, -math.inf, math.nan)):
        grid[0, 0, 0, k, k] = value
    volume = T.arange(8.0).view(1, 1, 2, 2, 2)
    for mode, at_centre in (("bilinear", 3.5), ("nearest", 0.0)):
        y = F.grid_sample(volume, grid, mode=mode, padding_mode="zeros", align_corners=False)
        assert y.flatten().tolist() == [0, 0, 0, at_centre]


@pytest.mark.parametrize("dtype", [T.uint8, T.int8, T.int16, T.int32])
def test_rounded_numbers_become_integers_without_a_second_rounding(dtype):
    ties = [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 254.5, -128.5, 0.49999997, 8388607.5, -8388607.5]
    values = np.array([*ties, *range(-20, 20), -0.0, 2147483520.0, -2147483648.0], "f")
    want = np.rint(values).astype("i8").astype(T.zeros(1, dtype=dtype).numpy().dtype)
    y = T.compile(lambda x: x.round().to(dtype))(T.tensor(values))
    assert np.array_equal(y.numpy(), want)
    rest = T.tensor([nan, inf, -inf, 3e9, -3e9] * 8)
    y = T.compile(lambda x: x.round().to(dtype))(rest)
    assert np.array_equal(y.numpy(), T.stack([v.round() for v in rest]).to(dtype).numpy())
