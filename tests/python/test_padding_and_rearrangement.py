"""Padding, repetition and rearrangement: values, memory, gradients, and traces with sizes that change."""

import itertools

import numpy as np
import pytest

import facula as F

NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_padding_by_elements_agrees_with_numpy(mode, dims):
    rng = np.random.default_rng(dims)
    shape = (2, 3) + (4, 5, 3)[:dims]
    x = rng.standard_normal(shape)
    for amounts in itertools.islice(itertools.product([0, 1, 2], repeat=2 * dims), 0, None, 7):
        pad = list(amounts)
        width = [(0, 0)] * 2 + [(pad[2 * k], pad[2 * k + 1]) for k in reversed(range(dims))]
        got = F.nn.functional.pad(F.from_numpy(x), pad, mode)
        np.testing.assert_array_equal(got.numpy(), np.pad(x, width, NUMPY[mode]))


@pytest.mark.parametrize("dtype", [F.float32, F.bfloat16, F.float64, F.complex64, F.int32, F.uint8, F.bool])
@pytest.mark.parametrize("mode", NUMPY)
def test_long_lines_are_padded_and_cropped_as_by_numpy(mode, dtype):
    for n, pad in itertools.product(
        (17, 64, 133), ((1, 1), (16, 0), (0, 16), (-3, 5), (5, -3), (-4, -4), (9, 13))
    ):
        x = np.random.default_rng(n).integers(0, 120, (2, 3, 5, n))
        for crop_rows in ((0, 0), (2, -1)):
            amounts = [crop_rows, pad]
            crops = tuple(slice(max(0, -a), s - max(0, -b)) for (a, b), s in zip(amounts, x.shape[2:]))
            width = [(0, 0)] * 2 + [(max(0, a), max(0, b)) for a, b in amounts]
            t = F.from_numpy(x).to(dtype)
            want = np.pad(x[:, :, crops[0], crops[1]], width, NUMPY[mode])
            for layout in (t, t.contiguous(memory_format=F.channels_last), t.mT.contiguous().mT):
                got = F.nn.functional.pad(layout, [*pad, *crop_rows], mode)
                assert F.equal(got, F.from_numpy(want).to(dtype))


@pytest.mark.parametrize("mode", NUMPY)
def test_the_gradient_of_padding_counts_how_often_an_element_is_there(mode):
    x = np.arange(15.0).reshape(1, 3, 5)
    for pad in ([2, 1], [-1, 2], [0, 0]):
        t = F.tensor(x, requires_grad=True)
        y = F.nn.functional.pad(t, pad, mode)
        weights = F.arange(float(y.numel())).reshape(y.shape).double()
        (y * weights).sum().backward()
        want = np.zeros_like(x)
        np.add.at(want.reshape(-1), y.detach().long().numpy().reshape(-1), weights.numpy().reshape(-1))
        np.testing.assert_array_equal(t.grad.numpy(), want)


def test_channels_last_images_stay_so():
    x = F.arange(2.0 * 8 * 4 * 4).reshape(2, 8, 4, 4)
    last = x.contiguous(memory_format=F.channels_last)
    N = F.nn.functional
    for f in (
        lambda t: N.pixel_shuffle(t, 2),
        lambda t: N.pixel_unshuffle(t, 2),
        lambda t: N.channel_shuffle(t, 4),
        lambda t: N.pad(t, (1, 2, 0, 1), "reflect"),
    ):
        a, b = f(x), f(last)
        assert a.is_contiguous() and b.is_contiguous(memory_format=F.channels_last)
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_pixels_and_channels_agree_with_numpy():
    x = np.arange(2.0 * 12 * 2 * 3).reshape(2, 12, 2, 3)
    shuffled = x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 3, 4, 6)
    t = F.from_numpy(x)
    np.testing.assert_array_equal(F.pixel_shuffle(t, 2).numpy(), shuffled)
    np.testing.assert_array_equal(F.pixel_unshuffle(F.from_numpy(shuffled), 2).numpy(), x)
    dealt = x.reshape(2, 3, 4, 2, 3).swapaxes(1, 2).reshape(x.shape)
    np.testing.assert_array_equal(F.channel_shuffle(t, 3).numpy(), dealt)


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_repetition_is_a_copy_that_agrees_with_numpy(repeats):
    x = np.arange(12.0).reshape(3, 4)
    for dim in (None, 0, 1, -1):
        t = F.tensor(x)
        y = t.repeat_interleave(repeats, dim)
        np.testing.assert_array_equal(y.numpy(), np.repeat(x, repeats, dim))
        y.fill_(-1)
        np.testing.assert_array_equal(t.numpy(), x)
    with pytest.raises(RuntimeError, match="^repeat_interleave: output_size 3 does not match"):
        F.repeat_interleave(F.tensor(x), F.tensor([1, 0, 1]), 0, output_size=3)


