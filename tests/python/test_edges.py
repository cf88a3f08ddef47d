"""The operators answer a recorded part of the calls with special values as PyTorch does; tests/edges
tells the rest.
"""

import importlib.util
import re
import sys

import numpy as np
import pytest
from support.replays import GOLDEN, TESTS, passes


@pytest.mark.timeout(900)
def test_operators_answer_the_recorded_calls_at_the_edges():
    passes("edges/run.py", "--replay", GOLDEN / "edges.zip", "--known", GOLDEN / "edges.txt")


@pytest.fixture
def declared(monkeypatch):
    monkeypatch.syspath_prepend(TESTS / "edges")
    import declared

    return declared


def test_a_declared_difference_says_where_and_why(declared):
    """An expression for the beginning of a line, which names a dtype, and a reason of a sentence's worth."""
    for family, operators, (where, why) in declared.declarations():
        assert re.match(where, "float32") is None and len(why) > 20, f"{family}: {operators}: {where}: {why}"


def test_differences_are_declared_once_for_operators_of_the_family(declared):
    families = family_of_operators()
    seen, rules = set(), {}
    for family, operators, difference in declared.declarations():
        unknown = [name for name in operators if name not in families]
        assert not unknown, f"{family}.txt names {unknown}, which are no operators"
        homes = {families[name] for name in operators}
        fits = len(homes) > 1 if family == declared.SHARED else homes == {family}
        assert fits, f"{family}.txt declares a difference of {operators}, which belong to {sorted(homes)}"
        for name in operators:
            assert (name, difference.where) not in seen, f"{family}.txt: {name}: {difference.where}: twice"
            seen.add((name, difference.where))
        assert rules.setdefault(difference, family) == family, f"{difference} stands in two files"


def test_a_declaration_that_cannot_be_read_is_an_error(declared, tmp_path):
    (tmp_path / "pointwise.txt").write_text("add\n    float32 value: nan for inf\n")
    with pytest.raises(ValueError, match="pointwise.txt: not operators, an expression and a reason: add"):
        declared.declarations(tmp_path)


def family_of_operators():
    """The family of the catalog that defines each operator, by its full name."""
    path = TESTS.parent / "src" / "facula" / "op" / "generate.py"
    spec = importlib.util.spec_from_file_location("facula_generate", path)
    generate = sys.modules["facula_generate"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    _, operators = generate.read_catalog(path.parents[1] / "catalog")
    return {op.full_name: op.family for op in operators}


def test_only_numbers_no_further_from_the_exact_one_than_the_peers_are_nearer(monkeypatch):
    for folder in ("conformance", "edges"):
        monkeypatch.syspath_prepend(TESTS / folder)
    from compare import nearer

    inf, nan = np.inf, np.nan
    rows = [  # ours, the peer's, the exact one
        (1.0, 1.5, 1.1, True),
        (1.5, 1.0, 1.1, False),
        (1.2, 1.0, 1.1, True),  # as far on the other side
        (1.0, nan, 1.1, True),
        (nan, 1.5, 1.1, False),
        (nan, inf, 1.1, False),
        (nan, inf, nan, True),
        (inf, nan, 1.1, False),
        (inf, nan, inf, True),
        (inf, 3.0, inf, True),
        (3.0, nan, inf, False),
        (-inf, inf, inf, False),
        (0.0, -0.0, -0.0, False),
        (-0.0, 0.0, -0.0, True),
        (0.0, 1.0, 0.5, True),
    ]
    ours, peers, exact, wanted = map(np.array, zip(*rows))
    assert (nearer(ours, peers, exact, True) == wanted).all()
    assert nearer(np.array([0.0]), np.array([-0.0]), np.array([-0.0]), False).all()
    assert not nearer(np.array([1]), np.array([2]), np.array([1]), True).any()  # integers are equal or not
    assert nearer(*(np.array([x + 1j]) for x in (1.0, 2.0, 1.4)), True).all()
