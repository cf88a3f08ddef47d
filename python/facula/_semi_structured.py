"""Semi-structured matrices: of each four elements in a row two are zero, and products skip these."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _C

Tensor = _C.Tensor
_f = _C.functions

_DTYPES = (_C.float16, _C.bfloat16, _C.float32, _C.int8)


class SparseSemiStructuredTensor(Tensor):
    """A matrix with at most two nonzero elements in each group of four columns.

    ``to_sparse_semi_structured`` creates one. The kernels of ``linear``, ``mm``, ``matmul``, ``addmm`` and
    of their gradients, read the nonzero elements alone. The gradient of the matrix is dense, and zero where
    the matrix is.
    """

    BACKEND = "cpu"
    _FORCE_CUTLASS = False  # programs for GPUs choose a library with it
    _elements: Tensor  # [rows, groups, 2]
    _places: Tensor  # their positions in the groups, from 0 to 3
    _is_transposed: bool

    requires_grad = property(lambda self: self._elements.requires_grad)
    grad_fn = property(lambda self: None)
    is_leaf = property(lambda self: True)
    packed = property(lambda self: self.values())
    meta = property(lambda self: self.indices())

    @property
    def grad(self) -> Any:
        gradient = self._elements.grad
        return None if gradient is None else _dense(gradient, self._places, self._is_transposed)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            raise RuntimeError("the gradient of a semi-structured matrix can be set to None alone")
        self._elements.grad = None

    def _columns(self) -> Tensor:
        """Returns the column of each element of the matrix that is not transposed."""
        if "_column_numbers" not in self.__dict__:
            first = _f.arange(0, self._places.shape[1] * 4, 4)[:, None]
            self.__dict__["_column_numbers"] = (self._places.to(_C.int64) + first).flatten(1)
        return self.__dict__["_column_numbers"]

    @classmethod
    def from_dense(cls, original_tensor: Tensor, alg_id: int = 0) -> SparseSemiStructuredTensor:
        """Returns the nonzero elements of a matrix and their places."""
        _check(original_tensor)
        rows, columns = original_tensor.shape
        groups = original_tensor.detach().reshape(rows, columns // 4, 4)
        is_zero = groups == 0
        if bool(((~is_zero).sum(-1) > 2).any()):
            raise RuntimeError(
                "to_sparse_semi_structured: at least two of each four consecutive elements of a row must be "
                f"zero, and the matrix of shape {tuple(original_tensor.shape)} has groups with more nonzero "
                "elements\n  hint: multiply it by a mask such as tensor([0, 0, 1, 1]).tile(...)"
            )
        places = _f.argsort(is_zero.to(_C.uint8), dim=-1, stable=True)[..., :2]
        elements = _f.gather(groups, -1, places)
        return _wrapped(elements.contiguous(), places.to(_C.uint8).contiguous())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{type(self).__name__}(shape={self.shape})"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _wrapped, (self._elements.detach(), self._places, self._is_transposed, self.requires_grad)

    def __deepcopy__(self, memo: dict) -> SparseSemiStructuredTensor:
        elements = self._elements.detach().clone()
        copied = memo[id(self)] = _wrapped(elements, self._places, self._is_transposed, self.requires_grad)
        if getattr(self, "_is_param", False):
            copied._is_param = True
        return copied

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        rule = _RULES.get(name)
        if rule is not None:
            return rule(*args, **(kwargs or {}))
        if name in _FACTS:
            with _C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise NotImplementedError(
            f"{name}: not defined for semi-structured matrices; linear, mm, matmul, addmm, t, detach, clone "
            "and to_dense are\n  hint: to_dense() gives a tensor that every function takes"
        )


def _check(t: Tensor) -> None:
    if t.dim() != 2:
        raise RuntimeError(
            f"Error original_tensor.dim = {t.dim()} is not supported! Only 2d tensors are currently "
            "supported."
        )
    if not t.is_contiguous():
        raise RuntimeError(
            "Error original_tensor is not contiguous!Only contiguous tensors are currently supported."
        )
    if t.dtype not in _DTYPES:
        raise RuntimeError(
            f"Error original_tensor.dtype {t.dtype} is not a supported dtype; "
            f"{', '.join(map(str, _DTYPES))} are"
        )
    if t.shape[0] == 0 or t.shape[1] == 0 or t.shape[1] % 4:
        raise RuntimeError(
            f"Error original_tensor.shape {t.shape} is not supported! The number of columns must be a "
            "positive multiple of 4"
        )


def _wrapped(
    elements: Tensor, places: Tensor, is_transposed: bool = False, requires_grad: bool = False
) -> SparseSemiStructuredTensor:
    rows, groups, _ = elements.shape
    sizes = [groups * 4, rows] if is_transposed else [rows, groups * 4]
    # The handle has the sizes and the dtype, and no memory.
    handle = _C.make_subclass(SparseSemiStructuredTensor, _f.empty([1], dtype=elements.dtype).expand(sizes))
    elements = elements.requires_grad_() if requires_grad and not elements.requires_grad else elements
    handle.__dict__.update(_elements=elements, _places=places, _is_transposed=is_transposed)
    return handle


def _dense(elements: Tensor, places: Tensor, is_transposed: bool) -> Tensor:
    rows, groups, _ = elements.shape
    zeros = _f.zeros([rows, groups, 4], dtype=elements.dtype)
    dense = zeros.scatter(-1, places.to(_C.int64), elements).reshape(rows, groups * 4)
    return dense.t() if is_transposed else dense


def _is_sparse(x: Any) -> bool:
    return isinstance(x, SparseSemiStructuredTensor)


def _product(matrix: SparseSemiStructuredTensor, dense: Tensor, name: str) -> Tensor:
    """Returns the product of a matrix that is not transposed and a dense one."""
    if matrix.dtype != dense.dtype:
        raise NotImplementedError(
            f"`SparseSemiStructuredTensor` matmul: trying to do `A={tuple(matrix.shape)} @ "
            f"B={tuple(dense.shape)}`, with A.dtype={matrix.dtype} and B.dtype={dense.dtype}. This operation "
            "is only supported when A and B have the same data type."
        )
    if matrix.shape[1] != dense.shape[0]:
        raise RuntimeError(
            f"{name}: shapes {tuple(matrix.shape)} and {tuple(dense.shape)} of the operands do not fit"
        )
    operands = (matrix._elements.flatten(1), matrix._columns(), dense.contiguous())
    if _C.is_tracing():
        return _sums(*operands)
    return _program(*((tuple(t.shape), t.dtype) for t in operands))(*operands)


def _sums(elements: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
    """Returns the products of the rows' elements and rows of a dense matrix, summed in the same kernel."""
    dtype = _C.int32 if elements.dtype == _C.int8 else _C.float32
    products = elements.to(dtype)[:, :, None] * dense[columns].to(dtype)
    sums = products.sum(1, dtype=dtype)
    return sums if dtype == _C.int32 else sums.to(elements.dtype)


