"""Sparse tensors beside what PyTorch gave (tests/golden/record_sparse.py), SciPy, and dense tensors."""

import copy
import io
import itertools
import json
import math
import pickle

import numpy as np
import pytest
import support.operators as operators
import support.sparse as programs
from facula.program import trace
from support import recording

import facula as F

CASES = [json.loads(line) for line in recording.read("sparse.jsonl").splitlines()]


def same(a, b, ulps):
    """Equal as described; floats within some units of the last place of their dtype."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(
            same(a[k], b[k], near(ulps, a["dtype"]) if k == "values" else 0 if "layout" in a else ulps)
            for k in a
        )
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b, itertools.repeat(ulps)))
    if isinstance(a, str) and isinstance(b, str) and a != b and ulps:
        x, y = float.fromhex(a), float.fromhex(b)
        return math.isclose(x, y, rel_tol=ulps, abs_tol=0)
    return a == b or a is b


def near(ulps, dtype):
    eps = {"float64": 2**-52, "complex128": 2**-52, "bfloat16": 2**-7, "float16": 2**-10}
    return ulps * eps.get(dtype, 2**-23)


# What sums in another order, or goes through a function, by units of the last place.
ROUNDED = ("sin()", "tan()", "sinh()", "tanh()", "asin()", "atan()", "expm1()", "log1p()", "norm()")


@pytest.mark.parametrize("case", CASES, ids=[f"{k}" for k in range(len(CASES))])
def test_programs_give_what_pytorch_gave(case):
    program, expected = case["program"], case["result"]
    found = json.loads(json.dumps(programs.result(F, program)))
    if isinstance(expected, dict) and "error" in expected:
        assert isinstance(found, dict) and "error" in found, f"{program}\n  gave {found}\n  for {expected}"
        assert found["error"] == expected["error"], f"{program}\n  {found}\n  {expected}"
        return
    assert same(
        found,
        expected,
        4
        if any(f in program for f in ROUNDED)
        else 16
        if "range(25)" in program
        else 1
        if "mean" in program
        else 0,
    ), f"{program}\n  {found}\n  {expected}"


def test_programs_are_those_that_were_recorded():
    assert [c["program"] for c in CASES] == programs.PROGRAMS


def coo(rng, shape, nnz, dense=(), dtype=np.float64):
    indices = np.stack([rng.integers(0, n, nnz) for n in shape]) if nnz else np.zeros((len(shape), 0), int)
    values = rng.standard_normal((nnz, *dense)).astype(dtype)
    return F.sparse_coo_tensor(F.tensor(indices), F.tensor(values), (*shape, *dense)), indices, values


def dense_of(indices, values, shape):
    out = np.zeros((*shape, *values.shape[1:]), values.dtype)
    np.add.at(out, tuple(indices), values)
    return out


@pytest.mark.parametrize(
    "shape, dense", [((7,), ()), ((5, 6), ()), ((3, 4, 5), ()), ((5, 4), (3,)), ((4,), (2, 3))]
)
@pytest.mark.parametrize("nnz", [0, 1, 2, 50])
def test_conversions_add_up_what_is_there_several_times(shape, dense, nnz):
    rng = np.random.default_rng(nnz)
    s, indices, values = coo(rng, shape, nnz, dense)
    expected = dense_of(indices, values, shape)
    np.testing.assert_array_equal(s.to_dense().numpy(), expected)
    c = s.coalesce()
    np.testing.assert_array_equal(c.to_dense().numpy(), expected)
    flat = np.ravel_multi_index(tuple(c.indices().numpy()), shape)
    assert (np.diff(flat) > 0).all() and len(flat) == len(
        np.unique(np.ravel_multi_index(tuple(indices), shape))
    )
    np.testing.assert_array_equal(s.to_dense().to_sparse(len(shape)).to_dense().numpy(), s.to_dense().numpy())


def test_products_are_scipys():
    scipy = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    for n, k, m, nnz in ((13, 9, 5, 40), (1, 1, 1, 3), (50, 40, 30, 0), (4, 0, 3, 0), (64, 64, 64, 500)):
        a, ia, va = coo(rng, (n, k), nnz)
        b, ib, vb = coo(rng, (k, m), nnz)
        x = rng.standard_normal((k, m))
        left = scipy.coo_matrix((va, ia), shape=(n, k)).tocsr()
        right = scipy.coo_matrix((vb, ib), shape=(k, m)).tocsr()

        def check(found, left, right):
            # Each order of adding up to nnz products errs by less than nnz units of what they come to in all.
            bound = nnz * 2**-52 * (abs(left) @ abs(right))
            expected = left @ right
            assert (abs(found.numpy() - expected) <= bound).all()

        check(a @ F.tensor(x), left, x)
        check(a.to_sparse_csr() @ F.tensor(x), left, x)
        check(F.tensor(x).t() @ b, x.T, right)
        product = a @ b
        assert product.is_sparse and product.is_coalesced()
        check(product.to_dense(), left.toarray(), right.toarray())


# A function of a sparse and a dense matrix, which dense tensors take as well.
FUNCTIONS = {
    "mm": lambda s, d: (s @ d.t()).pow(2).sum(),
    "mm_of_dense": lambda s, d: (d.t() @ s).pow(2).sum(),
    "addmm": lambda s, d: F.addmm(F.ones(5, 5, dtype=d.dtype), s, d.t(), beta=2, alpha=3).pow(2).sum(),
    "mm_of_both": lambda s, d: ((s @ s.t()).to_dense() * (d @ d.t())).sum(),
    "mul": lambda s, d: (s * d).to_dense().pow(2).sum(),
    "mul_of_both": lambda s, d: ((s * s * 2).to_dense() * d).sum(),
    "add": lambda s, d: (d + s).pow(2).sum(),
    "add_of_both": lambda s, d: ((s + s * 3).to_dense() * d).pow(2).sum(),
    "sub": lambda s, d: (d - s / 3).pow(3).sum(),
    "sum": lambda s, d: (s.sum(0).to_dense() * d).sum() + s.sum().pow(2),
    "transpose": lambda s, d: (s.t().to_dense() * d.t()).pow(2).sum(),
    "unary": lambda s, d: (s.sin().to_dense() * d).sum() + s.pow(2).sum(),
    "select": lambda s, d: (s[2].to_dense() * d[1]).sum() + (s[:, 1].to_dense() * d[:, 0]).pow(2).sum(),
    "index_select": lambda s, d: (s.index_select(0, F.tensor([4, 1, 4])).to_dense() * d[:3]).pow(2).sum(),
    "cat": lambda s, d: (F.cat([s, s * 2]).to_dense() * F.cat([d, d])).pow(2).sum(),
    "unsqueeze": lambda s, d: (s.unsqueeze(1).to_dense() * d).pow(2).sum(),
    "norm": lambda s, d: s.norm() * d.sum(),
    "mv": lambda s, d: (s @ d[0]).pow(2).sum(),
    "clone": lambda s, d: (s.clone().double().to_dense() * d).sum(),
    "mask": lambda s, d: (
        (d.sparse_mask(s.detach().coalesce()).to_dense() if s.is_sparse else d * (s != 0)).pow(2).sum()
    ),
}


# Those whose gradient of the sparse operand is that of a dense one, with all its elements.
FULL = {"mm", "mm_of_dense", "addmm", "add", "sub", "sum", "mv"}


@pytest.mark.parametrize("coalesced", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_dense_tensors_everywhere_or_at_the_indices(name, coalesced):
    f, rng = FUNCTIONS[name], np.random.default_rng(1)
    s, _, _ = coo(rng, (5, 6), 12)
    s = s.coalesce() if coalesced else s
    d = F.tensor(rng.standard_normal((5, 6)))
    ds, dd, full = s.detach().requires_grad_(), d.clone().requires_grad_(), s.to_dense().requires_grad_()
    de = d.clone().requires_grad_()
    y, expected = f(ds, dd), f(full, de)
    F.testing.assert_close(y, expected, rtol=1e-10, atol=1e-12)
    if name == "mask":
        y.backward()
        expected.backward()
        F.testing.assert_close(dd.grad, de.grad)
        return
    y.backward()
    expected.backward()
    mask = (s.to_dense() != 0).double()
    if name in FULL:
        assert ds.grad.layout is F.strided
        F.testing.assert_close(ds.grad, full.grad, rtol=1e-10, atol=1e-12)
    else:
        assert ds.grad.is_sparse
        F.testing.assert_close(ds.grad.to_dense() * mask, full.grad * mask, rtol=1e-10, atol=1e-12)
    if de.grad is not None:
        F.testing.assert_close(dd.grad, de.grad, rtol=1e-10, atol=1e-12)
        assert dd.grad.layout is F.strided


def test_second_derivatives_go_through_sparse_tensors():
    v = F.tensor([1.0, 2.0, 3.0], dtype=F.float64, requires_grad=True)
    w = F.tensor(np.random.default_rng(0).standard_normal((3, 4)), requires_grad=True)

    def f(v, w):
        s = F.sparse_coo_tensor([[0, 1, 0], [2, 0, 2]], v, (2, 3))
        return ((s @ w).pow(2) * 0.5).sum() + (s * s).sum()

    assert F.autograd.gradcheck(f, (v, w)) and F.autograd.gradgradcheck(f, (v, w))


def test_gradients_of_several_uses_meet():
    s = F.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2)).coalesce().requires_grad_()
    d = F.ones(2, 2)
    (s.to_dense() * 3).sum().backward()
    F.sparse.mm(s, d).sum().backward()
    F.testing.assert_close(s.grad.coalesce().values(), F.tensor([5.0, 5.0]))
    s.grad = None
    (s.to_dense() * 3 + (s @ d) + d * s.sum()).sum().backward()
    F.testing.assert_close(s.grad, F.tensor([[6.0, 9.0], [9.0, 6.0]]))


@pytest.mark.parametrize(
    "f", ["cos", "exp", "mean", "view", "max", "argmax", "sort", "softmax", "cumsum", "log"]
)
def test_what_is_not_taken_names_itself_and_the_way_out(f):
    s = F.eye(3).to_sparse()
    args = {"view": (9,), "softmax": (1,), "cumsum": (0,)}.get(f, ())
    with pytest.raises(NotImplementedError, match=rf"{f}.*sparse[\s\S]*sparse_coo[\s\S]*to_dense\(\)"):
        getattr(s, f)(*args)


OPERATORS = operators.cases()


def test_every_operator_takes_sparse_tensors_rightly_or_names_itself():
    """A sparse tensor in place of one of each sample: what is not refused is as of dense tensors."""
    taken, wrong = set(), []
    for case in OPERATORS:
        dtype = "float64" if "float64" in case.dtypes else case.dtypes[0]
        if (
            case.random
            or case.writes
            or case.base == "empty_like"
            or case.base.startswith(("_sparse", "sparse_"))
        ):
            continue
        for number, sample in enumerate(case.samples):
            for name in (n for n, a in sample.items() if a["kind"] == "tensor"):
                args = operators.arguments(case, number, dtype)
                given = {**args, name: args[name].to_sparse()}
                try:
                    results = operators.call(case, given)
                except NotImplementedError as error:
                    if "sparse" not in str(error):
                        wrong.append(f"{case.name} {name}: {error}")
                except (RuntimeError, TypeError, ValueError, IndexError) as error:
                    if "sparse" not in str(error).lower() and "layout" not in str(error):
                        wrong.append(f"{case.name} {name}: {type(error).__name__} {error}")
                else:
                    taken.add(case.name)
                    for r, e in zip(results, operators.call(case, args)):
                        try:
                            F.testing.assert_close(r.to_dense(), e, equal_nan=True)
                        except AssertionError as error:
                            wrong.append(f"{case.name} {name} {number}: {error}")
    assert not wrong, "\n".join(wrong[:20])
    assert {"add", "mul", "mm", "matmul", "addmm", "sum", "sin", "transpose", "clone"} <= taken, taken


def test_layouts_are_not_ignored_where_tensors_are_made():
    for make in (F.zeros, F.ones, F.empty, F.rand):
        with pytest.raises((NotImplementedError, TypeError), match="sparse_coo"):
            make(2, 3, layout=F.sparse_coo)
    assert F.zeros(2, layout=F.strided).layout is F.strided
    assert (
        repr(F.sparse_csr) == "facula.sparse_csr" and pickle.loads(pickle.dumps(F.sparse_coo)) is F.sparse_coo
    )


def test_elements_are_not_assigned():
    s = F.eye(2).to_sparse()
    with pytest.raises(NotImplementedError, match="assigned"):
        s[0] = 0


def test_indices_are_checked_always():
    for wrong in ([[0, 2]], [[0, -1]]):
        with pytest.raises(RuntimeError, match="index"):
            F.sparse_coo_tensor(wrong, [1.0, 2.0], (2,))
    good = ([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2))
    assert F.sparse_csr_tensor(*good)._nnz() == 2
    for k, wrong in (
        (0, [0, 1]),
        (0, [1, 1, 2]),
        (0, [0, 1, 3]),
        (0, [0, 3, 2]),
        (1, [0, 2]),
        (1, [0, -1]),
        (2, [1.0]),
    ):
        with pytest.raises(RuntimeError, match="sparse_csr_tensor"):
            F.sparse_csr_tensor(*good[:k], wrong, *good[k + 1 :])


def test_copies_and_pickles_keep_what_they_are():
    s = F.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3), dtype=F.float64)
    c = s.to_sparse_csr()
    for t in (
        s,
        s.coalesce(),
        c,
        F.sparse_coo_tensor(size=(2, 0)),
        F.sparse_coo_tensor([[1]], [[1.0, 2.0]], (3, 2)),
    ):
        file = io.BytesIO()
        F.save({"t": t}, file)
        file.seek(0)
        for other in (copy.deepcopy(t), copy.copy(t), pickle.loads(pickle.dumps(t)), F.load(file)["t"]):
            assert other.layout is t.layout and other.shape == t.shape and other.dtype == t.dtype
            assert not t.is_sparse or other.is_coalesced() == t.is_coalesced()
            F.testing.assert_close(other, t)
    other = copy.deepcopy(s)
    other._values().mul_(2)
    assert s._values().tolist() == [1.0, 2.0, 3.0]


def test_files_with_wrong_indices_are_refused(monkeypatch):
    from facula import _utils

    s = F.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (6,))
    file = io.BytesIO()
    whole = _utils.reduced

    def shrunk(t):
        f, args = whole(t)
        return (f, (args[0], (*args[1][:2], F.Size([2]), False))) if t.is_sparse else (f, args)

    monkeypatch.setattr(_utils, "reduced", shrunk)
    F.save(s, file)
    monkeypatch.undo()
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="found index 5"):
        F.load(file)


def test_clipping_takes_sparse_gradients():
    e = F.nn.Embedding(5, 2, sparse=True)
    e(F.tensor([1, 2, 2])).sum().backward()
    expected = F.tensor([1.0, 1.0, 2.0, 2.0]).norm()
    F.testing.assert_close(F.nn.utils.clip_grad_norm_(e.parameters(), 1.0), expected)
    assert e.weight.grad.is_sparse
    F.testing.assert_close(e.weight.grad.norm(), F.tensor(1.0), rtol=1e-5, atol=1e-5)


def test_traced_functions_refuse_sparse_tensors():
    s = F.eye(3).to_sparse()
    with pytest.raises(NotImplementedError, match="sparse"):
        trace(lambda x: x @ s, F.ones(3, 3))


def test_a_module_with_sparse_gradients_trains_as_with_dense_ones():
    F.manual_seed(0)
    a = F.nn.Embedding(20, 4, sparse=True, padding_idx=3)
    b = copy.deepcopy(a)
    b.sparse = False
    oa, ob = F.optim.SGD(a.parameters(), lr=0.1), F.optim.SGD(b.parameters(), lr=0.1)
    rng = np.random.default_rng(0)
    for _ in range(10):
        at = F.tensor(rng.integers(0, 20, (3, 5)))
        for m, o in ((a, oa), (b, ob)):
            o.zero_grad()
            m(at).pow(2).sum().backward()
            o.step()
    F.testing.assert_close(a.weight, b.weight)


# ---- products that are reduced otherwise, or asked for at places only


def csr(seed=0, rows=5, columns=4):
    """A matrix of which a row is empty, and its dense form."""
    g = np.random.default_rng(seed)
    dense = g.standard_normal((rows, columns)) * (g.random((rows, columns)) < 0.6)
    dense[1] = 0
    return F.tensor(dense).to_sparse_csr(), dense


@pytest.mark.parametrize("how", ["sum", "mean", "amax", "amin"])
def test_reduced_products_and_their_gradients_are_those_of_the_terms(how):
    a, dense = csr()
    b = F.tensor(np.random.default_rng(1).standard_normal((4, 3)), requires_grad=True)
    a = a.requires_grad_()
    y = F.sparse.mm(a, b, how)
    weight = F.arange(15.0, dtype=F.float64).reshape(5, 3).cos()
    (y * weight).sum().backward()
    grad_a, grad_b = np.zeros_like(dense), np.zeros((4, 3))
    reduce = {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}[how]
    values, w = b.detach().numpy(), weight.numpy()
    for i, k in itertools.product(range(5), range(3)):
        at = np.flatnonzero(dense[i])
        terms = dense[i, at] * values[at, k]
        assert np.isclose(float(y[i, k].detach()), reduce(terms) if len(at) else 0, rtol=1e-14, atol=1e-15)
        if how in ("amax", "amin") and len(at):
            at = at[[(np.argmax if how == "amax" else np.argmin)(terms)]]
        share = w[i, k] / (max(len(at), 1) if how == "mean" else 1)
        for j in at:
            grad_a[i, j] += share * values[j, k]
            grad_b[j, k] += share * dense[i, j]
    assert a.grad.layout is F.sparse_csr
    np.testing.assert_allclose(a.grad.to_dense().numpy(), grad_a * (dense != 0), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(b.grad.numpy(), grad_b, rtol=1e-13, atol=1e-14)


def test_of_equal_terms_the_first_is_taken_and_nan_is_the_extreme():
    a = F.tensor([[1.0, 1.0, 1.0]]).to_sparse_csr().requires_grad_()
    b = F.ones(3, 2, requires_grad=True)
    F.sparse.mm(a, b, "amax").sum().backward()
    assert a.grad.values().tolist() == [2.0, 0.0, 0.0] and b.grad.tolist() == [[1, 1], [0, 0], [0, 0]]
    holed = F.tensor([[1.0], [math.nan], [3.0]])
    for how in ("amax", "amin", "sum", "mean"):
        assert math.isnan(F.sparse.mm(a.detach(), holed, how).item())


def test_16_bit_products_are_added_up_in_float32():
    v = F.tensor(np.random.default_rng(0).random((1, 3000))).bfloat16()
    total = F.sparse.mm(v.to_sparse_csr(), F.ones(3000, 1).bfloat16(), "sum")
    assert total.item() == v.double().sum().bfloat16().item()


@pytest.mark.parametrize("dtype", [F.float64, F.complex128])
def test_sampled_products_and_their_gradients_are_those_of_dense_matrices(dtype):
    g = np.random.default_rng(2)

    def numbers(*shape):
        x = g.standard_normal(shape)
        return x + 1j * g.standard_normal(shape) if dtype.is_complex else x

    dense = numbers(4, 5) * (g.random((4, 5)) < 0.5)
    s = F.tensor(dense).to_sparse_csr().requires_grad_()
    a, b = (F.tensor(numbers(*n), requires_grad=True) for n in ((4, 3), (3, 5)))
    y = F.sparse.sampled_addmm(s, a, b, beta=0.5, alpha=2.0)
    assert y.layout is F.sparse_csr and y.col_indices().tolist() == s.col_indices().tolist()
    mask = F.tensor(dense != 0)
    d, c, e = (t.detach().requires_grad_() for t in (F.tensor(dense), a, b))
    wanted = (0.5 * d + 2.0 * (c @ e)) * mask
    np.testing.assert_allclose(y.detach().to_dense().numpy(), wanted.detach().numpy(), rtol=1e-13)
    weight = F.tensor(numbers(4, 5))
    found = F.autograd.grad((y.to_dense() * weight).abs().sum(), [s, a, b])
    expected = F.autograd.grad((wanted * weight).abs().sum(), [d, c, e])
    for x, z in zip((found[0].to_dense(), *found[1:]), expected):
        np.testing.assert_allclose(x.numpy(), z.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("f", "error", "why"),
    [
        (lambda a, b: F.sparse.mm(a, b, "prod"), RuntimeError, "sum, mean, amax, amin, max, min, got 'prod'"),
        (
            lambda a, b: F.sparse.mm(a.to_sparse(), b, "sum"),
            NotImplementedError,
            "sparse_csr and a dense one",
        ),
        (lambda a, b: F.sparse.mm(a, b[:2], "sum"), RuntimeError, "5x4 and 2x3"),
        (lambda a, b: F.sparse.mm(a, b.float(), "sum"), RuntimeError, "float64 and float32"),
        (lambda a, b: F.sparse.sampled_addmm(a.to_dense(), b, b), NotImplementedError, "sparse_csr, got"),
        (lambda a, b: F.sparse.sampled_addmm(a, b, b), RuntimeError, "^sampled_addmm: mat1.*4x3 and 4x3"),
        (lambda a, b: F.sparse.sampled_addmm(a, b, b.T), RuntimeError, r"self of shape \[5, 4\]"),
        (lambda a, b: F.sparse.sampled_addmm(a, b, a), RuntimeError, "mat2 to have strided layout"),
    ],
)
def test_such_products_refuse_what_does_not_fit(f, error, why):
    a, _ = csr()
    with pytest.raises(error, match=why):
        f(a, F.ones(4, 3, dtype=F.float64))


def test_a_layout_is_asked_for_by_name():
    dense = F.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]])
    for layout in (F.sparse_coo, F.sparse_csr, F.sparse_csc):
        made = dense.to_sparse(layout=layout)
        assert made.layout is layout and F.equal(made.to_dense(), dense)
        assert made.to_sparse(layout=layout) is made
        assert made.to_sparse(layout=F.sparse_csr).layout is F.sparse_csr
    assert dense.to_sparse(layout=F.strided) is dense
    assert dense.to_sparse(dense_dim=1).sparse_dim() == 1 == dense.to_sparse(1).sparse_dim()
    with pytest.raises(NotImplementedError, match="to_sparse: layout .*sparse_bsr is not supported"):
        dense.to_sparse(layout=F.sparse_bsr)
    with pytest.raises(RuntimeError, match="blocksize argument given is not supported"):
        dense.to_sparse(blocksize=(1, 1))
    with pytest.raises(TypeError, match="sparse_dim is given without layout"):
        dense.to_sparse(1, layout=F.sparse_coo)
    with pytest.raises(NotImplementedError, match="no dense dimensions"):
        dense.to_sparse(layout=F.sparse_csr, dense_dim=1)
    with pytest.raises(RuntimeError, match="dense_dim must be between 0 and 2"):
        dense.to_sparse(layout=F.sparse_coo, dense_dim=3)
