"""What users of PyTorch depend on without thinking of it: ties, aliasing, versions, promotion, indexing,
sharing, copies, threads.
"""

import builtins
import copy
import json
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from support import recording
from support.dtypes import NUMPY_DTYPES
from support.mixed import outcome

import facula as F

GOLDEN = Path(__file__).parent.parent / "golden"


def leaf(x, dtype=None):
    return F.tensor(x, dtype=dtype or F.float64, requires_grad=True)


# ---- ties, first positions, norms, conjugates


@pytest.mark.parametrize(
    "f", [lambda x: x.max(), lambda x: x.amax(), lambda x: (-x).min().neg(), lambda x: -(-x).amin()]
)
def test_a_full_extremum_spreads_its_gradient_evenly_over_ties(f):
    x = leaf([1.0, 3.0, 3.0, 3.0])
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, 1 / 3, 1 / 3, 1 / 3])


def test_an_extremum_along_a_dimension_gives_its_gradient_to_the_index_it_returns():
    x = leaf([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])
    values, indices = x.max(1)
    values.sum().backward()
    assert indices.tolist() == [1, 0]
    assert x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_amax_along_a_dimension_spreads_over_ties():
    x = leaf([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    x.amax(1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0, 0.5, 0.5], [1 / 3] * 3])


@pytest.mark.parametrize("n", [3, 17, 100, 5000])
def test_argmax_and_argmin_return_the_first_index(n):
    x = F.zeros(n)
    x[n // 2] = x[n - 1] = 5
    assert x.argmax().item() == n // 2
    assert (-x).argmin().item() == n // 2
    assert F.zeros(n).argmax().item() == 0
    assert x.reshape(1, n).max(1).indices.tolist() == [n // 2]


def test_nan_is_the_extremum():
    x = F.tensor([1.0, float("nan"), 3.0, float("nan")])
    assert x.max().isnan() and x.min().isnan()
    assert x.argmax().item() == 1 and x.argmin().item() == 1
    assert x.max(0).indices.item() == 1


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, float("inf"), -float("inf"), -1])
@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1), -1])
def test_norm_keeps_dimensions_for_every_order(p, dim):
    x = F.tensor(np.random.default_rng(1).normal(size=(3, 4)))
    kept = x.norm(p, dim=dim, keepdim=True)
    axes = {None: (0, 1), 0: (0,), 1: (1,), (0, 1): (0, 1), -1: (1,)}[dim]
    assert tuple(kept.shape) == tuple(1 if k in axes else n for k, n in enumerate((3, 4)))
    assert kept.dim() == 2
    flat = x.numpy().reshape(-1) if len(axes) == 2 else x.numpy()
    want = np.linalg.norm(flat, p, axis=None if flat.ndim == 1 else axes[0])
    np.testing.assert_allclose(kept.numpy().reshape(-1), np.ravel(want), rtol=1e-12)
    assert x.norm(p, dim=dim).shape == np.shape(want)


# Sizes, strides, and what add_(arange) leaves in a stretch of zeros (PyTorch 2.13).
OVERLAPS = [((2, 3), (3, 2)), ((2, 2, 2), (3, 5, 7)), ((3, 4), (4, 3)), ((5, 4), (4, 5)), ((3, 2), (2, 3))]


@pytest.mark.parametrize("sizes, strides", OVERLAPS)
def test_writes_go_through_strides_that_interleave(sizes, strides):
    places = [sum(i * s for i, s in zip(at, strides, strict=True)) for at in np.ndindex(*sizes)]
    numbers = F.arange(len(places)).float().reshape(sizes) + 1
    for write in [
        lambda v: v.add_(numbers),
        lambda v: v.copy_(numbers),
        lambda v: F.mul(numbers, 1, out=v),
        lambda v: v.fill_(1).mul_(numbers),
        lambda v: v.zero_().cumsum_(0).add_(numbers),
    ]:
        room = F.zeros(40)
        write(room.as_strided(sizes, strides))
        expected = np.zeros(40)
        for k, place in enumerate(places):
            expected[place] = k + 1 if len(set(places)) == len(places) else expected[place]
        if len(set(places)) == len(places):
            np.testing.assert_array_equal(room.numpy(), expected)


def test_writes_through_strides_that_overlap_are_in_order():
    """As PyTorch's: each place takes part as often as it is there, from the largest stride on."""
    room = F.zeros(6)
    room.as_strided((3, 3), (1, 1)).add_(1)
    assert room.tolist() == [1, 2, 3, 2, 1, 0]
    room.as_strided((2, 2), (1, 1)).copy_(F.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert room.tolist() == [1, 3, 4, 2, 1, 0]
    room.as_strided((2, 3), (1, 2)).fill_(7)
    assert room.tolist() == [7] * 6
    room = F.zeros(7)
    room.as_strided((2, 3), (1, 2)).add_(F.arange(6.0).reshape(2, 3))
    assert room.tolist() == [0, 3, 1, 4, 2, 5, 0]
    room = F.zeros(7)
    room.as_strided((3, 3), (2, 1)).mul_(2).add_(1).mul_(3)
    assert room.tolist() == [3, 3, 18, 3, 18, 3, 3]
    room.as_strided((3, 3), (1, 2)).copy_(F.arange(9.0).reshape(3, 3))
    assert room.tolist() == [0, 3, 1, 4, 2, 5, 8]
    for refused in [lambda v: v.add_(1), lambda v: v.copy_(F.ones(3, 2)), lambda v: F.add(v, 1, out=v)]:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            refused(F.zeros(2).expand(3, 2))
    assert F.zeros(2).expand(3, 2).fill_(1).tolist() == [[1, 1]] * 3


def test_conj_of_a_real_tensor_is_itself():
    x = F.tensor([1.0, 2.0])
    assert x.conj() is x
    z = F.tensor([1 + 2j])
    assert z.conj().item() == 1 - 2j


def test_a_gradient_at_the_corner_of_relu_and_abs_is_zero():
    x = leaf([-1.0, 0.0, 2.0])
    (F.relu(x) + x.abs()).sum().backward()
    assert x.grad.tolist() == [-1.0, 0.0, 2.0]


def test_clamp_passes_the_gradient_at_its_limits():
    x = leaf([-2.0, -1.0, 0.0, 1.0, 2.0])
    x.clamp(-1, 1).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]


