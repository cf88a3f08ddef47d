"""Special functions against numbers computed with 50 digits (mpmath), and against the relations that
define them.
"""

import math

import numpy as np
import pytest

import facula as F

# (function, argument, value)
VALUES = [
    ("lgamma", 1e-05, 11.512919692895826),
    ("lgamma", 0.3, 1.0957979948180756),
    ("lgamma", 0.9999, 5.7729791561193866e-05),
    ("lgamma", 1.0001, -5.771334222047127e-05),
    ("lgamma", 1.5, -0.12078223763524522),
    ("lgamma", 2.0001, 4.2281658112919945e-05),
    ("lgamma", 2.7, 0.4348205536551047),
    ("lgamma", 3.0, 0.6931471805599453),
    ("lgamma", 7.9, 8.32426586800881),
    ("lgamma", 8.1, 8.72738826343204),
    ("lgamma", 25.5, 56.389167643719944),
    ("lgamma", 10000.0, 82099.71749644238),
    ("lgamma", -0.5, 1.2655121234846454),
    ("lgamma", -1.3, 1.2024757863901114),
    ("lgamma", -3.7, -1.3797399049658245),
    ("digamma", 0.0001, -10000.577051183514),
    ("digamma", 0.3, -3.502524222200133),
    ("digamma", 1.0, -0.5772156649015329),
    ("digamma", 1.4616, -3.110625123034165e-05),
    ("digamma", 2.5, 0.7031566406452432),
    ("digamma", 9.9, 2.2411803166063815),
    ("digamma", 10.1, 2.262214357094148),
    ("digamma", 500.0, 6.213607765088992),
    ("digamma", -0.5, 0.03648997397857652),
    ("digamma", -2.3, 3.3173231575618227),
    ("erfinv", 1e-10, 8.862269254527581e-11),
    ("erfinv", 0.001, 0.0008862271574665521),
    ("erfinv", 0.1, 0.08885599049425769),
    ("erfinv", 0.5, 0.4769362762044699),
    ("erfinv", 0.51, 0.4881220505159588),
    ("erfinv", 0.75, 0.8134198475976185),
    ("erfinv", 0.99, 1.8213863677184494),
    ("erfinv", 0.9999999, 3.7665625816384707),
    ("erfinv", -0.3, -0.2724627147267543),
    ("erfinv", -0.999, -2.3267537655135246),
    ("erfinv", 0.9, 1.1630871536766742),
    ("erfinv", 0.9907, 1.8390606856017842),
    ("erfinv", 0.9909, 1.8443284462603141),
    ("erfinv", 0.99661, 2.0717982397132003),
    ("erfinv", 0.9999, 2.7510639057120797),
    ("erfinv", 0.99999994, 3.8316710514352172),
    ("erfinv", 0.9999999999, 4.5728249585449249),
    ("erfinv", -0.999999999999999, -5.6759157397447132),
    ("erfinv", 0.9999999999999999, 5.8635847487551679),
    ("erfcx", 0.0, 1.0),
    ("erfcx", 0.001, 0.9988726200811514),
    ("erfcx", 0.5, 0.6156903441929259),
    ("erfcx", 1.0, 0.427583576155807),
    ("erfcx", 3.3, 0.16400729757293264),
    ("erfcx", 7.7, 0.07266847750186703),
    ("erfcx", 15.2, 0.037037924207469736),
    ("erfcx", 25.9, 0.021767181150738214),
    ("erfcx", 26.1, 0.021600627726346206),
    ("erfcx", 100.0, 0.005641613782989433),
    ("erfcx", -0.5, 1.952360489182557),
    ("erfcx", -2.0, 108.94090438997797),
    ("erfcx", -20.3, 1.859700651326472e179),
    ("polygamma1", 0.01, 10001.621213528313),
    ("polygamma1", 0.4, 7.275356590529597),
    ("polygamma1", 1.0, 1.6449340668482264),
    ("polygamma1", 2.5, 0.49035775610023485),
    ("polygamma1", 9.0, 0.11751201469403143),
    ("polygamma1", 40.0, 0.02531510384129103),
    ("polygamma1", -0.5, 8.934802200544679),
    ("polygamma1", -3.3, 14.817739525515929),
    ("polygamma2", 0.01, -2000002.340398677),
    ("polygamma2", 0.4, -32.23912862357835),
    ("polygamma2", 1.0, -2.4041138063191885),
    ("polygamma2", 2.5, -0.2362040516417274),
    ("polygamma2", 9.0, -0.013793319195767774),
    ("polygamma2", 40.0, -0.0006408202718352986),
    ("polygamma5", 0.01, 120000000000115.05),
    ("polygamma5", 0.4, 29313.54246925876),
    ("polygamma5", 1.0, 122.0811674381339),
    ("polygamma5", 2.5, 0.5785691785671835),
    ("polygamma5", 9.0, 0.0005317463328963387),
    ("polygamma5", 40.0, 2.4938943509996704e-07),
]
FUNCTIONS = {
    "lgamma": F.lgamma,
    "digamma": F.digamma,
    "erfinv": F.erfinv,
    "erfcx": F.special.erfcx,
    **{f"polygamma{n}": (lambda x, n=n: F.polygamma(n, x)) for n in (0, 1, 2, 5)},
}