@functools.lru_cache(256)
def _program(*likes: tuple) -> Callable:
    """Returns the program of ``_sums`` for operands of these sizes and dtypes."""
    from .program import trace

    return trace(_sums, *(_f.zeros(sizes, dtype=dtype) for sizes, dtype in likes))


def _mm(input: Any, mat2: Any) -> Tensor:
    if input.dim() != 2 or mat2.dim() != 2:
        raise NotImplementedError("`SparseSemiStructuredTensor` matmul: Broadcasting is not implemented")
    if _is_sparse(input) and _is_sparse(mat2):
        raise NotImplementedError("`SparseSemiStructuredTensor` matmul: only one operand may be sparse")
    if _is_sparse(input) and not input._is_transposed:
        return _product(input, mat2, "mm")
    if _is_sparse(mat2) and mat2._is_transposed:
        return _product(_t(mat2), input.t(), "mm").t()
    raise NotImplementedError(
        "mm: a semi-structured matrix is the left operand, or the transposed right one\n"
        "  hint: x @ w.t() and w @ x are products with a semi-structured w"
    )


def _matmul(input: Any, other: Any) -> Tensor:
    if _is_sparse(other) and not _is_sparse(input) and input.dim() > 2:
        return _mm(input.flatten(0, -2), other).reshape(*input.shape[:-1], other.shape[1])
    return _mm(input, other)