def test_norm_of_zeros_has_a_gradient_of_zeros():
    x = leaf([0.0, 0.0])
    x.norm().backward()
    assert x.grad.tolist() == [0, 0]


# ---- views and versions


@pytest.mark.parametrize(
    "pieces", [lambda x: x.split(2), lambda x: x.chunk(2), lambda x: x.unbind(0), lambda x: x.split([1, 3])]
)
def test_outputs_of_split_are_views_that_refuse_writing(pieces):
    x = leaf([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    y = x * 1
    piece = pieces(y)[0]
    assert piece.data_ptr() == y.data_ptr()
    with pytest.raises(
        RuntimeError, match="(Split|Chunk|Unbind)Backward0 is a view and is being modified inplace"
    ):
        piece.mul_(2)


def test_a_write_to_a_saved_tensor_names_both_operators():
    x = leaf([1.0, 2.0])
    y = x.exp()
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError) as e:
        z.sum().backward()
    assert "MulBackward0" in str(e.value) and "add_" in str(e.value) and "version" in str(e.value)


def test_a_write_through_a_view_is_seen_too():
    x = leaf([1.0, 2.0])
    y = x * 2
    z = y.exp().sum() + (y * y).sum()
    y[0] = 5
    with pytest.raises(RuntimeError, match="version"):
        z.backward()


def test_integer_results_that_backward_needs_are_watched():
    x = leaf([[1.0, 3.0], [5.0, 2.0]])
    values, indices = x.max(1)
    indices.add_(1)
    with pytest.raises(RuntimeError) as e:
        values.sum().backward()
    assert "MaxBackward0" in str(e.value) and "add_" in str(e.value)


def test_index_tensors_that_backward_needs_are_watched():
    x, i = leaf([1.0, 2.0, 3.0]), F.tensor([0, 2])
    y = x[i]
    i.fill_(1)
    with pytest.raises(RuntimeError, match="fill_"):
        y.sum().backward()


def test_a_leaf_that_needs_a_gradient_is_not_written():
    x = leaf([1.0])
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with F.no_grad():
        x.add_(1)
    assert x.item() == 2 and x._version == 1


def test_writing_to_an_expanded_tensor_raises():
    x = F.zeros(3).expand(2, 3)
    with pytest.raises(RuntimeError, match="clone"):
        x.add_(1)


def test_views_alias_and_share_a_version():
    x = F.arange(12.0).reshape(3, 4)
    for v in (
        x.view(-1),
        x.t(),
        x[1:, ::2],
        x.unsqueeze(0),
        x.narrow(1, 1, 2),
        x.diagonal(),
        x.as_strided((2, 2), (4, 1)),
        x.detach(),
    ):
        before = x._version
        v.fill_(7)
        assert x._version == v._version == before + 1
        assert (x == 7).any()
        x.copy_(F.arange(12.0).reshape(3, 4))
        assert v.data_ptr() - x.data_ptr() == (v.storage_offset() - x.storage_offset()) * 4


def test_gradients_go_through_writes_into_views():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    y[1:].mul_(x[:2])
    y[0] = 5
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 8.0, 4.0]


def test_reshape_is_a_view_where_it_can_be():
    x = F.arange(6.0).reshape(2, 3)
    assert x.reshape(3, 2).data_ptr() == x.data_ptr()
    assert x.t().reshape(6).data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="reshape"):
        x.t().view(6)


def test_overlapping_operands_of_a_write():
    x = F.arange(6.0)
    x[1:].copy_(x[:-1].clone())
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    y = F.arange(9.0).reshape(3, 3)
    y.mul_(y)
    assert y.tolist() == [[0, 1, 4], [9, 16, 25], [36, 49, 64]]
    for write in (lambda: y.add_(y.t()), lambda: x[1:].add_(x[:-1])):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()


# ---- promotion


PROMOTIONS = [line.split("\t") for line in recording.read("mixed_operands.txt").splitlines()]
# Rows that stay different, with the reason.
DIFFERENT = {
    (
        "pow",
        "int8()",
        "complex64",
    ): "(-7) ** (7+7j) multiplies the rounding of a logarithm: both are 2.5e-6 off",
    ("div", "(1+2j)", "bfloat16"): "PyTorch multiplies with the reciprocal, rounded to 16 bits",
    (
        "pow",
        "bool()",
        "True",
    ): "PyTorch raises bools to the power of a bool number, though not of a bool tensor",
}
EPSILONS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 1.3e-6, "complex64": 1.3e-6}


