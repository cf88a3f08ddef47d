"""Forward mode, reverse mode and differences of values agree for every operator on its samples: around writes
in place, for in-place forms, and for Jacobians and Hessians of all elements at once.

`make test` draws some operators for each check, with a new seed each time; `make gradients` takes all.
"""

import os
import random

import pytest
from support import derivatives
from support.operators import cases

ALL = cases()
WHOLE = os.environ.get("FACULA_DERIVATIVES") == "all"
DRAWN = 40  # operators for each check
CHOICES = [(check, c) for check, (_, fits, _) in derivatives.CHECKS.items() for c in ALL if fits(c)]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("check", derivatives.CHECKS)
def test_derivatives_of_some_operators_agree(check):
    seed = derivatives.fresh_seed()
    print(f"seed {seed}")
    chosen = random.Random(seed).sample([c for name, c in CHOICES if name == check], DRAWN)
    assert sum(derivatives.run(check, case, seed) for case in chosen) > DRAWN / 4


@pytest.mark.skipif(not WHOLE, reason="make gradients takes every operator")
@pytest.mark.parametrize(("check", "case"), CHOICES if WHOLE else [], ids=lambda x: getattr(x, "name", x))
def test_derivatives_of_every_operator_agree(check, case):
    derivatives.run(check, case, derivatives.fresh_seed())
