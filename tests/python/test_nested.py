"""Nested tensors against the same function of each row."""

from __future__ import annotations

import copy
import pickle

import facula.nn.functional as F
import numpy as np
import pytest
from facula.nested import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)

import facula

LENGTHS = (3, 0, 1, 5)


def rows(*features, seed=0):
    g = np.random.default_rng(seed)
    return [facula.tensor(g.standard_normal((n, *features))) for n in LENGTHS]


def test_contiguous_packs_rows_that_have_elements_between_them():
    whole = facula.arange(20.0).view(2, 10)
    start, length = facula.tensor([0, 2]), facula.tensor([3, 4])
    nt = facula.nested.narrow(whole, 1, start, length, layout=facula.jagged)
    packed = nt.contiguous()
    assert packed.values().tolist() == [0, 1, 2, 12, 13, 14, 15]
    assert packed.offsets().tolist() == [0, 3, 7] and packed.lengths() is None and packed.is_contiguous()
    assert nt.clone().values().shape == (20,)
    assert nt.clone(memory_format=facula.contiguous_format).values().tolist() == packed.values().tolist()


def test_tensors_of_the_offsets_of_another_fit_it():
    a = nested_tensor([facula.arange(4.0), facula.arange(6.0)], layout=facula.jagged)
    b = nested_tensor_from_jagged(facula.arange(10.0), a.offsets())
    assert (a + b).values().tolist() == [0, 2, 4, 6, 4, 6, 8, 10, 12, 14]
    assert a.shape == b.shape


def jagged(*features):
    """Rows, and a nested tensor of them that gradients go through."""
    made = [r.requires_grad_() for r in rows(*features)]
    return made, as_nested_tensor(made, layout=facula.jagged)


def holed():
    """Rows with elements between them."""
    dense = facula.tensor(np.random.default_rng(1).standard_normal((3, 6, 4)))
    start, length = facula.tensor([0, 2, 5]), facula.tensor([4, 3, 0])
    return [dense[0, 0:4], dense[1, 2:5], dense[2, 5:5]], narrow(
        dense, 1, start, length, layout=facula.jagged
    )


def close(a, b):
    facula.testing.assert_close(a, b)


def close_rows(nested, wanted):
    given = nested.unbind()
    assert len(given) == len(wanted)
    for a, b in zip(given, wanted):
        close(a, b)


def test_what_it_is_made_of():
    given = rows(4)
    nt = nested_tensor(given, layout=facula.jagged)
    assert (nt.dim(), nt.size(0), nt.size(-1), len(nt), nt.numel()) == (3, 4, 4, 4, 36)
    assert nt.is_nested and nt.layout is facula.jagged and nt.dtype == facula.float64
    assert nt.offsets().tolist() == [0, 3, 3, 4, 9] and nt.lengths() is None
    assert nt.shape[1] == nt.size(1) and nt.shape[1] == (nt * 2).shape[1]
    assert nt.shape[1] != nested_tensor(given, layout=facula.jagged).shape[1]
    assert repr(nt.shape).startswith("facula.Size([4, j")
    close(nt.values(), facula.cat(given))
    close_rows(nt, given)


def test_copies_have_no_history_and_views_of_rows_have_one():
    a = facula.ones(2, 3, requires_grad=True)
    assert not nested_tensor([a], layout=facula.jagged).requires_grad
    leaf = nested_tensor([a, a[:1]], layout=facula.jagged, requires_grad=True)
    (leaf * 3).sum().backward()
    close_rows(leaf.grad, [facula.full((2, 3), 3.0), facula.full((1, 3), 3.0)])
    (as_nested_tensor([a, a[:1]], layout=facula.jagged) * 2).values().sum().backward()
    assert a.grad.tolist() == [[4.0] * 3, [2.0] * 3]


def test_the_same_offsets_fit_each_other():
    offsets, x, y = facula.tensor([0, 2, 5]), facula.arange(5.0), facula.ones(5)
    a, b = (nested_tensor_from_jagged(v, offsets) for v in (x, y))
    close((a + b).values(), x + 1)
    assert a.values() is x
    with pytest.raises(RuntimeError, match="binary pointwise function add"):
        a + nested_tensor_from_jagged(y, facula.tensor([0, 2, 5]))