@pytest.mark.parametrize("name", sorted({row[0] for row in PROMOTIONS}))
def test_mixed_operands_give_what_pytorch_gave(name):
    wrong = []
    for _, a, b, dtype, values in (row for row in PROMOTIONS if row[0] == name):
        if (name, a, b) in DIFFERENT:
            continue
        got = outcome(F, name, a, b)
        types = (got[1], values) if dtype == "error" == got[0] else ("object", "object")
        if got[0] != dtype or not issubclass(*(getattr(builtins, t) for t in types)):
            wrong.append(f"{name}({a}, {b}): {' '.join(got)} for {dtype} {values}")
        elif dtype != "error":
            ours, theirs = (np.array(json.loads(v)) for v in (got[1], values))
            exact = theirs.dtype.kind != "f"
            if exact:
                same = ours == theirs
            else:
                e, size = EPSILONS.get(dtype, 1e-7), np.abs(np.nan_to_num(theirs, posinf=0, neginf=0))
                if dtype.startswith("complex"):  # its error is bounded by its modulus, not by each part
                    size = np.repeat(np.hypot(size[::2], size[1::2]), 2)
                same = np.isclose(ours, theirs, rtol=0, atol=e * (size + 1 / 8), equal_nan=True)
            if not same.all():
                wrong.append(f"{name}({a}, {b}): {got[1]} for {values}")
    assert not wrong, "\n".join(wrong)


def test_numbers_do_not_widen_tensors():
    assert (F.ones(2, dtype=F.int8) * 3).dtype == F.int8
    assert (F.ones(2, dtype=F.float16) * 3.5).dtype == F.float16
    assert (F.ones(2, dtype=F.int64) * 3.5).dtype == F.float32
    assert (F.ones(2, dtype=F.float32) + F.ones((), dtype=F.float64)).dtype == F.float32
    assert (F.ones(2, dtype=F.int32) + F.ones((), dtype=F.float64)).dtype == F.float64
    assert (F.ones(2) * 1j).dtype == F.complex64


@pytest.mark.parametrize("n", [1, 3])
def test_any_and_all_of_bytes_are_0_or_1(n):
    x = F.tensor([5] * n, dtype=F.uint8)
    assert x.any().item() == x.all().item() == F.any(x, 0).item() == 1
    assert x.any().dtype == F.uint8


def test_float_power_does_not_narrow_its_result_in_place():
    with pytest.raises(RuntimeError, match="requires dtype"):
        F.ones(2).float_power_(2)


def test_abs_of_complex_numbers_is_refused_in_place():
    with pytest.raises(RuntimeError, match="in-place abs is not supported for complex"):
        F.ones(2, dtype=F.complex64).abs_()


@pytest.mark.parametrize(
    "f",
    [
        lambda x, out: F.mm(x, x, out=out),
        lambda x, out: F.softmax(x, 0, out=out),
        lambda x, out: F.neg(x, out=out),
        lambda x, out: F.diag(x, out=out),
        lambda x, out: F.linalg.norm(x, out=out),
        lambda x, out: F.zeros(2, dtype=F.float32, out=out),
    ],
)
def test_out_of_another_dtype_is_refused_where_pytorch_refuses_it(f):
    with pytest.raises(RuntimeError, match="float32.*float64"):
        f(F.ones(2, 2), F.empty(0, dtype=F.float64))


def test_a_norm_of_complex_numbers_into_real_memory_counts_both_parts():
    z, out = F.tensor([3 + 4j, 0j]), F.empty(())
    assert F.linalg.vector_norm(z, out=out).item() == F.norm(z, out=out).item() == 5


def test_out_of_a_wider_dtype_is_taken_where_pytorch_takes_it():
    x = F.tensor([[1.0, 2.0], [3.0, 5.0]])
    for f in (
        lambda out: F.exp(x, out=out),
        lambda out: F.diff(x, out=out),
        lambda out: F.nansum(x, out=out),
    ):
        out = F.empty(0, dtype=F.float64)
        assert f(out) is out
        assert out.dtype == F.float64


def test_out_of_a_list_of_results_is_a_list():
    x = F.arange(6.0).reshape(3, 2)
    for f, wanted in (
        (lambda out: F.unbind_copy(x, out=out), x.unbind()),
        (lambda out: F.split_with_sizes_copy(x, [1, 2], out=out), x.split([1, 2])),
    ):
        out = [F.empty(0), *(F.empty(w.shape) for w in wanted[1:])]
        memory = out[1].data_ptr()
        f(out)
        assert all(F.equal(o, w) for o, w in zip(out, wanted)) and out[1].data_ptr() == memory
        with pytest.raises(RuntimeError, match=f"argument of {len(wanted)} tensors, but got 1"):
            f(out[:1])
        with pytest.raises(RuntimeError, match="float32.*float64"):
            f([F.empty(0, dtype=F.float64) for _ in wanted])
    means, out = F.zeros(2), [F.empty(0), F.empty(0), F.empty(0)]
    F.native_batch_norm(x, None, None, means, F.ones(2), True, 0.5, 1e-5, out=out)
    assert out[0].shape == (3, 2) and out[1].tolist() == [2.0, 3.0] and means.tolist() == [1.0, 1.5]


