"""Names that PyTorch's programs know, beside layers and operators: pruning, attention's choices, losses by
chunks, storages, futures, helpers of tests. Expectations are PyTorch's answers, or other functions of ours.
"""

from __future__ import annotations

import gc
import pickle
import threading

import pytest
from facula.nn.attention import SDPBackend, sdpa_kernel
from facula.nn.attention.bias import causal_lower_right, causal_upper_left
from facula.nn.utils import prune
from facula.testing import assert_close, make_tensor

import facula
from facula import nn
from facula.nn import functional as F

# ---- pruning


def linear(rows=2, columns=3):
    m = nn.Linear(columns, rows)
    with facula.no_grad():
        m.weight.copy_(facula.arange(1.0, rows * columns + 1).view(rows, columns))
    return m


def test_unstructured_pruning_masks_the_smallest_and_trains_the_rest():
    m = prune.l1_unstructured(linear(), "weight", amount=2)
    assert m.weight_mask.tolist() == [[0, 0, 1], [1, 1, 1]] and list(m.state_dict()) == [
        "bias",
        "weight_orig",
        "weight_mask",
    ]
    m(facula.ones(3)).sum().backward()
    assert m.weight_orig.grad.tolist() == m.weight_mask.tolist()
    with facula.no_grad():
        m.weight_orig.fill_(7)
    m(facula.ones(3))
    assert m.weight.tolist() == [[0, 0, 7], [7, 7, 7]]  # computed anew before each call
    prune.remove(m, "weight")
    assert not prune.is_pruned(m) and isinstance(m.weight, nn.Parameter)
    assert list(m.state_dict()) == ["bias", "weight"] and m.weight.tolist()[0] == [0, 0, 7]


def test_pruning_again_prunes_what_is_left():
    m = prune.l1_unstructured(linear(), "weight", amount=0.5)
    prune.l1_unstructured(m, "weight", amount=1)
    assert m.weight_mask.tolist() == [[0, 0, 0], [0, 1, 1]]
    prune.ln_structured(m, "weight", amount=1, n=1, dim=1)
    assert m.weight_mask.tolist() == [[0, 0, 0], [0, 0, 1]]  # of the columns that are left, the smaller
    assert len(m._forward_pre_hooks) == 1 and len(next(iter(m._forward_pre_hooks.values()))) == 3


