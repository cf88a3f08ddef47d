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