def test_powers_of_matrices_convert_to_out_where_they_are_copies():
    x = F.eye(2)
    for n in (0, 1, 4, -8):
        assert F.linalg.matrix_power(x, n, out=F.empty(0, dtype=F.float64)).dtype == F.float64
    for n in (-1, 2, 3, 6):
        with pytest.raises(RuntimeError, match="dtype float32, but got float64"):
            F.linalg.matrix_power(x, n, out=F.empty(0, dtype=F.float64))


# ---- indexing against NumPy


def random_index(rng, shape, assign=False):
    """An index into `shape` that NumPy and Facula read alike, as a pair."""
    items, theirs, k, arrays = [], [], 0, False
    common = [(), (3,), (2, 3), (1,)][rng.integers(4)]
    while k < len(shape):
        choice = rng.integers(8)
        n = shape[k]
        if choice == 0:
            break
        if choice == 1:
            i = int(rng.integers(-n, n))
            items.append(i)
            theirs.append(i)
        elif choice in (2, 3):
            s = slice(
                *(None if rng.random() < 0.3 else int(rng.integers(-n - 1, n + 2)) for _ in range(2)),
                int(rng.integers(1, 4)),
            )
            items.append(s)
            theirs.append(s)
        elif choice == 4:
            items.append(None)
            theirs.append(None)
            continue
        elif choice == 5 and Ellipsis not in items:
            items.append(Ellipsis)
            theirs.append(Ellipsis)
            break
        elif choice == 6 and common:
            i = rng.integers(-n, n, common) if not assign else rng.permutation(n)[: max(1, n // 2)]
            if assign and arrays:
                continue
            arrays = True
            items.append(F.tensor(i))
            theirs.append(i)
        elif choice == 7 and not arrays:
            mask = rng.random(n) < 0.5
            arrays = True
            items.append(F.tensor(mask))
            theirs.append(mask)
            if not assign and common != () and rng.random() < 0.9:
                common = ()
        else:
            continue
        k += 1
    return tuple(items), tuple(theirs)


def mixes_integer_and_array(index):
    return any(isinstance(i, np.ndarray) for i in index) and any(isinstance(i, int) for i in index)


@pytest.mark.parametrize("seed", range(20))
def test_reading_by_random_indices_agrees_with_numpy(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
        x = rng.normal(size=shape)
        ours, theirs = random_index(rng, shape)
        if mixes_integer_and_array(
            theirs
        ):  # NumPy counts the integer as an array: dimensions may go elsewhere
            continue
        np.testing.assert_array_equal(F.tensor(x)[ours].numpy(), x[theirs], err_msg=f"{shape} {theirs}")


@pytest.mark.parametrize("seed", range(20))
def test_writing_by_random_indices_agrees_with_numpy(seed):
    rng = np.random.default_rng(1000 + seed)
    for _ in range(20):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
        x = rng.normal(size=shape)
        ours, theirs = random_index(rng, shape, assign=True)
        if mixes_integer_and_array(theirs):
            continue
        t = F.tensor(x.copy())
        value = rng.normal(size=x[theirs].shape) if rng.random() < 0.7 else 2.5
        x[theirs] = value
        t[ours] = F.tensor(value) if isinstance(value, np.ndarray) else value
        np.testing.assert_array_equal(t.numpy(), x, err_msg=f"{shape} {theirs}")


# ---- memory formats


def test_channels_last_stays_through_elementwise_operators():
    x = F.randn(2, 3, 4, 5).contiguous(memory_format=F.channels_last)
    assert x.stride() == (60, 1, 15, 3)
    assert x.is_contiguous(memory_format=F.channels_last) and not x.is_contiguous()
    assert (
        (x * 2 + 1).stride()
        == x.stride()
        == x.relu().stride()
        == x.clone().stride()
        == F.empty_like(x).stride()
    )
    assert x.contiguous().stride() == (60, 20, 5, 1)
    np.testing.assert_array_equal(x.contiguous().numpy(), x.numpy())


def test_channels_last_gives_the_same_numbers():
    x, w = F.randn(2, 3, 8, 8), F.randn(4, 3, 3, 3)
    y = F.nn.functional.conv2d(x, w, padding=1)
    z = F.nn.functional.conv2d(
        x.contiguous(memory_format=F.channels_last), w.contiguous(memory_format=F.channels_last), padding=1
    )
    np.testing.assert_allclose(z.contiguous().numpy(), y.numpy(), atol=1e-4)


# ---- sharing with NumPy and DLPack


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_and_dlpack_share_memory(dtype):
    a = np.ones((3, 4), dtype=dtype)
    t = F.from_numpy(a[:, ::2])
    assert t.stride() == (4, 2)
    a[0, 0] = 0
    assert t[0, 0].item() == 0
    t[1, 1] = 0
    assert a[1, 2] == 0
    back = t.numpy()
    assert back.base is not None and back.dtype == a.dtype and np.shares_memory(back, a)
    u = F.from_dlpack(t)
    assert u.data_ptr() == t.data_ptr() and u.stride() == t.stride() and u.dtype == t.dtype
    if dtype != "bool":
        v = np.from_dlpack(t)
        assert np.shares_memory(v, a)


def test_memory_outlives_whoever_made_it():
    view = F.arange(5.0).numpy()[1:]
    assert view.tolist() == [1, 2, 3, 4]
    t = F.from_numpy(np.arange(5.0))[2:]
    assert t.tolist() == [2, 3, 4]


def test_numpy_of_a_tensor_that_needs_a_gradient_is_refused():
    with pytest.raises(RuntimeError, match="detach"):
        leaf([1.0]).numpy()
    assert leaf([1.0]).detach().numpy()[0] == 1


# ---- printing (the table of PyTorch's texts is tested in C++), copies


def test_printing_says_dtype_gradient_and_shape():
    assert repr(F.tensor([1, 2])) == "tensor([1, 2])"
    assert repr(F.tensor([1.0, 2.5], dtype=F.float64)) in (
        "tensor([1.0000, 2.5000], dtype=facula.float64)",
        "tensor([1.0000, 2.5000], dtype=torch.float64)",
    )
    assert repr(F.tensor([1.5], requires_grad=True)) == "tensor([1.5000], requires_grad=True)"
    assert "grad_fn=<MulBackward" in repr(F.tensor([1.5], requires_grad=True) * 2)
    assert repr(F.zeros(0, 3)) == "tensor([], size=(0, 3))"
    assert f"{F.tensor(2.5):.3f}" == "2.500"
    assert str(F.zeros(2000)).count("...") == 1


def test_deepcopy_copies_memory_and_keeps_identity():
    x = F.arange(6.0)
    both = copy.deepcopy([x, x.view(2, 3), x])
    assert (
        both[0] is both[2]
        and both[0].data_ptr() != x.data_ptr()
        and both[1].tolist() == [[0, 1, 2], [3, 4, 5]]
    )
    p = leaf([1.0])
    q = copy.deepcopy(p)
    assert q.requires_grad and q.is_leaf and q is not p
    with pytest.raises(RuntimeError, match="leaf|leaves|graph"):
        copy.deepcopy(p * 2)


def test_deepcopy_shares_storage_as_the_originals_do():
    x = F.arange(6.0).reshape(2, 3)
    part = x.t()[1:]
    for first, second in (copy.deepcopy([x, part]), reversed(copy.deepcopy([part, x]))):
        second[0, 0] = 99
        assert first.tolist() == [[0, 99, 2], [3, 4, 5]] and x[0, 1] == 1
        assert second.stride() == part.stride() and second.storage_offset() == part.storage_offset()


@pytest.mark.parametrize(
    "make", [F.zeros, F.full, F.empty, F.rand, F.zeros_like, F.arange, F.eye, F.tensor, F.randint]
)
def test_a_device_that_nothing_serves_is_refused_and_not_ignored(make):
    args = {F.full: ((2,), 1), F.zeros_like: (F.ones(2),), F.randint: (3, (2,))}.get(make, (2,))
    for device in ("cuda", "cuda:1"):
        with pytest.raises(AssertionError, match="not compiled with CUDA enabled"):
            make(*args, device=device)
    assert make(*args, device="meta").device.type == "meta"
    assert make(*args, device="cpu").device.type == "cpu"


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float16", "float32", "complex64"])
def test_pickle_keeps_values_dtype_strides_and_gradient(dtype):
    x = F.tensor([[1, 0, 1], [0, 1, 1]]).to(getattr(F, dtype)).t()
    y = pickle.loads(pickle.dumps(x))
    assert y.dtype == x.dtype and y.stride() == x.stride() and y.tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(leaf([1.0]))).requires_grad


# ---- autograd


def test_none_from_a_custom_function_stays_none():
    class Half(F.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g, None

    a, b = leaf([1.0]), leaf([2.0])
    Half.apply(a, b).backward()
    assert a.grad.item() == 1 and b.grad is None
    assert F.autograd.grad(Half.apply(a, b), b, allow_unused=True) == (None,)


def test_threads_running_backward_at_once():
    w = leaf(np.ones(1000))
    failures = []

    def work(k):
        try:
            for _ in range(20):
                x = leaf(np.full(1000, float(k)))
                (x * x).sum().backward()
                assert x.grad[0].item() == 2 * k
                F.autograd.grad((w * k).sum(), w)
        except BaseException as e:  # shown by the main thread
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_threads_add_to_one_gradient():
    w = leaf(np.zeros(500))

    def work():
        for _ in range(50):
            (w * 1).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert w.grad.tolist() == [200.0] * 500


def test_modes_belong_to_their_thread():
    seen = []
    with F.no_grad():
        t = threading.Thread(target=lambda: seen.append(F.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_a_graph_is_used_once_unless_kept():
    x = leaf([2.0])
    y = (x * x).exp()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_double_backward_of_a_small_network():
    F.manual_seed(0)
    x, w, b = (
        F.randn(3, 4, dtype=F.float64, requires_grad=True),
        F.randn(4, 2, dtype=F.float64, requires_grad=True),
        F.randn(2, dtype=F.float64, requires_grad=True),
    )

    def f(x, w, b):
        h = F.nn.functional.layer_norm((x @ w + b).tanh(), (2,))
        return F.nn.functional.cross_entropy(h, F.tensor([0, 1, 1]))

    assert F.autograd.gradcheck(f, (x, w, b))
    assert F.autograd.gradgradcheck(f, (x, w, b))


def test_a_gradient_penalty_trains():
    x, w = leaf(np.linspace(-1, 1, 5)), leaf(np.full(5, 0.5))
    (g,) = F.autograd.grad(((w * x) ** 2).sum(), x, create_graph=True)
    (g**2).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 16 * w.detach().numpy() ** 3 * x.detach().numpy() ** 2)


def test_hooks_see_and_replace_gradients():
    x = leaf([1.0, 2.0])
    y = x * 3
    seen = []
    h = y.register_hook(lambda g: seen.append(g.tolist()))
    z = y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.sum().backward()
    assert seen == [[1, 1]] and x.grad.tolist() == [6, 6]
    assert y.grad.tolist() == [2, 2]
    h.remove()
    z.remove()


def test_anomaly_mode_names_the_forward_line_and_finds_nan():
    x = leaf([-1.0])
    with F.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan|NaN"):
        F.sqrt(x).sum().backward()


def test_gradients_accumulate_and_keep_identity():
    x = leaf([1.0])
    (x * 2).backward()
    g = x.grad
    (x * 3).backward()
    assert x.grad is g and g.item() == 5
    x.grad = None
    assert x.grad is None


def test_broadcast_operands_get_summed_gradients():
    a, b = leaf(np.ones((3, 1))), leaf(np.ones(4))
    (a * b).sum().backward()
    assert a.grad.tolist() == [[4.0]] * 3 and b.grad.tolist() == [3.0] * 4


def test_inplace_on_a_result_keeps_its_history():
    x = leaf([2.0])
    y = x * 3
    y += 1
    y *= 4
    y.backward()
    assert x.grad.item() == 12


@pytest.mark.parametrize("other", [lambda y: y, lambda y: y.detach(), lambda y: y.view(1)])
def test_a_write_over_what_its_own_gradient_needs_raises(other):
    x = leaf([2.0])
    y = x * 3
    y.mul_(other(y))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- random numbers


def test_the_same_seed_gives_the_same_numbers_and_states_can_be_kept():
    F.manual_seed(3)
    a = F.randn(5)
    state = F.get_rng_state()
    b = F.randn(5)
    F.set_rng_state(state)
    assert F.randn(5).tolist() == b.tolist() != a.tolist()
    F.manual_seed(3)
    assert F.randn(5).tolist() == a.tolist()
    g = F.Generator().manual_seed(3)
    assert F.randn(5, generator=g).tolist() == a.tolist()


def test_random_numbers_have_their_moments():
    F.manual_seed(1)
    u, n = F.rand(100_000, dtype=F.float64), F.randn(100_000, dtype=F.float64)
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean().item() - 0.5) < 5e-3 and abs(u.var().item() - 1 / 12) < 2e-3
    assert abs(n.mean().item()) < 1.5e-2 and abs(n.std().item() - 1) < 1e-2
    assert sorted(F.randperm(100).tolist()) == list(range(100))
    k = F.randint(3, 9, (10_000,))
    assert k.min() == 3 and k.max() == 8
    d = F.nn.functional.dropout(F.ones(100_000), 0.25)
    assert abs((d == 0).float().mean().item() - 0.25) < 1e-2 and d.max().item() == pytest.approx(4 / 3)


def test_einsum_takes_its_operands_one_by_one_or_as_a_list():
    a, b = F.arange(6.0).view(2, 3), F.arange(12.0).view(3, 4)
    for c in (F.einsum("ij,jk->ik", a, b), F.einsum("ij,jk->ik", [a, b])):
        assert np.array_equal(c.numpy(), a.numpy() @ b.numpy())
    assert F.einsum("ij->", a).item() == 15


@pytest.mark.parametrize("dtype", [F.uint8, F.int8, F.int16, F.int32, F.int64])
@pytest.mark.parametrize(
    "divide",
    [
        F.floor_divide,
        F.remainder,
        F.fmod,
        lambda a, b: F.div(a, b, rounding_mode="floor"),
        lambda a, b: F.div(a, b, rounding_mode="trunc"),
    ],
)
def test_an_integer_divided_by_zero_raises(dtype, divide):
    a = F.arange(1, 1001).to(dtype)
    zero = F.ones(1000, dtype=dtype)
    zero[777] = 0
    for divisor in (zero, 0, zero[777]):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(a, divisor)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(7, zero) if divide in (F.remainder,) else divide(a[:1], zero)
    assert divide(a[:0], 0).shape == (0,)
    assert divide(a[:777], zero[:777]).tolist() == divide(a[:777].double(), 1).tolist()
    assert F.isinf(F.floor_divide(F.tensor([1.0]), 0)).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.size(0),
        lambda x: x.stride(-1),
        lambda x: F.fft.fftn(x, dim=(0,)),
        lambda x: F.fft.irfft2(x, dim=(-1, 0)),
        lambda x: F.fft.fft(x),
        lambda x: F.fft.fftshift(x, 0),
    ],
)
def test_a_0d_tensor_has_no_dimension(call):
    with pytest.raises(IndexError):
        call(F.ones(()))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.split(1),
        lambda x: x.split([1]),
        lambda x: x.chunk(2),
        lambda x: x.unbind(),
        lambda x: x.narrow(0, 0, 1),
    ],
)
def test_a_0d_tensor_has_no_pieces(call):
    with pytest.raises((RuntimeError, IndexError)):
        call(F.ones(()))


