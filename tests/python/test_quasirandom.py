"""Sobol sequences. Points are PyTorch's; scrambled ones keep what makes them even."""

import hashlib

import facula.quasirandom
import pytest

import facula

SobolEngine = facula.quasirandom.SobolEngine


def test_points_are_pytorchs():
    e = SobolEngine(3)
    assert e.draw(5).tolist() == [
        [0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75], [0.375, 0.375, 0.625],
    ]  # fmt: skip
    assert e.draw(1).tolist() == [[0.875, 0.875, 0.125]]
    e.draw(3)
    assert e.fast_forward(10).draw(2).tolist() == [[0.34375, 0.71875, 0.71875], [0.46875, 0.09375, 0.84375]]
    assert e.num_generated == 21 and e.quasi.tolist() == [503316480, 100663296, 905969664]


def test_direction_numbers_are_those_of_joe_and_kuo():
    pytest.importorskip("scipy")  # has those beyond the 21st
    state = SobolEngine(SobolEngine.MAXDIM).sobolstate.numpy()
    assert hashlib.md5(state.tobytes()).hexdigest() == "749d0e591a2d30849f871bc7d7d8b985"
    points = SobolEngine(1000).draw(1000, dtype=facula.float64).numpy()
    assert hashlib.md5(points.tobytes()).hexdigest() == "a90e0b585825dfacbe16c42381b24c37"


def test_without_scipy_there_are_21_dimensions(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats", None)
    facula.quasirandom._table.cache_clear()
    assert SobolEngine(21).draw(2)[1].tolist() == [0.5] * 21
    with pytest.raises(NotImplementedError, match="SobolEngine: 22 dimensions need .* SciPy"):
        SobolEngine(22)
    facula.quasirandom._table.cache_clear()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("scramble", [False, True])
def test_fast_forward_is_drawing_and_forgetting(n, scramble):
    a, b = SobolEngine(5, scramble, 3), SobolEngine(5, scramble, 3)
    if n:
        a.draw(n)
    assert facula.equal(a.draw(9), b.fast_forward(n).draw(9))
    assert facula.equal(a.reset().draw(4), b.reset().draw(4))


def test_scrambled_points_lie_evenly_and_follow_their_seed():
    e = SobolEngine(3, scramble=True, seed=7)
    points = e.draw(1024)
    for d in range(3):  # one in each of 1024 intervals
        assert sorted((points[:, d] * 1024).floor().int().tolist()) == list(range(1024))
    assert facula.equal(points, SobolEngine(3, scramble=True, seed=7).draw(1024))
    assert not facula.equal(points, SobolEngine(3, scramble=True, seed=8).draw(1024))
    assert repr(e) == "SobolEngine(dimension=3, scramble=True, seed=7)"


def test_powers_of_two_are_asked_for():
    e = SobolEngine(2)
    assert e.draw_base2(2).shape == (4, 2) and e.draw_base2(2).shape == (4, 2)
    with pytest.raises(ValueError, match=r"n=8\+2\*\*2=12"):
        e.draw_base2(2)


def test_dimensions_have_bounds():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match=r"\[1, 21201\]"):
            SobolEngine(dimension)
