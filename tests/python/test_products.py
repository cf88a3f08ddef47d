"""Matrix products by generated kernels, with what follows them as an epilogue."""

import os
import subprocess
import sys

import facula.nn.functional as F
import numpy as np
import pytest

import facula
from facula import _C as C


@pytest.fixture
def generated():
    C.set_setting("products", "generated")
    yield
    C.set_setting("products", "")


def seeded():
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    return np.random.default_rng(seed)


def normal(rng, *sizes):
    return facula.tensor(rng.standard_normal(sizes, "f"))


def kernels_of(run):
    """Returns the result of a second run, and the names of the kernels that it launched."""
    run()
    with facula.profile() as prof:
        y = run()
    return y, [e.name for e in prof.events() if e.category == "kernel"]


EPILOGUES = {
    "relu": lambda y, r, s: F.relu(y),
    "gelu": lambda y, r, s: F.gelu(y),
    "gelu of tanh": lambda y, r, s: F.gelu(y, approximate="tanh"),
    "silu": lambda y, r, s: F.silu(y),
    "scale": lambda y, r, s: y * 0.125,
    "vector": lambda y, r, s: y * s,
    "residual": lambda y, r, s: r + y,
    "mask": lambda y, r, s: facula.where(r > 0, y, -1.0),
    "kept mask": lambda y, r, s: y * (s > 0) * r.bool(),
    "all": lambda y, r, s: r + F.silu(y * s) * 0.5,
}


@pytest.mark.parametrize("rows", [(1, 3), (2, 9), (4, 16)], ids=str)
@pytest.mark.parametrize("follow", EPILOGUES.values(), ids=EPILOGUES)
def test_what_follows_a_linear_layer_is_its_epilogue(generated, follow, rows):
    rng = seeded()
    x, w, b = normal(rng, *rows, 70), normal(rng, 50, 70), normal(rng, 50)
    r, s = normal(rng, *rows, 50), normal(rng, 50)
    x[0, 0, 0], r[0, 1, 0] = float("nan"), float("inf")
    f = facula.compile(lambda x, r: follow(F.linear(x, w, b), r, s))
    y, kernels = kernels_of(lambda: f(x, r))
    assert len(kernels) == 1 and kernels[0].startswith("product"), kernels
    # The kernel has the sums of the product alone, to the bit, so only its epilogue may differ.
    sums = facula.compile(lambda x: F.linear(x, w, b) + 0.0)(x)
    want = follow(sums, r, s)
    np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-6, atol=1e-30)
    exact = x.numpy().astype("d") @ w.numpy().astype("d").T + b.numpy()
    np.testing.assert_allclose(sums.numpy(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm"])
def test_products_of_all_kinds_take_epilogues(generated, name):
    rng = seeded()
    a, b, c = normal(rng, 3, 20, 33), normal(rng, 3, 33, 40), normal(rng, 40)
    if name != "bmm":
        a, b = a[0], b[0]
    run = {
        "mm": lambda: F.relu(a @ b),
        "addmm": lambda: F.relu(facula.addmm(c, a, b)),
        "bmm": lambda: F.relu(facula.bmm(a, b)),
    }[name]
    y, kernels = kernels_of(facula.compile(run))
    assert len(kernels) == 1 and kernels[0].startswith("product"), kernels
    want = np.maximum(a.numpy().astype("d") @ b.numpy() + (c.numpy() if name == "addmm" else 0), 0)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", [7, 30])
def test_a_product_that_is_used_again_is_kept_beside_its_epilogue(generated, rows):
    rng = seeded()
    x, w, b = normal(rng, rows, 40), normal(rng, 50, 40), normal(rng, 50)
    f = facula.compile(lambda x: (lambda y: (y, F.relu(y)))(F.linear(x, w, b)))
    (y, z), kernels = kernels_of(lambda: f(x))
    assert len(kernels) == 1, kernels
    want = x.numpy().astype("d") @ w.numpy().T + b.numpy()
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(z.numpy(), np.maximum(y.numpy(), 0))


def test_an_epilogue_does_not_overwrite_what_the_product_still_reads(generated):
    rng = seeded()
    x, w = normal(rng, 300, 64), normal(rng, 64, 64)

    @facula.compile
    def f(x):
        x = x * 2
        return x + F.linear(x, w)  # the result may take the memory of x

    doubled = 2 * x.numpy().astype("d")
    for _ in range(3):
        y = f(x)
        np.testing.assert_allclose(y.numpy(), doubled + doubled @ w.numpy().T, rtol=1e-5, atol=1e-3)


def test_a_step_of_training_has_the_same_gradients_with_epilogues(generated):
    rng = seeded()
    x, w, v = normal(rng, 32, 48), normal(rng, 80, 48), normal(rng, 48, 80)
    b = normal(rng, 80)

    def gradients(compiles):
        parameters = [t.clone().requires_grad_() for t in (w, b, v)]

        def loss(x):
            w, b, v = parameters
            return (x + F.linear(F.gelu(F.linear(x, w, b)), v)).square().mean()

        (facula.compile(loss) if compiles else loss)(x).backward()
        return [p.grad.numpy() for p in parameters]

    for got, want in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


STORED = """
import facula
import facula.nn.functional as F
facula.manual_seed(0)
x, w, r = facula.randn(40, 30), facula.randn(50, 30), facula.randn(40, 50)
f = facula.compile(lambda x: r + 0.3 * F.silu(F.linear(x, w)))
f(x)
with facula.profile() as prof:
    y = f(x)
print([e.name for e in prof.events() if e.category == "kernel"], y.tolist())
"""


def test_a_stored_plan_has_its_epilogues(tmp_path):
    environment = {
        **os.environ,
        "FACULA_PRODUCTS": "generated",
        "FACULA_CACHE_DIR": str(tmp_path),
        "FACULA_LOG": "cache",
    }
    command = [sys.executable, "-c", STORED]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert "hit plan" in second.stdout + second.stderr
    lines = [[x for x in run.stdout.splitlines() if x.startswith("[")] for run in (first, second)]
    assert lines[0] == lines[1] and lines[0][0].startswith("['product']")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 9, 16])