def test_in_place_views_change_the_tensor_itself():
    x = F.arange(6.0).reshape(1, 2, 3)
    before = x._version
    y = x[0]
    assert x.squeeze_(0) is x and x.shape == (2, 3) and x._version > before
    x.t_()
    assert x.stride() == (1, 3) and x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    x.unsqueeze_(-1).transpose_(0, 1)
    assert x.shape == (2, 3, 1) and x.data_ptr() == y.data_ptr()
    x.mul_(2)
    assert y.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    x.as_strided_((2,), (2,), 1)
    assert x.tolist() == [2.0, 6.0]


def test_in_place_views_are_on_the_tape():
    w = F.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        w.t_()
    x = w * 2
    x.t_()
    assert x.grad_fn.name() == "TBackward0"
    (x * F.arange(6.0).reshape(3, 2)).sum().backward()
    assert F.equal(w.grad, 2 * F.arange(6.0).reshape(3, 2).t())
    with F.no_grad():
        assert w.t_().shape == (3, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.index_add(0, F.tensor([0, 1]), F.ones(2, 9)),
        lambda x: x.index_add(0, F.tensor([0]), F.ones(2, 4)),
        lambda x: x.index_add(0, F.tensor([0, 1]), F.ones(1, 4)),
        lambda x: x.scatter(0, F.zeros(2, 4, dtype=F.int64), F.ones(1, 4)),
        lambda x: x.scatter_add(0, F.zeros(2, 4, dtype=F.int64), F.ones(2, 3)),
        lambda x: x.scatter_add(0, F.zeros(2, 4, dtype=F.int64), F.ones(2)),
        lambda x: x.scatter(0, F.zeros(2, 9, dtype=F.int64), 1.0),
    ],
)
def test_a_source_smaller_than_the_index_raises(call):
    with pytest.raises(RuntimeError):
        call(F.zeros(3, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x.gather(0, i.view(1, 1)),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.scatter(0, i.view(1, 1), 1.0),
        lambda x, i: x.index_add(0, i, x[:1]),
        lambda x, i: x.scatter_add(0, i.view(1, 1), x),
        lambda x, i: F.nn.functional.embedding(i, x),
        lambda x, i: F.nn.functional.nll_loss(x[:1], i),
        lambda x, i: F.nn.functional.cross_entropy(x[:1], i),
    ],
)
@pytest.mark.parametrize("index", [-1, -3, 4])
def test_an_index_outside_raises_and_is_named(call, index):
    with pytest.raises(
        (IndexError, RuntimeError), match=f"index {index} is out of bounds"
    ):  # which: probes/wrong.py
        call(F.zeros(3, 4), F.tensor([index]))
    x = F.arange(3.0)
    assert x[F.tensor([-1])].item() == 2  # only indexing counts from the end


