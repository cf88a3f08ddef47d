"""Sparse tensors: constructors and functions.

A tensor of layout ``sparse_coo`` contains the indices and the values of its nonzero elements, one of
layout ``sparse_csr`` a matrix by rows, one of layout ``sparse_csc`` a matrix by columns. Operators that do
not support them raise an error; ``to_dense()`` returns a tensor that all of them support. ``mm``, ``addmm``
and ``sum`` of this module give a sparse operand a sparse gradient with the operand's indices; the operators
of the package, such as ``@``, give it the gradient of a dense operand.
"""

from __future__ import annotations

from typing import Any

from . import _C, _namespace
from ._semi_structured import SparseSemiStructuredTensor as SparseSemiStructuredTensor
from ._semi_structured import to_sparse_semi_structured as to_sparse_semi_structured

Tensor = _C.Tensor
_f = _C.functions

__all__ = [
    "SparseSemiStructuredTensor",
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
    "to_sparse_semi_structured",
]


def _tensor(data: Any, dtype: Any = None) -> Tensor:
    t = data if isinstance(data, Tensor) else _C.tensor(data)
    return t if dtype is None or t.dtype == dtype else t.to(dtype)


def _check_device(name: str, device: Any) -> None:
    """Raises for a device that does not exist, or that does not support sparse tensors."""
    if device is not None and (sample_tensor := _f.empty((0,), device=device).device).type != "cpu":
        raise NotImplementedError(f"{name}(): sparse tensors are on the CPU, not on {sample_tensor}")