@pytest.mark.parametrize("k", [5, 16, 100, 1031])
def test_few_rows_are_sums_of_products(generated, rows, k):
    rng = seeded()
    x, w, b = normal(rng, rows, k), normal(rng, 203, k), normal(rng, 203)
    y = F.linear(x, w, b)
    want = x.numpy().astype("d") @ w.numpy().astype("d").T + b.numpy()
    size = np.abs(x.numpy()).astype("d") @ np.abs(w.numpy()).T + np.abs(b.numpy())
    assert (np.abs(y.numpy() - want) <= 6e-8 * (k / 8 + 8) * size).all()


@pytest.mark.parametrize("dtype", [facula.bfloat16, facula.float16], ids=str)
@pytest.mark.parametrize("rows", [(3,), (40,), (2, 30)], ids=str)
def test_sums_of_16_bit_floats_are_rounded_once(generated, dtype, rows):
    rng = seeded()
    x, w, b = normal(rng, *rows, 150).to(dtype), normal(rng, 70, 150).to(dtype), normal(rng, 70).to(dtype)
    y, kernels = kernels_of(lambda: F.linear(x, w, b))
    assert any(k.startswith("product") for k in kernels), kernels
    exact = x.double() @ w.double().T + b.double()
    error = (y.double() - exact).abs()
    assert (error <= exact.abs() * facula.finfo(dtype).eps * 0.51 + 1e-4).all()


def test_a_product_of_16_bit_floats_can_be_added_to_a_matrix(generated):
    rng = seeded()
    c, a, b = (normal(rng, 40, 40).bfloat16() for _ in range(3))
    y = facula.addmm(c, a, b, beta=0.5, alpha=2)
    addend, product = 0.5 * c.double(), 2 * (a.double() @ b.double())
    exact = addend + product
    # The scaled addend, the product and their sum are each rounded at most once.
    rounded = exact.abs() + addend.abs() + product.abs()
    assert ((y.double() - exact).abs() <= rounded * facula.finfo(facula.bfloat16).eps * 0.51).all()