def test_padding():
    given, nt = jagged(2)
    dense = to_padded_tensor(nt, -1.0)
    assert dense.shape == (4, 5, 2)
    for k, r in enumerate(given):
        close(dense[k, : len(r)], r)
        assert (dense[k, len(r) :] == -1).all()
    wide = nt.to_padded_tensor(0.0, (4, 7, 3))
    assert wide.shape == (4, 7, 3) and not wide[:, :, 2].any() and not wide[:, 5:].any()
    dense.sum().backward()
    assert all((r.grad == 1).all() for r in given)
    with pytest.raises(NotImplementedError, match="to_padded_tensor"):
        to_padded_tensor(facula.ones(2, 2), 0.0)


@pytest.mark.parametrize(
    "f",
    [
        facula.sin,
        F.gelu,
        lambda x: x * 2 - 1,
        lambda x: 1 - x,
        lambda x: 2 / (x * x + 1),
        lambda x: x**2,
        abs,
        lambda x: -x,
        lambda x: x.clamp(min=0).to(facula.float32),
        lambda x: facula.where(x > 0, x, 0.0),
        lambda x: x.masked_fill(x > 0, 7.0),
        lambda x: F.dropout(x, 0.0),
        lambda x: facula.zeros_like(x),
        lambda x: F.linear(x, facula.arange(12.0, dtype=facula.float64).reshape(3, 4).sin()),
        lambda x: x @ facula.arange(8.0, dtype=facula.float64).reshape(4, 2).cos(),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.rms_norm(x, (4,)),
        lambda x: F.softmax(x, -1),
        lambda x: facula.cat([x, x * 2], -1),
        lambda x: x[..., 1:3],
        lambda x: x[..., -1],
        lambda x: x.sum(-1),
        lambda x: x.amax(-1, keepdim=True),
        lambda x: x.unflatten(-1, (2, 2)).transpose(-1, -2).flatten(-2),
        lambda x: x.unsqueeze(-1).squeeze(-1),
    ],
)
def test_functions_are_those_of_each_row(f):
    for given, nt in (jagged(4), holed()):
        found = f(nt)
        assert isinstance(found, type(nt))
        close_rows(found, [f(r) for r in given])


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod"])
def test_reductions_over_the_ragged_dimension(name):
    for given, nt in (jagged(4), holed()):
        found = getattr(nt, name)(1)
        for k, r in enumerate(given):
            if len(r):
                close(found[k], getattr(r, name)(0))
    assert getattr(nt, name)(1, keepdim=True).shape == (len(nt), 1, 4)


def test_reductions_over_all_and_over_rows():
    given, nt = jagged(4)
    flat = facula.cat(given)
    close(nt.sum(), flat.sum())
    close(nt.mean((0, 1)), flat.mean(0))
    assert nt.max() == flat.max()
    values, indices = nested_tensor(given[2:], layout=facula.jagged).max(1)
    close(values[1], given[3].max(0).values)
    assert indices[1].tolist() == given[3].max(0).indices.tolist()
    for dim, why in ((0, "batch dimension but not the ragged"), ((1, 2), "ragged and non-batch")):
        with pytest.raises(RuntimeError, match=f"sum.*{why}"):
            nt.sum(dim)


def test_softmax_over_the_ragged_dimension_and_its_gradient():
    given, nt = jagged(2)
    weights = facula.arange(18.0, dtype=facula.float64).reshape(9, 2)
    (F.softmax(nt, 1).values() * weights).sum().backward()
    found = [r.grad for r in given]
    for r, w in zip(given, weights.split(list(LENGTHS))):
        r.grad = None
        (F.softmax(r, 0) * w).sum().backward()
    for a, r in zip(found, given):
        close(a, r.grad)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_each_row(causal):
    made = [r.requires_grad_() for r in rows(12) if len(r)]
    x = as_nested_tensor(made, layout=facula.jagged).view(3, -1, 3, 4).transpose(1, 2)
    y = F.scaled_dot_product_attention(x, x, x, is_causal=causal).transpose(1, 2).flatten(-2)
    weight = facula.arange(12.0, dtype=facula.float64).sin()
    (y.values() * weight).sum().backward()
    found, wanted = [r.grad for r in made], []
    for r in made:
        r.grad = None
        q = r.view(-1, 3, 4).transpose(0, 1)
        wanted.append(F.scaled_dot_product_attention(q, q, q, is_causal=causal).transpose(0, 1).flatten(-2))
        (wanted[-1] * weight).sum().backward()
    close_rows(y, wanted)
    for a, r in zip(found, made):
        close(a, r.grad)