def test_structured_random_global_and_given_masks():
    assert prune.ln_structured(linear(), "weight", amount=1, n=2, dim=0).weight_mask.tolist() == [
        [0] * 3,
        [1] * 3,
    ]
    m = prune.random_structured(linear(), "weight", amount=1, dim=1)
    assert m.weight_mask.sum(0).sort().values.tolist() == [0, 2, 2]
    assert prune.random_unstructured(linear(), "weight", amount=4).weight_mask.sum().item() == 2
    mask = facula.tensor([[1.0, 0, 1], [0, 1, 1]])
    assert facula.equal(prune.custom_from_mask(linear(), "weight", mask).weight_mask, mask)
    assert prune.identity(linear(), "weight").weight_mask.min().item() == 1
    a, b = linear(), linear(1, 4)
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=3)
    assert (a.weight_mask == 0).sum().item() + (b.weight_mask == 0).sum().item() == 3


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda: prune.l1_unstructured(linear(), "weight", amount="a"), TypeError, "Invalid type for amount"),
        (
            lambda: prune.l1_unstructured(linear(), "weight", amount=1.5),
            ValueError,
            "amount=1.5 should either be",
        ),
        (
            lambda: prune.l1_unstructured(linear(), "weight", amount=7),
            ValueError,
            "should be smaller than the number",
        ),
        (lambda: prune.ln_structured(linear(), "bias", amount=1, n=2, dim=0), ValueError, "multidimensional"),
        (lambda: prune.remove(linear(), "weight"), ValueError, "has to be pruned before"),
    ],
)
def test_pruning_refuses_what_pytorch_refuses(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_a_pruned_module_is_pickled():
    m = prune.l1_unstructured(linear(), "weight", amount=2)
    x = facula.ones(3)
    assert facula.equal(pickle.loads(pickle.dumps(m))(x), m(x))


# ---- attention


def test_causal_masks_know_where_they_begin():
    q, k = facula.randn(1, 2, 3, 4), facula.randn(1, 2, 5, 4)
    for bias, mask in (
        (causal_lower_right(3, 5), facula.ones(3, 5, dtype=facula.bool).tril(2)),
        (causal_upper_left(3, 5), facula.ones(3, 5, dtype=facula.bool).tril()),
    ):
        found = F.scaled_dot_product_attention(q, k, k, attn_mask=bias)
        assert_close(found, F.scaled_dot_product_attention(q, k, k, attn_mask=mask))
        assert type(found) is facula.Tensor
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        F.scaled_dot_product_attention(q, k, k)
    with pytest.raises(ValueError, match="should not be used with causal=True"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=causal_upper_left(3, 3), is_causal=True)


# ---- losses by chunks


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("probabilities", [False, True])
def test_losses_by_chunks_are_those_of_all_logits(reduction, smoothing, weighted, probabilities):
    facula.manual_seed(1)
    weight = facula.rand(9) if weighted else None
    target = facula.rand(7, 9) if probabilities else facula.tensor([0, 8, -100, 3, 3, -100, 1])
    x = facula.randn(7, 4)
    outcomes = []
    for options in (None, nn.LinearCrossEntropyOptions(batch_chunk_size=3), nn.LinearCrossEntropyOptions()):
        facula.manual_seed(2)
        loss = nn.LinearCrossEntropyLoss(
            4, 9, bias=True, weight=weight, reduction=reduction, label_smoothing=smoothing, options=options
        )
        given = x.clone().requires_grad_()
        value = loss(given, target) * 3
        value.backward()
        outcomes.append([value.detach(), given.grad, loss.linear.weight.grad, loss.linear.bias.grad])
    for other in outcomes[1:]:
        for a, b in zip(outcomes[0], other):
            assert_close(a, b)


def test_losses_by_chunks_at_the_edges():
    loss = nn.LinearCrossEntropyLoss(4, 9, options=nn.LinearCrossEntropyOptions(batch_chunk_size=2))
    assert loss(facula.ones(2, 4), facula.tensor([-100, -100])).isnan()  # a mean of nothing
    loss.reduction = "sum"
    assert loss(facula.ones(0, 4), facula.zeros(0, dtype=facula.int64)).item() == 0
    with pytest.raises(IndexError):
        loss(facula.ones(2, 4), facula.tensor([0, 9]))
    with pytest.raises(ValueError, match="expected target of shape"):
        loss(facula.ones(2, 4), facula.tensor([0]))
    x = facula.ones(2, 4, requires_grad=True)
    (g,) = facula.autograd.grad(loss(x, facula.tensor([1, 2])), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="has no second derivative"):
        g.sum().backward()
    for bad in ({"batch_chunk_size": 0}, {"chunking_method": "x"}, {"acc_policy": "x"}):
        with pytest.raises(ValueError):
            nn.LinearCrossEntropyOptions(**bad)
    half = nn.LinearCrossEntropyLoss(4, 9, dtype=facula.bfloat16, options=nn.LinearCrossEntropyOptions())
    assert half(facula.ones(3, 4, dtype=facula.bfloat16), facula.tensor([0, 1, 2])).dtype == facula.bfloat16


def test_other_layers_under_older_names():
    x = facula.randn(2, 6, 3, 3)
    assert_close(nn.CrossMapLRN2d(4, alpha=0.1)(x), nn.LocalResponseNorm(4, alpha=0.1)(x))
    # PyTorch's answer for ones.
    ones = nn.CrossMapLRN2d(4, alpha=0.1)(facula.ones(1, 6, 1, 1)).flatten()
    assert_close(ones, facula.tensor([0.9641, 0.9472, 0.9310, 0.9310, 0.9310, 0.9472]), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="Expected input to be 4D, got 2D"):
        nn.CrossMapLRN2d(3)(facula.ones(2, 3))
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        assert isinstance(nn.NLLLoss2d(), nn.NLLLoss)
    lin, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    bn.running_mean.normal_()
    bn.running_var.uniform_(0.5, 2)
    y = facula.randn(5, 3)
    assert_close(nn.utils.fuse_linear_bn_eval(lin, bn)(y), bn(lin(y)))
    for n, conv in ((1, F.conv1d), (2, F.conv2d), (3, F.conv3d)):
        a = facula.randn(2, 2, *[5] * n, requires_grad=True)
        w = facula.randn(3, 2, *[3] * n, requires_grad=True)
        out = conv(a, w, stride=2, padding=1)
        g = facula.randn_like(out)
        out.backward(g)
        by_input = getattr(nn.grad, f"conv{n}d_input")(a.shape, w, g, 2, 1)
        by_weight = getattr(nn.grad, f"conv{n}d_weight")(a.detach(), w.shape, g, 2, 1)
        assert_close(by_input, a.grad)
        assert_close(by_weight, w.grad)


def test_parallel_of_one_device():
    parts = nn.parallel.scatter((facula.arange(4), {"a": 1}), ["cpu", "cpu"])
    assert [p[0].tolist() for p in parts] == [[0, 1], [2, 3]] and parts[1][1] == {"a": 1}
    assert nn.parallel.gather([p[0] for p in parts], "cpu").tolist() == [0, 1, 2, 3]
    m = nn.Linear(2, 2)
    copies = nn.parallel.replicate(m, ["cpu", "cpu"])
    assert copies[0] is not m and copies[0].weight is m.weight
    found = nn.parallel.parallel_apply(copies, [facula.ones(2), facula.zeros(2)])
    assert_close(found[1], m.bias)
    with pytest.raises(AssertionError, match="CUDA"):
        nn.parallel.scatter((facula.ones(2),), [0, 1])


# ---- tensors and memory


def test_functions_of_python_change_elements():
    x = facula.arange(6.0).view(2, 3).t()
    assert x.apply_(lambda v: v * 2).tolist() == [[0, 6], [2, 8], [4, 10]]
    assert x.map_(facula.ones(2), lambda a, b: a + b).tolist()[0] == [1, 7]
    assert x.map2_(x, x, lambda a, b, c: a + b - c).tolist()[0] == [1, 7]
    with pytest.raises(RuntimeError, match="Can't call apply_"):
        facula.ones(1, requires_grad=True).apply_(abs)
    with pytest.raises(TypeError):
        facula.ones(1).apply_(3)


@pytest.mark.parametrize("rows, columns", [(3, 3), (7, 3), (3, 7), (4, 3), (8, 3), (1, 1), (0, 3)])
def test_diagonals_are_filled_and_wrap_as_numpys(rows, columns):
    import numpy as np

    for wrap in (False, True):
        x, y = facula.zeros(rows, columns), np.zeros((rows, columns), np.float32)
        if rows:
            np.fill_diagonal(y, 5, wrap=wrap)
        assert (x.fill_diagonal_(5, wrap).numpy() == y).all(), (wrap, x)
    if rows == columns == 3:
        cube = facula.zeros(3, 3, 3).fill_diagonal_(2)
        assert cube.sum().item() == 6 and cube[1, 1, 1].item() == 2


def test_set_shares_memory():
    x, y = facula.ones(2), facula.zeros(3, 3)
    assert x.set_(y) is x and x.shape == (3, 3) and x.data_ptr() == y.data_ptr()
    x.set_(y.untyped_storage(), 1, (2, 2), (3, 1))
    y[0, 1] = 4
    assert x.tolist() == [[4, 0], [0, 0]]
    assert x.set_().shape == (0,)
    with pytest.raises(RuntimeError, match="float64"):
        facula.ones(1).set_(facula.ones(1, dtype=facula.float64))


def test_storages_of_ones_own():
    s = facula.FloatStorage([1.0, 2.5])
    assert (
        isinstance(s, facula.TypedStorage) and isinstance(s, facula.FloatStorage) and s.tolist() == [1, 2.5]
    )
    assert not isinstance(s, facula.DoubleStorage) and s.type() == "facula.FloatStorage"
    assert (
        isinstance(facula.ones(1).storage(), facula.FloatStorage)
        and facula.ones(1).storage_type() is facula.FloatStorage
    )
    x = facula.zeros(4, dtype=facula.uint8)
    x.untyped_storage().fill_(7)
    assert x.tolist() == [7] * 4 and s.double().dtype == facula.float64 and len(facula.UntypedStorage(5)) == 5
    c = s.clone()
    c.fill_(0)
    assert s.tolist() == [1, 2.5] and s.copy_(c).tolist() == [0, 0]
    assert s.untyped().nbytes() == 8 and pickle.loads(pickle.dumps(s)).tolist() == [0, 0]


def test_tensors_are_swapped():
    m, w = nn.Linear(2, 2), nn.Parameter(facula.ones(2, 2))
    held = m.weight
    facula.utils.swap_tensors(m.weight, w)
    assert m.weight is held and held.tolist() == [[1, 1], [1, 1]]
    m(facula.ones(2)).sum().backward()
    assert held.grad is not None and w.grad is None
    a, b = facula.zeros(1), facula.ones(2, requires_grad=True)
    a.note = "of a"
    facula.utils.swap_tensors(a, b)
    assert b.note == "of a" and a.requires_grad and not b.requires_grad and not hasattr(a, "note")
    del a, b
    gc.collect()


def test_numbers_of_results_and_facts():
    first, second = facula.ones(3, requires_grad=True).split([1, 2])
    assert (first.output_nr, second.output_nr, facula.ones(1).output_nr) == (0, 1, 0)
    x = facula.ones(2, 3)
    assert x.name is None and not x.is_xla and x.dense_dim() == 2 and x.sparse_dim() == 0
    assert x.to_dense() is x and facula.is_same_size(x, x) and facula.get_device(x) == -1
    with pytest.raises(
        RuntimeError, match="coalesce expected sparse coordinate tensor layout but got Strided"
    ):
        x.coalesce()
    assert isinstance(x.max(0), facula.return_types.max)
    with pytest.raises(AttributeError):
        _ = facula.return_types.nothing


# ---- the top level


def test_functions_of_the_top_level_are_those_of_networks():
    x = facula.randn(2, 3, 8)
    assert_close(facula.adaptive_max_pool1d(x, 4)[0], F.adaptive_max_pool1d(x, 4))
    assert_close(facula.max_pool1d_with_indices(x, 2)[1], F.max_pool1d(x, 2, return_indices=True)[1])
    assert_close(facula.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False), F.instance_norm(x))
    assert facula.cosine_embedding_loss(x[0], x[1], facula.ones(3), 0.0, 0).shape == (3,)
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        facula.cosine_embedding_loss(x[0], x[1], facula.ones(3), 0.0, 7)
    assert facula.range(0, 2, 0.5).tolist() == [0, 0.5, 1, 1.5, 2]
    assert facula.range(1, 3, dtype=facula.int64).tolist() == [1, 2, 3]
    assert facula.native_dropout(facula.ones(2), 0.5, False)[1].all()
    w = facula.randn(3, 4, 5)
    assert_close(facula.norm_except_dim(w, 2, 0), w.reshape(3, -1).norm(2, 1).reshape(3, 1, 1))
    assert facula.sym_max(2, 3.0) == 3.0 and facula.sym_not(False) and facula.sym_sum([1, 2]) == 3
    t = facula.randn(6, 2, 3)
    found = facula.conv_tbc(t, facula.ones(3, 3, 4), facula.zeros(4), 1)
    assert_close(found[2], t[1:4].sum((0, 2)).unsqueeze(-1).expand(2, 4))


