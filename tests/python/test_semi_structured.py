"""Matrices with two zeros in each group of four elements."""

import copy
import io

import numpy as np
import pytest
from facula.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

import facula
from facula import nn
from facula.nn import functional as F

DTYPES = [facula.float32, facula.float16, facula.bfloat16]
TOLERANCE = {facula.float32: 1e-5, facula.float16: 2e-3, facula.bfloat16: 2e-2}


def matrix(rows, columns, dtype=facula.float32, seed=None):
    """A matrix with at most two nonzero elements, at random places, in each group of four."""
    seed = np.random.SeedSequence().entropy % 2**32 if seed is None else seed
    print("seed", seed)
    r = np.random.RandomState(seed)
    x = r.randn(rows, columns // 4, 4).astype(np.float32)
    order = np.argsort(r.rand(rows, columns // 4, 4), -1)
    np.put_along_axis(x, order[..., : r.randint(2, 4)], 0, -1)
    return facula.from_numpy(x.reshape(rows, columns)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_linear_layer_and_its_gradients_are_those_of_the_dense_matrix(dtype):
    dense = matrix(24, 32, dtype).requires_grad_()
    sparse = nn.Parameter(to_sparse_semi_structured(dense.detach()))
    assert isinstance(sparse, nn.Parameter) and isinstance(sparse, SparseSemiStructuredTensor)
    bias, x = facula.randn(24).to(dtype), facula.randn(5, 3, 32).to(dtype)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    results = [F.linear(i, w, bias) for i, w in zip(inputs, (dense, sparse))]
    tolerance = TOLERANCE[dtype]
    assert results[1].dtype == dtype and results[1].shape == (5, 3, 24)
    assert facula.allclose(results[0].float(), results[1].float(), rtol=tolerance, atol=tolerance * 4)
    weights = facula.randn(5, 3, 24).to(dtype)
    for y in results:
        (y * weights).sum().backward()
    assert facula.allclose(inputs[0].grad.float(), inputs[1].grad.float(), rtol=tolerance, atol=tolerance * 8)
    expected = dense.grad.float() * (dense != 0)
    at_elements = sparse.grad.float() * (dense != 0)
    assert facula.allclose(expected, at_elements, rtol=tolerance, atol=tolerance * 8)


def test_products_of_bytes_have_exact_sums():
    dense = (matrix(16, 64) * 60).clamp(-127, 127).round().to(facula.int8)
    x = facula.randint(-128, 128, (64, 9)).to(facula.int8)
    y = to_sparse_semi_structured(dense) @ x
    assert y.dtype == facula.int32
    assert np.array_equal(y.numpy(), dense.numpy().astype(np.int64) @ x.numpy().astype(np.int64))


def test_a_matrix_is_a_left_operand_or_a_transposed_right_one():
    dense = matrix(8, 12)
    sparse = to_sparse_semi_structured(dense)
    x, y = facula.randn(12, 5), facula.randn(5, 12)
    assert facula.allclose(sparse @ x, dense @ x, atol=1e-5)
    assert facula.allclose(y @ sparse.t(), y @ dense.t(), atol=1e-5)
    assert facula.allclose(facula.addmm(facula.ones(8), y, sparse.t()), 1 + y @ dense.t(), atol=1e-5)
    assert sparse.t().shape == (12, 8)
    with pytest.raises(NotImplementedError, match="left operand, or the transposed right one"):
        facula.randn(5, 8) @ sparse


def test_a_matrix_is_restored_copied_and_saved():
    dense = matrix(8, 16)
    sparse = to_sparse_semi_structured(dense)
    file = io.BytesIO()
    facula.save(sparse, file)
    file.seek(0)
    for same in (sparse, copy.deepcopy(sparse), sparse.detach(), sparse.clone()):
        assert facula.equal(same.to_dense(), dense)
    assert facula.equal(facula.load(file, weights_only=False).to_dense(), dense)
    assert repr(sparse) == "SparseSemiStructuredTensor(shape=Size([8, 16]))".replace("Size", "facula.Size")


def test_places_are_packed_as_documented():
    sparse = to_sparse_semi_structured(facula.tensor([0.0, 0.0, 1.0, 1.0]).tile((4, 8)).half())
    assert sparse.values().shape == (4, 16) and bool((sparse.values() == 1).all())
    assert sparse.indices().tolist() == [[-4370, -4370]] * 4


@pytest.mark.parametrize(
    "x, message",
    [
        (facula.ones(4, 8), "at least two of each four consecutive elements"),
        (facula.zeros(8), "Only 2d tensors"),
        (facula.zeros(4, 6), "multiple of 4"),
        (facula.zeros(4, 8, dtype=facula.float64), "not a supported dtype"),
        (facula.zeros(8, 4).t(), "not contiguous"),
    ],
)
def test_other_matrices_raise(x, message):
    with pytest.raises(RuntimeError, match=message):
        to_sparse_semi_structured(x)


def test_other_functions_raise():
    sparse = to_sparse_semi_structured(matrix(4, 8))
    with pytest.raises(NotImplementedError, match="add: not defined for semi-structured matrices"):
        sparse + 1
    with pytest.raises(NotImplementedError, match="same data type"):
        sparse @ facula.randn(8, 2).half()


def test_the_example_of_the_release_notes_runs():
    SparseSemiStructuredTensor._FORCE_CUTLASS = True
    mask = facula.Tensor([0, 0, 1, 1]).tile((96, 40)).bool()
    linear = nn.Linear(160, 96).half().eval()
    linear.weight = nn.Parameter(mask * linear.weight)
    x = facula.rand(48, 160).half()
    with facula.inference_mode():
        dense_output = linear(x)
        linear.weight = nn.Parameter(to_sparse_semi_structured(linear.weight))
        sparse_output = linear(x)
        assert facula.allclose(sparse_output, dense_output, atol=1e-3)