def test_dense_operands():
    given, nt = jagged(4)
    each = facula.arange(4.0, dtype=facula.float64).reshape(4, 1, 1)
    close_rows(nt * each, [r * k for k, r in enumerate(given)])
    close_rows(nt + facula.arange(4.0), [r + facula.arange(4.0) for r in given])
    dense = facula.arange(80.0, dtype=facula.float64).reshape(4, 5, 4)
    close_rows(nt + dense, [r + dense[k, : len(r)] for k, r in enumerate(given)])
    matrices = facula.arange(48.0, dtype=facula.float64).reshape(4, 4, 3)
    close_rows(nt.matmul(matrices), [r @ m for r, m in zip(given, matrices)])
    a, b = nt.transpose(1, 2), nt * 2
    close(facula.bmm(a, b)[3], given[3].T @ (given[3] * 2))
    for wrong in (facula.ones(3, 4), facula.ones(4, 2, 4)):
        with pytest.raises(RuntimeError, match="binary pointwise function mul"):
            nt * wrong


def test_indices():
    given, nt = jagged(4)
    close(nt[3], given[3])
    close(nt[3, 1:3, 0], given[3][1:3, 0])
    tail = nested_tensor(given[2:], layout=facula.jagged)
    close(tail[:, -1], facula.stack([given[2][-1], given[3][-1]]))
    for bad in (lambda: nt[4], lambda: nt[:, 0], lambda: nt.size(3)):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(RuntimeError, match="slice"):
        nt[1:]


def test_parts_of_rows_share_their_memory():
    dense = facula.arange(12.0).reshape(2, 6)
    nt = narrow(dense, 1, facula.tensor([1, 0]), facula.tensor([2, 3]), layout=facula.jagged)
    assert [r.tolist() for r in nt] == [[1.0, 2.0], [6.0, 7.0, 8.0]] and nt.lengths().tolist() == [2, 3]
    assert not nt.is_contiguous() and nt.sum() == 24
    nt.unbind()[0].zero_()
    assert dense[0].tolist() == [0.0, 0.0, 0.0, 3.0, 4.0, 5.0]
    with pytest.raises(RuntimeError, match="leave rows of 6"):
        narrow(dense, 1, 4, 3, layout=facula.jagged)


def test_chosen_elements():
    mask = facula.tensor([[True, False, True], [False, False, False], [False, True, False]])
    nt = masked_select(facula.arange(9).reshape(3, 3), mask)
    assert [r.tolist() for r in nt] == [[0, 2], [], [7]]


def test_modules_and_in_place_functions():
    given, nt = jagged(4)
    net = facula.nn.Sequential(facula.nn.Linear(4, 3), facula.nn.ReLU(), facula.nn.LayerNorm(3)).double()
    close_rows(net(nt), [net(r) for r in given])
    words = nested_tensor([[1, 2], [0]], layout=facula.jagged, dtype=facula.int64)
    table = facula.nn.Embedding(3, 2)
    close_rows(table(words), [table(facula.tensor([1, 2])), table(facula.tensor([0]))])
    x = nt.detach().clone()
    assert x.add_(1) is x
    close(x.values(), nt.values().detach() + 1)


def test_copies_and_files():
    nt = nested_tensor(rows(2), layout=facula.jagged)
    for other in (copy.deepcopy(nt), pickle.loads(pickle.dumps(nt))):
        close_rows(other, list(nt.unbind()))
    assert copy.deepcopy(nt).shape[1] == nt.shape[1]


def test_what_is_refused_names_the_function():
    nt = nested_tensor(rows(2), layout=facula.jagged)
    with pytest.raises(NotImplementedError, match="layout=facula.jagged"):
        nested_tensor([facula.ones(1)])
    with pytest.raises(NotImplementedError, match="conv1d: not supported for nested tensors"):
        F.conv1d(nt, facula.ones(1, 1, 1))
    with pytest.raises(NotImplementedError, match="T: not supported"):
        nt.T  # noqa: B018
    with pytest.raises(RuntimeError, match="differ in their first dimension only"):
        nested_tensor([facula.ones(1, 2), facula.ones(1, 3)], layout=facula.jagged)
    with pytest.raises(RuntimeError, match="offsets or lengths"):
        nested_tensor_from_jagged(facula.ones(3))
    with pytest.raises(RuntimeError, match="rows end at 4"):
        nested_tensor_from_jagged(facula.ones(3), facula.tensor([0, 4]))
    with pytest.raises(RuntimeError, match="ragged"):
        F.layer_norm(nested_tensor([[1.0], [2.0, 3.0]], layout=facula.jagged), (2,))