def test_grids_and_crops_are_as_numpys():
    xs, ys = F.meshgrid(F.arange(2), F.arange(3), indexing="xy")
    for got, want in zip((xs, ys), np.meshgrid(np.arange(2), np.arange(3))):
        np.testing.assert_array_equal(got.numpy(), want)
    row = F.arange(4).reshape(1, 4)
    assert F.nn.functional.pad(row, (-1, 1), mode="circular").tolist() == [[1, 2, 3, 1]]
    assert F.nn.functional.pad(row, (2, 1), mode="circular").tolist() == [[2, 3, 0, 1, 2, 3, 0]]
    assert F.unique(F.zeros(0, 3), dim=0).shape == (0, 3)


def test_cosine_similarity_broadcasts_before_it_measures():
    p, q = F.rand(1, 2, 3), F.rand(2, 1, 3)
    a, b = np.broadcast_arrays(p.numpy(), q.numpy())
    want = (a * b).sum(-2) / np.sqrt((a * a).sum(-2) * (b * b).sum(-2))
    np.testing.assert_allclose(F.nn.functional.cosine_similarity(p, q, -2).numpy(), want, rtol=1e-5)


# ---- writing in place


def _in_place_writes():
    i, two = F.tensor([1, 3]), F.ones(2)
    return {
        "scatter_": lambda x: x.scatter_(0, i, 2.0),
        "scatter_src": lambda x: x.scatter_(0, i, two),
        "scatter_add_": lambda x: x.scatter_add_(0, i, two),
        "index_put_": lambda x: x.index_put_((i,), two, accumulate=True),
        "assignment": lambda x: x.__setitem__(i, 5.0),
        "index_add_": lambda x: x.index_add_(0, i, two),
        "index_fill_": lambda x: x.index_fill_(0, i, 1.0),
        "index_copy_": lambda x: x.index_copy_(0, i, two),
    }