@pytest.mark.parametrize("name", sorted({v[0] for v in VALUES}))
def test_value_is_within_a_few_units_of_the_last_place(name):
    points = [(x, y) for n, x, y in VALUES if n == name]
    x, want = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    got = FUNCTIONS[name](F.from_numpy(x)).numpy()
    # Near their zeros lgamma and digamma are exact to the argument's own rounding, not to the value's.
    scale = np.maximum(np.abs(want), 0.2 if name in ("lgamma", "digamma", "polygamma0") else 0)
    assert np.all(np.abs(got - want) <= (64 if "polygamma" in name else 16) * 2.0**-52 * scale), (
        x,
        got,
        want,
    )
    if name == "erfinv":
        np.testing.assert_array_max_ulp(got, want, maxulp=2)
    x = x[np.abs(x) < 15]
    single = FUNCTIONS[name](F.from_numpy(x.astype(np.float32))).numpy()
    again = FUNCTIONS[name](F.from_numpy(x.astype(np.float32).astype(np.float64))).numpy()
    if name == "erfinv":  # float32 has polynomials of its own
        np.testing.assert_array_max_ulp(single, again.astype(np.float32), maxulp=2)
    else:
        np.testing.assert_array_equal(single, again.astype(np.float32), err_msg="float64 rounded once")


def test_neighbours_in_a_vector_change_nothing():
    """Vectors without a number far out go past what it takes."""
    x = np.tanh(np.random.RandomState(0).standard_normal(1000) * 3)
    x[::7], x[5], x[50], x[500] = 0.1, 1, -1, np.nan
    for dtype in (np.float32, np.float64):
        t = F.from_numpy(x.astype(dtype))
        alone = F.stack([v.erfinv() for v in t])
        np.testing.assert_array_equal(t.erfinv().numpy(), alone.numpy())


def test_poles_and_ends():
    inf, nan = math.inf, math.nan
    x = F.tensor([0.0, -0.0, -1.0, -2.0, inf, -inf, nan], dtype=F.float64)
    np.testing.assert_array_equal(F.lgamma(x).numpy(), [inf, inf, inf, inf, inf, inf, nan])
    np.testing.assert_array_equal(F.digamma(x).numpy()[:6], [-inf, inf, nan, nan, inf, nan])
    np.testing.assert_array_equal(
        F.erfinv(F.tensor([-1.0, 1.0, 1.5, nan, 0.0])).numpy(), [-inf, inf, nan, nan, 0.0]
    )
    np.testing.assert_array_equal(
        F.special.erfcx(F.tensor([-inf, inf, -30.0, nan])).numpy(), [inf, 0.0, inf, nan]
    )


def test_erfinv_inverts_erf_to_the_last_place():
    y = F.linspace(-0.999999, 0.999999, 10001, dtype=F.float64)
    np.testing.assert_allclose(F.erf(F.erfinv(y)).numpy(), y.numpy(), rtol=2**-51, atol=0)


def test_lgamma_agrees_with_the_c_library():
    x = np.concatenate([np.linspace(0.01, 30, 3000), np.linspace(-4.995, -0.005, 998), [1e-300, 1e10, 1e300]])
    want = np.vectorize(math.lgamma)(x)
    np.testing.assert_allclose(F.lgamma(F.from_numpy(x)).numpy(), want, rtol=1e-14, atol=2e-15)


def test_integers_become_floats():
    assert F.lgamma(F.tensor([3])).dtype == F.float32 and F.polygamma(1, F.tensor([3])).dtype == F.float32


def test_polygamma_refuses_negative_orders():
    with pytest.raises(RuntimeError, match="negative n"):
        F.polygamma(-1, F.ones(2))


def test_the_gradient_of_erfcx_does_not_cancel():
    # By mpmath with 60 digits.
    x = F.tensor([-1.0, 2.0, 25.5, 26.0, 100.0, 1e6, 1e150], dtype=F.float64, requires_grad=True)
    F.special.erfcx(x).sum().backward()
    want = [-11.14633932862008, -0.1067964618534896, -0.00086565641700141927, -0.00083275486624142986]
    want += [-5.6410497625993185e-5, -5.6418958354691e-13, -5.6418958354775631e-301]
    np.testing.assert_allclose(x.grad.tolist(), want, rtol=3e-12)
    far = F.special.erfcx(F.tensor(1.7e308, dtype=F.float64)).item()
    assert far == pytest.approx(3.318762256163272e-309, rel=1e-10, abs=0)


def test_lgamma_has_relative_accuracy_beside_its_roots():
    # By mpmath with 60 digits.
    places = [1 + 2.0**-52, 1 - 2.0**-53, 1 + 1e-8, 2 + 2.0**-51, 2 - 2.0**-52]
    want = [-1.2816762427e-16, 6.40838121348e-17, -5.77215653169e-9, 1.87753955e-16, -9.38769774e-17]
    got = F.lgamma(F.tensor(places, dtype=F.float64)).tolist()
    np.testing.assert_allclose(got, want, rtol=1e-7)
