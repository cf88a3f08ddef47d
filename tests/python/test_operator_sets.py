"""The two sets of operators, and the decomposition of the large one into the small one."""

from pathlib import Path

import pytest
from support import operators

import facula
from facula import _C, _operator_sets

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    c
    for c in operators.cases()
    if c.kind in ("pointwise", "loop", "library")
    and not c.random
    and not c.writes
    and c.base not in _operator_sets.SMALL
    and "_backward" not in c.name
]


def test_the_small_set_is_small_and_consists_of_operators():
    assert len(_operator_sets.SMALL) <= 150
    assert {o["name"] for o in _C.operators()} >= _operator_sets.SMALL
    assert facula.Tag.core in facula.ops.aten.add.Tensor.tags
    assert facula.Tag.intermediate in facula.ops.aten.silu.default.tags
    assert facula.Tag.core not in facula.ops.aten.silu.default.tags


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_decomposed_operator_gives_what_it_gives_in_eager(case):
    if case.name == "_no_derivative":
        pytest.skip("it raises an error if a gradient passes, and computes nothing")
    dtype = operators.usual_dtype(case)
    reach = 1e-4 if dtype in (*operators.FLOATING, *operators.COMPLEX) else 0
    for number in range(len(case.samples)):
        args = operators.arguments(case, number, dtype)
        want = operators.call(case, args)
        for got, result in zip(_operator_sets.decompose(case.name, **args), want, strict=True):
            assert (got.shape, got.dtype) == (result.shape, result.dtype)
            assert facula.allclose(got, result, rtol=reach, atol=reach / 10, equal_nan=True), (
                number,
                got,
                result,
            )


def test_the_page_of_operator_sets_is_that_of_the_registry():
    path = ROOT / "docs" / "operator_sets.md"
    assert path.read_text() == _operator_sets.page(), (
        "python -m facula._operator_sets > docs/operator_sets.md"
    )