@pytest.mark.parametrize("name", _in_place_writes())
def test_a_few_elements_are_written_without_a_copy_of_the_tensor(name):
    x, write = F.zeros(1 << 20), _in_place_writes()[name]
    write(x)
    F.reset_peak_memory_stats()
    before = F.memory_stats()["current_bytes"]
    write(x)
    assert F.memory_stats()["peak_bytes"] - before < 1 << 16
    assert x.count_nonzero().item() == 2


@pytest.mark.parametrize("bad", [5, -6, 1 << 40])
def test_a_wrong_index_raises_before_anything_is_written(bad):
    x, i = F.arange(5.0), F.tensor([1, bad])
    calls = [
        lambda: x.index_put_((i,), F.ones(2)),
        lambda: x.index_add_(0, i, F.ones(2)),
        lambda: x.index_fill_(0, i, 1.0),
    ]
    calls += [lambda: x.scatter_(0, i, 9.0), lambda: x.scatter_add_(0, i, F.ones(2))]
    for call in calls:
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            call()
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_a_write_that_reads_its_own_tensor_reads_the_old_values():
    x = F.arange(4)
    assert x.scatter_(0, x, x + 1).tolist() == [1, 2, 3, 4]
    x = F.arange(4.0)
    x.index_add_(0, F.tensor([3, 2, 1, 0]), x)
    assert x.tolist() == [3, 3, 3, 3]
    assert F.arange(4.0).cumsum_(0).tolist() == [0, 1, 3, 6]
    assert F.ones(3, 3).T.tril_().sum().item() == 6