def _finished(t: Tensor, requires_grad: bool) -> Tensor:
    return t.requires_grad_() if requires_grad else t


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """Returns a sparse tensor whose element at ``indices[:, k]`` is ``values[k]``.

    Elements with equal indices are added. By default ``size`` is as large as the indices require; with
    only a size the tensor has no elements. Indices are always checked.

    >>> facula.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if values is None:
        size = indices if size is None else size
        if size is None:
            raise TypeError("sparse_coo_tensor(): expected indices and values, or a size")
        indices = _f.zeros((len(size), 0), dtype=_C.int64)
        values = _f.zeros((0,), dtype=dtype or _C.get_default_dtype())
    _check_device("sparse_coo_tensor", device)
    v = _tensor(values, dtype)
    result = _C.ops.sparse_coo_tensor(
        _tensor(indices), v if v.dim() else v.reshape(1), None if size is None else tuple(size),
        is_coalesced=bool(is_coalesced),
    )  # fmt: skip
    return _finished(result, requires_grad)


def _compressed(name: str, parts: tuple[Any, Any, Any], size: Any, dtype: Any, device: Any) -> Tensor:
    """The tensor of sparse_csr_tensor or sparse_csc_tensor, which have the same parameters but for names."""
    _check_device(name, device)
    compressed, plain, values = parts
    sizes = None if size is None else tuple(size)
    return getattr(_C.ops, name)(_tensor(compressed), _tensor(plain), _tensor(values, dtype), sizes)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """Returns a sparse matrix by rows: row i has the elements from ``crow_indices[i]`` to
    ``crow_indices[i + 1]``.

    >>> facula.sparse_csr_tensor([0, 1, 2], [1, 0], [3.0, 4.0]).to_dense()
    tensor([[0., 3.],
            [4., 0.]])
    """
    parts = crow_indices, col_indices, values
    return _finished(_compressed("sparse_csr_tensor", parts, size, dtype, device), requires_grad)


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """Returns a sparse matrix by columns: column j has the elements ``ccol_indices[j]`` to
    ``ccol_indices[j + 1] - 1``.

    >>> facula.sparse_csc_tensor([0, 1, 2], [1, 0], [3.0, 4.0]).to_dense()
    tensor([[0., 4.],
            [3., 0.]])
    """
    parts = ccol_indices, row_indices, values
    return _finished(_compressed("sparse_csc_tensor", parts, size, dtype, device), requires_grad)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """Returns a sparse matrix by rows (``layout`` sparse_csr) or by columns (sparse_csc).

    >>> facula.sparse_compressed_tensor([0, 1], [1], [3.0], layout=facula.sparse_csr).to_dense()
    tensor([[0., 3.]])
    """
    makers = {_C.sparse_csr: sparse_csr_tensor, _C.sparse_csc: sparse_csc_tensor}
    if layout not in makers:
        raise RuntimeError(f"sparse_compressed_tensor: layout must be sparse_csr or sparse_csc, got {layout}")
    return makers[layout](
        compressed_indices, plain_indices, values, size, dtype=dtype, device=device,
        requires_grad=requires_grad,
    )  # fmt: skip


_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "max": "amax", "min": "amin"}


def mm(sparse: Tensor, dense: Tensor, reduce: str | None = None) -> Tensor:
    """Returns the product of matrices, either of which may be sparse; the product of two sparse ones is
    sparse.

    With ``reduce`` ('sum', 'mean', 'amax' or 'max', 'amin' or 'min') the products in each element are
    reduced in that way, over the stored elements of a CSR matrix ``sparse``; a row without elements is 0.
    ``dense`` must be dense then.

    >>> a = facula.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]).to_sparse_csr()
    >>> facula.sparse.mm(a, facula.tensor([[1.0], [5.0], [3.0]]), "mean")
    tensor([[3.5000],
            [0.0000]])
    """
    if reduce is None:
        return _C.ops._sparse_mm(sparse, dense)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"sparse.mm: reduce must be one of {', '.join(_REDUCTIONS)}, got {reduce!r}")
    if sparse.layout is not _C.sparse_csr or dense.layout is not _C.strided:
        raise NotImplementedError(
            "sparse.mm: with `reduce` it takes a matrix of layout sparse_csr and a dense one, got "
            f"{sparse.layout} and {dense.layout}"
        )
    return _C.ops._sparse_mm(sparse, dense, _REDUCTIONS[reduce])


def spdiags(diagonals: Tensor, offsets: Tensor, shape: tuple[int, int], layout: Any = None) -> Tensor:
    """Returns a sparse matrix with these rows as its diagonals: element j of a row is in column j.

    Args:
        diagonals: a row for each diagonal, or a single one.
        offsets: the position of each: 0 is the main diagonal, those above it are positive. Without
        duplicates.
        layout: sparse_coo (default) or sparse_csr.

    >>> rows = facula.tensor([[1, 2, 3], [4, 5, 6]])
    >>> facula.sparse.spdiags(rows, facula.tensor([0, -1]), (3, 3)).to_dense()
    tensor([[1, 0, 0],
            [4, 2, 0],
            [0, 5, 3]])
    """
    rows, places = (
        diagonals.reshape(-1, diagonals.shape[-1]) if diagonals.dim() < 2 else diagonals,
        offsets.reshape(-1),
    )
    if rows.dim() != 2 or offsets.dim() > 1:
        raise RuntimeError("spdiags: diagonals must have one or two dimensions, offsets none or one")
    if len(shape) != 2:
        raise RuntimeError(f"spdiags: Output shape must be 2d, got {tuple(shape)}")
    if places.dtype != _C.int64:
        raise RuntimeError(f"spdiags: Offset Tensor must have dtype Long but got {places.dtype}")
    if len(rows) != len(places):
        raise RuntimeError(
            f"spdiags: Number of diagonals ({len(rows)}) does not match the number of offsets ({len(places)})"
        )
    where: list[int] = places.tolist()
    if len(set(where)) != len(where):
        raise RuntimeError("spdiags: Offset tensor contains duplicate values")
    if layout not in (None, _C.sparse_coo, _C.sparse_csr):
        raise NotImplementedError(f"spdiags: layout must be sparse_coo or sparse_csr, got {layout}")
    ranges = [(max(k, 0), max(min(shape[1], rows.shape[1], shape[0] + k), max(k, 0))) for k in where]
    columns = [_f.arange(a, b) for a, b in ranges]
    values = [row[a:b] for row, (a, b) in zip(rows, ranges)]
    indices = _f.stack([_f.cat([c - k for c, k in zip(columns, where)]), _f.cat(columns)])
    result = sparse_coo_tensor(indices, _f.cat(values), tuple(shape))
    return result.coalesce().to_sparse_csr() if layout is _C.sparse_csr else result


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Tensor | None = None
) -> Tensor:
    """Returns beta * input + alpha * (mat1 @ mat2) at the elements of the CSR matrix ``input``, in its
    layout.

    >>> at = facula.eye(2).to_sparse_csr()
    >>> facula.sparse.sampled_addmm(at, facula.ones(2, 3), facula.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if input.layout is not _C.sparse_csr:
        raise NotImplementedError(
            f"sparse.sampled_addmm: expected a matrix of layout sparse_csr, got {input.layout}"
        )
    more = {} if out is None else {"out": out}
    return _C.ops.sparse_sampled_addmm(input, mat1, mat2, beta=beta, alpha=alpha, **more)


def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of a sparse and a dense matrix, as a sparse tensor."""
    return _f.mm(input, mat2).to_sparse()


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Returns the product of a matrix, which may be sparse, with a dense one: a former name of ``mm``."""
    return _f.mm(input, mat2)


dsmm = spmm


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), where mat1 may be sparse."""
    return _C.ops._sparse_addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Returns the sum of a sparse tensor over ``dim``: sparse, or dense if no sparse dimension is left."""
    if input.layout is _C.strided:
        raise RuntimeError(f"sparse.sum: expected a sparse tensor; {_C.package_name()}.sum takes dense ones")
    return _C.ops._sparse_sum(input, dim, dtype=dtype)