def _addmm(input: Tensor, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return input * beta + _mm(mat1, mat2) * alpha


def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    if not _is_sparse(weight) or _is_sparse(input):
        raise NotImplementedError("linear: only the weight may be a semi-structured matrix")
    rows = input.reshape(-1, input.shape[-1])
    y = _mm(rows, _t(weight))
    y = y if bias is None else y + bias
    return y.reshape(*input.shape[:-1], weight.shape[0])


def _t(matrix: SparseSemiStructuredTensor) -> SparseSemiStructuredTensor:
    turned = _wrapped(matrix._elements, matrix._places, not matrix._is_transposed)
    turned.__dict__["_column_numbers"] = matrix._columns()
    return turned


def _detached(matrix: SparseSemiStructuredTensor) -> SparseSemiStructuredTensor:
    return _wrapped(matrix._elements.detach(), matrix._places, matrix._is_transposed)


def _requires_grad(matrix: SparseSemiStructuredTensor, requires_grad: bool = True) -> Any:
    matrix._elements.requires_grad_(requires_grad)
    return matrix


def _values(matrix: SparseSemiStructuredTensor) -> Tensor:
    return matrix._elements.detach().flatten(1)


def _indices(matrix: SparseSemiStructuredTensor) -> Tensor:
    """Returns the places of each group as four bits, in int16; in int32 for int8."""
    dtype, count = (_C.int32, 8) if matrix.dtype == _C.int8 else (_C.int16, 4)
    places = matrix._places.to(_C.int64)
    nibbles = places[..., 0] + places[..., 1] * 4
    missing = -nibbles.shape[1] % count
    nibbles = _f.constant_pad_nd(nibbles, [0, missing]).unflatten(1, (-1, count))
    packed = (nibbles * 16 ** _f.arange(count)).sum(-1)
    limit = 2 ** (4 * count - 1)
    return _f.where(packed >= limit, packed - 2 * limit, packed).to(dtype)


def _viewed(matrix: SparseSemiStructuredTensor, *shape: Any) -> SparseSemiStructuredTensor:
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if sizes != tuple(matrix.shape):
        raise NotImplementedError(
            "`view` is not implemented for SparseSemiStructuredTensor, except for the dummy case "
            f"(shape={sizes})"
        )
    return matrix


def _moved(matrix: SparseSemiStructuredTensor, *args: Any, **kwargs: Any) -> SparseSemiStructuredTensor:
    elements = matrix._elements.to(*args, **kwargs)
    if elements.dtype not in _DTYPES:
        raise RuntimeError(f"to: semi-structured matrices of {elements.dtype} are not supported")
    return _wrapped(elements, matrix._places.to(elements.device), matrix._is_transposed)


_RULES: dict[str, Callable] = {
    "linear": _linear,
    "mm": _mm,
    "matmul": _matmul,
    "__matmul__": _matmul,
    "__rmatmul__": lambda a, b: _matmul(b, a),
    "addmm": _addmm,
    "t": _t,
    "transpose": lambda a, dim0, dim1: _t(a) if dim0 % 2 != dim1 % 2 else a,
    "detach": _detached,
    "clone": lambda a, **options: _wrapped(a._elements.clone(), a._places, a._is_transposed),
    "requires_grad_": _requires_grad,
    "to_dense": lambda a: _dense(a._elements, a._places, a._is_transposed),
    "values": _values,
    "indices": _indices,
    "view": _viewed,
    "to": _moved,
    "cpu": _moved,
}
_FACTS = frozenset(
    """__get__ __set__ size stride dim numel nelement element_size is_floating_point is_complex
    __len__ __hash__ get_device is_contiguous ndimension __repr__ storage_offset data_ptr untyped_storage
    is_inference is_shared register_hook""".split()
)


def to_sparse_semi_structured(
    original_tensor: Tensor, transposed: bool = False, alg_id: int = 0
) -> SparseSemiStructuredTensor:
    """Returns a matrix as one with two zeros in each group of four columns.

    Raises RuntimeError if a group has more than two nonzero elements. The number of columns must be a
    multiple of 4.

    >>> w = facula.tensor([0.0, 0.0, 1.0, 2.0]).tile((4, 2))
    >>> sparse = facula.sparse.to_sparse_semi_structured(w)
    >>> facula.equal(sparse @ facula.ones(8, 3), w @ facula.ones(8, 3))
    True
    """
    if transposed:
        raise NotImplementedError(
            "to_sparse_semi_structured: transposed=True\n  hint: call t() on the result"
        )
    return SparseSemiStructuredTensor.from_dense(original_tensor, alg_id)