def test_a_number_fills_a_tensor_that_shares_elements():
    assert F.zeros(1).expand(3).fill_(2).tolist() == [2, 2, 2]
    x = F.ones(2, 1)
    assert x.expand(2, 3).zero_().sum().item() == 0
    assert x.tolist() == [[0], [0]]
    a = F.ones(1, requires_grad=True)
    b = (a * 2).expand(3)
    b.fill_(4.0).sum().backward()
    assert a.grad.tolist() == [0]
    for call in (lambda t: t.add_(1), lambda t: t.fill_(F.tensor(2.0)), lambda t: t.copy_(F.ones(3))):
        with pytest.raises(RuntimeError, match="single memory location"):
            call(F.zeros(1).expand(3))


# ---- numbers that do not fit


@pytest.mark.parametrize(
    "dtype, value",
    [("int32", 1 << 40), ("uint8", 256), ("uint8", -256), ("int8", 128), ("int64", float("nan")),
     ("int16", 1e9), ("float16", 7e4), ("float32", 1e39), ("float32", 1j), ("complex64", 1e39)],
)  # fmt: skip
def test_a_number_that_its_dtype_cannot_hold_raises(dtype, value):
    d = getattr(F, dtype)
    x, i = F.zeros(2, dtype=d), F.tensor([0])
    calls = [lambda: x.fill_(value), lambda: F.full((2,), value, dtype=d), lambda: x.index_fill(0, i, value),
             lambda: x.masked_fill(x == 0, value), lambda: x.scatter(0, i, value)]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            call()


def test_negative_numbers_wrap_in_unsigned_bytes_and_infinity_fits_floats():
    assert F.zeros(1, dtype=F.uint8).fill_(-1).item() == 255
    assert F.tensor([-1, -255], dtype=F.uint8).tolist() == [255, 1]
    assert F.zeros(1, dtype=F.float16).fill_(float("inf")).item() == float("inf")
    x = F.zeros(3, dtype=F.float16)
    x[0], x[F.tensor([1])] = 1e9, -1e9  # as masks of attention are often written
    assert x.tolist() == [float("inf"), float("-inf"), 0]
    with pytest.raises(RuntimeError, match="cannot be converted"):
        F.zeros(2)[0] = 1e39


def test_equal_bounds_leave_the_gradient_to_the_tensor_and_nan_bounds_win():
    x, low = leaf([1.0, 2.0]), leaf([2.0, 2.0])
    F.clamp_min(x, low).sum().backward()
    assert x.grad.tolist() == [0, 1] and low.grad.tolist() == [1, 0]
    assert F.clamp(F.ones(1), min=float("nan")).isnan().item()
    assert F.clamp(F.ones(1), max=F.tensor([float("nan")])).isnan().item()


def test_complex_normal_numbers_have_variance_one_half_in_each_part():
    z = F.randn(40000, dtype=F.complex64, generator=F.Generator().manual_seed(3)).numpy()
    assert abs(z.real.var() - 0.5) < 0.02 and abs(z.imag.var() - 0.5) < 0.02
    assert abs((z.real * z.imag).mean()) < 0.02


# ---- parts of complex numbers


def test_parts_of_complex_numbers_share_their_memory():
    z = F.zeros(2, 3, dtype=F.complex64)
    z.real.fill_(1)
    z.T.imag.add_(2)
    assert (z == 1 + 2j).all() and z.real.stride() == (6, 2)
    F.view_as_real(z)[..., 1] = 0
    assert (z == 1).all()
    x = F.ones(3, 2)
    F.view_as_complex(x).mul_(1j)
    assert x.tolist() == [[-1, 1]] * 3
    assert F.ones(2).real.tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        F.ones(2).imag  # noqa: B018
    for wrong in (F.ones(3, 3), F.ones(2, 4)[:, ::2], F.ones(6, 2)[::3].T):
        with pytest.raises(RuntimeError, match="last dimension"):
            F.view_as_complex(wrong)


def test_writes_through_parts_are_on_the_tape():
    a = F.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    b = a * 1
    b.real.mul_(5)
    (b.real + 2 * b.imag).sum().backward()
    assert a.grad.tolist() == [5 + 2j] * 2
    c = F.ones(3, 2, requires_grad=True)
    d = c * 1
    F.view_as_complex(d).mul_(1j)
    (d * F.tensor([1.0, 10.0])).sum().backward()
    assert c.grad.tolist() == [[10, -1]] * 3


def test_the_ends_of_64_bits_are_numbers_like_others():
    for n in (2**63 - 1, 2**63 - 127, -(2**63)):
        assert F.full((2,), n).tolist() == [n, n]
        assert F.zeros(2, dtype=F.int64).fill_(n).tolist() == [n, n]
        with pytest.raises(RuntimeError, match="without overflow"):
            F.full((2,), n, dtype=F.int8)