def test_close_integers_are_compared_exactly_without_a_tolerance():
    a, b = F.tensor([2**53, 5]), F.tensor([2**53 + 1, 5])
    assert F.isclose(a, b, 0, 0).tolist() == [False, True]
    assert F.isclose(a, b, 0, 1).tolist() == [True, True]


def test_grids_and_raised_ranks_are_views():
    a, b = F.tensor([1, 2]), F.tensor([3, 4, 5])
    for indexing in ("ij", "xy"):
        want = np.meshgrid(a.numpy(), b.numpy(), indexing=indexing)
        got = F.meshgrid(a, b, indexing=indexing)
        for g, w, v in zip(got, want, (a, b)):
            np.testing.assert_array_equal(g.numpy(), w)
            assert g.data_ptr() == v.data_ptr()
    assert F.atleast_3d(a).data_ptr() == a.data_ptr()
    assert [t.shape for t in F.atleast_2d(F.tensor(1), b)] == [(1, 1), (1, 3)]
    assert [t.data_ptr() for t in F.broadcast_tensors(a, b.unsqueeze(1))] == [a.data_ptr(), b.data_ptr()]


def test_traced_arrangements_take_other_sizes():
    def f(x):
        y = F.nn.functional.pad(x, (1, 2), "reflect").repeat_interleave(2, 0)
        return y.diff(dim=1), F.atleast_3d(y), F.isclose(y, y + 1e-9)

    p = F.program.trace(f, F.ones(3, 5), dynamic=True)
    for shape in ((3, 5), (4, 9), (7, 6)):
        x = F.randn(*shape)
        for got, want in zip(p(x), f(x)):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_places_along_a_dimension_go_around():
    x = F.arange(12.0).reshape(3, 4)
    at = F.tensor([[9], [-5], [-1]])
    assert F.take_along_dim(x, at, 1).tolist() == [[1.0], [7.0], [11.0]]
    with pytest.raises(RuntimeError, match="out of bounds"):
        F.take_along_dim(x, F.tensor([-1]))  # PyTorch's, without a dimension


def test_repetitions_hold_the_size_that_was_told():
    assert F.repeat_interleave(F.tensor([1, 2], dtype=F.int32)).dtype == F.int32
    assert F.repeat_interleave(F.ones(3, 2), 2, 0, output_size=6).shape == (6, 2)
    with pytest.raises(RuntimeError, match="Invalid output_size, expected 6 but got 5"):
        F.repeat_interleave(F.ones(3, 2), 2, 0, output_size=5)


@pytest.mark.parametrize("rows, columns", [(0, 3), (3, 0), (1, 1), (1, 7), (7, 1), (5, 5), (4, 9), (9, 4)])
def test_indices_of_triangles_agree_with_numpy(rows, columns):
    row, column = np.indices((rows, columns))
    for offset in (*range(-rows - 2, columns + 3), 2**63 - 1, -(2**63)):
        lower = np.array(np.nonzero(column.astype(object) - row <= offset))
        upper = np.array(np.nonzero(column.astype(object) - row >= offset))
        np.testing.assert_array_equal(F.tril_indices(rows, columns, offset).numpy(), lower)
        np.testing.assert_array_equal(F.triu_indices(rows, columns, offset, dtype=F.int32).numpy(), upper)


@pytest.mark.parametrize(
    "rows, columns, offset", [(3000, 2000, -7), (2000, 3000, 0), (1, 10**6, 3), (10**6, 1, -5)]
)
@pytest.mark.parametrize("upper", [False, True])
def test_indices_of_large_triangles_are_in_order_and_complete(rows, columns, offset, upper):
    row, column = (F.triu_indices if upper else F.tril_indices)(rows, columns, offset)
    place, off = (row * columns + column).numpy(), (column - row).numpy()
    first = np.arange(rows)
    ends = np.clip(first + offset + (0 if upper else 1), 0, columns)
    assert len(place) == (columns - ends if upper else ends).sum()
    assert np.all(np.diff(place) > 0) and np.all(off >= offset if upper else off <= offset)
    assert (
        int(column.min()) >= 0
        and int(column.max()) < columns
        and int(row.min()) >= 0
        and int(row.max()) < rows
    )