def _softmax(input: Tensor, dim: int, dtype: Any, log: bool, name: str) -> Tensor:
    if input.layout is not _C.sparse_coo:
        raise NotImplementedError(
            f"sparse.{name}: expected a tensor of layout sparse_coo, got {input.layout}"
        )
    s = (input if dtype is None else input.to(dtype)).coalesce()
    if not -s.dim() <= dim < s.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-s.dim()}, {s.dim() - 1}], but got {dim})"
        )
    d = dim % s.dim()
    indices, values = s.indices(), s.values()
    if d >= s.sparse_dim():
        results = (_f.log_softmax if log else _f.softmax)(values, d - s.sparse_dim() + 1)
    else:
        results = _softmax_of_groups(indices, values, s.shape, d, log)
    return sparse_coo_tensor(indices, results, s.shape, is_coalesced=True)


def _softmax_of_groups(indices: Tensor, values: Tensor, shape: Any, d: int, log: bool) -> Tensor:
    """Computes softmax over elements that share all sparse indices except that of dimension ``d``."""
    from ._composed import unique

    key = _f.zeros((indices.shape[1],), dtype=_C.int64)
    for k in range(indices.shape[0]):
        if k != d:
            key = key * shape[k] + indices[k]
    groups, group = unique(key, return_inverse=True)
    low = _f.full((groups.shape[0], *values.shape[1:]), -float("inf"), dtype=values.dtype)
    rows = group.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    top = low.scatter_reduce(0, rows, values.detach(), "amax")  # index_reduce would warn
    shifted = values - top[group]
    total = _f.zeros_like(low).index_add(0, group, shifted.exp())[group]
    return shifted - total.log() if log else shifted.exp() / total


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Returns softmax over ``dim`` of the stored elements; other elements count as minus infinity.

    >>> facula.sparse.softmax(facula.tensor([[1.0, 0.0, 1.0]]).to_sparse(), 1).to_dense()
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    return _softmax(input, dim, dtype, False, "softmax")


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Returns the logarithms of softmax, for the stored elements."""
    return _softmax(input, dim, dtype, True, "log_softmax")


class check_sparse_tensor_invariants:
    """PyTorch's switch for index checks, which always happen here."""

    @staticmethod
    def is_enabled() -> bool:
        return True

    @staticmethod
    def enable() -> None:
        pass

    @staticmethod
    def disable() -> None:
        pass

    def __init__(self, enable: bool = True) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        return function


_namespace.overridable(globals(), _namespace.of_tensors)

TYPE_CHECKING = False
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name.endswith("Tensor"):
            from ._legacy_types import sparse_maker

            if (maker := sparse_maker(name)) is not None:
                globals()[name] = maker
                return maker
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