def test_futures_wait_call_and_carry_exceptions():
    f = facula.futures.Future()
    following = f.then(lambda done: done.value() + 1)
    threading.Timer(0.01, lambda: f.set_result(1)).start()
    assert following.wait() == 2 and f.done()
    with pytest.raises(RuntimeError, match="already|once|again"):
        f.set_result(3)
    bad = facula.fork(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        facula.wait(bad)
    assert facula.futures.wait_all([facula.fork(int, k) for k in "123"]) == [1, 2, 3]


# ---- helpers


@pytest.mark.parametrize(
    "dtype", [facula.float32, facula.bfloat16, facula.complex64, facula.int64, facula.uint8]
)
def test_make_tensor_stays_in_its_range(dtype):
    x = make_tensor((40, 3), dtype=dtype, low=2, high=5, exclude_zero=True)
    real = facula.view_as_real(x) if dtype.is_complex else x
    assert x.dtype == dtype and real.float().min() >= 2 and real.float().max() <= 5
    assert not make_tensor(4, 3, dtype=dtype, noncontiguous=True).is_contiguous()
    with pytest.raises(ValueError, match="must be less than"):
        make_tensor(3, dtype=dtype, low=5, high=3)


def test_weak_dictionaries_let_tensors_go():
    d, x = facula.utils.weak.WeakTensorKeyDictionary(), facula.ones(2)
    d[x] = 3
    assert d[x] == 3 and x in d and facula.ones(2) not in d and len(d) == 1
    del x
    gc.collect()
    assert len(d) == 0 and list(d) == []


def test_pipes_of_data():
    from facula.utils.data.datapipes.iter import IterableWrapper

    p = IterableWrapper(range(7))
    assert list(p.filter(lambda x: x % 2).map(lambda x: x * x).batch(2)) == [[1, 9], [25]]
    assert sorted(p.shuffle(buffer_size=3)) == list(range(7)) and len(p.batch(2)) == 4
    assert list(IterableWrapper([[1, [2]], [3]]).unbatch(unbatch_level=-1)) == [1, 2, 3]
    assert list(p.zip(p.map(str)))[1] == (1, "1") and list(p.concat(p))[7] == 0
    loaded = list(facula.utils.data.DataLoader(p.sharding_filter(), batch_size=None, num_workers=2))
    assert sorted(loaded) == list(range(7))
    with pytest.raises(AttributeError, match="nothing"):
        p.nothing()


def test_the_environment_is_described():
    text = facula.utils.collect_env.get_pretty_env_info()
    assert facula.__version__ in text and "Python version:" in text and "Libc version:" in text


def test_events_are_read_back_by_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with facula.utils.tensorboard.SummaryWriter(tmp_path) as w:
        for k in range(3):
            w.add_scalar("loss", facula.tensor(0.5 * k), k)
        w.add_histogram("weights", facula.randn(50), 0)
        w.add_text("note", "hello", 0)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert events.Histograms("weights")[0].histogram_value.num == 50


def test_without_tensorboard_the_error_says_so():
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install tensorboard"):
            import facula.utils.tensorboard  # noqa: F401


@pytest.mark.parametrize("n, d", [(5, 1.0), (4, 0.5), (1, 2.0), (0, 1.0), (5, 0.0)])
def test_frequencies_of_transforms_are_numpys(n, d):
    import numpy as np

    with np.errstate(all="ignore"):
        for ours, theirs in ((facula.fft.fftfreq, np.fft.fftfreq), (facula.fft.rfftfreq, np.fft.rfftfreq)):
            if n and d:
                np.testing.assert_allclose(ours(n, d, dtype=facula.float64).numpy(), theirs(n, d))
    assert facula.fft.fftfreq(n, d).shape == (n,) and facula.fft.rfftfreq(n, d).shape == (n // 2 + 1,)
    assert facula.fft.rfftfreq(0).isnan().all()
    for bad in ({"n": -1}, {"n": 3, "dtype": facula.int64}):
        with pytest.raises(RuntimeError):
            facula.fft.fftfreq(**bad)


# ---- attention with functions of scores


def test_flexible_attention_has_gradients_of_all_that_it_reads():
    from facula.nn.attention.flex_attention import create_block_mask, flex_attention

    facula.manual_seed(0)
    q, k, v = (facula.randn(1, 2, 4, 3, dtype=facula.float64, requires_grad=True) for _ in range(3))
    bias = facula.randn(2, 4, 4, dtype=facula.float64, requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i > 0), None, None, 4, 4, BLOCK_SIZE=2)

    def attend(q, k, v, bias):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i, j], mask, return_lse=False)

    assert facula.autograd.gradcheck(attend, (q, k, v, bias))
    assert attend(q, k, v, bias)[0, :, 0].tolist() == [[0, 0, 0], [0, 0, 0]]  # a row that keeps nothing


def test_flexible_attention_is_attention_without_functions():
    from facula.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (facula.randn(2, 2, 7, 4) for _ in range(3))
    assert_close(flex_attention(q, k, v), F.scaled_dot_product_attention(q, k, v))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 7, 7)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(flex_attention(q, k, v, block_mask=mask), expected)


def test_families_of_layers_have_the_bases_that_libraries_name():
    padding, pooling = nn.modules.padding, nn.modules.pooling
    for kind in ("Constant", "Reflection", "Replication", "Circular"):
        base = getattr(padding, f"_{kind}PadNd")
        for other in ("Constant", "Reflection", "Replication", "Circular"):
            layers = [getattr(nn, f"{other}Pad{n}d") for n in (1, 2, 3)]
            assert all(issubclass(layer, base) == (kind == other) for layer in layers)
    for kind in ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool", "MaxUnpool", "LPPool"):
        assert issubclass(getattr(nn, f"{kind}2d"), getattr(pooling, f"_{kind}Nd"))
