"""Products of groups of rows, each with its own matrix."""

from __future__ import annotations

from .. import _C

Tensor = _C.Tensor
_f = _C.functions


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: _C.dtype | None = None,
) -> Tensor:
    """Returns the products of groups: group g ends at ``offs[g]`` of the dimension along which a matrix
    is divided (where the other operand is a batch of matrices). Rows behind the last group are 0.

    Shapes: ``[n, k] x [groups, k, m] -> [n, m]``, ``[groups, n, k] x [k, m] -> [n, m]``,
    ``[n, k] x [k, m] -> [groups, n, m]`` (groups of k) and, without ``offs``,
    ``[groups, n, k] x [groups, k, m] -> [groups, n, m]``.

    >>> rows, experts = facula.ones(3, 2), facula.tensor([[[1.0], [1.0]], [[2.0], [2.0]]])
    >>> F.grouped_mm(rows, experts, offs=facula.tensor([1, 3], dtype=facula.int32))
    tensor([[2.],
            [4.],
            [4.]])
    """
    for name, m in (("mat_a", mat_a), ("mat_b", mat_b)):
        if m.dtype not in (_C.float32, _C.bfloat16, _C.float16):
            raise RuntimeError(
                f"grouped_mm: expected {name} to be float32, bfloat16 or float16, got {m.dtype}"
            )
        if m.dim() not in (2, 3):
            raise RuntimeError(
                f"grouped_mm: expected {name} of 2 or 3 dimensions, got shape {tuple(m.shape)}"
            )
    if mat_a.dtype != mat_b.dtype or out_dtype not in (None, mat_a.dtype):
        raise RuntimeError(
            f"grouped_mm: expected matrices and out_dtype of one dtype, got {mat_a.dtype}, {mat_b.dtype} and "
            f"{out_dtype}"
        )
    if bias is not None:
        raise RuntimeError("grouped_mm: bias is not supported")
    flat_a, flat_b = mat_a.dim() == 2, mat_b.dim() == 2
    if (offs is not None) != (flat_a or flat_b):
        raise RuntimeError(
            "grouped_mm: expected offsets if there is a 2d matrix, and none if both are 3d, got shapes "
            f"{tuple(mat_a.shape)} and {tuple(mat_b.shape)}"
        )
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(
            f"grouped_mm: the inner sizes of {tuple(mat_a.shape)} and {tuple(mat_b.shape)} do not match"
        )
    if offs is None:
        return _f.bmm(mat_a, mat_b)
    return _by_offsets(mat_a, mat_b, offs)


def _by_offsets(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    flat_a, flat_b = a.dim() == 2, b.dim() == 2
    extent = a.shape[1] if flat_a and flat_b else a.shape[0] if flat_a else b.shape[1]
    ends = offs.tolist()
    groups = len(ends) if flat_a and flat_b else b.shape[0] if flat_a else a.shape[0]
    if offs.dim() != 1 or len(ends) != groups or [0, *ends, extent] != sorted([0, *ends, extent]):
        raise RuntimeError(f"grouped_mm: expected {groups} increasing offsets up to {extent}, got {ends}")
    spans = [(begin, end - begin) for begin, end in zip([0, *ends], ends)]
    if flat_a and flat_b:
        return _f.stack([a.narrow(1, at, n) @ b.narrow(0, at, n) for at, n in spans], 0)
    rest = extent - (ends[-1] if ends else 0)
    if flat_a:
        products = [a.narrow(0, at, n) @ b[g] for g, (at, n) in enumerate(spans)]
        return _f.cat([*products, _f.zeros((rest, b.shape[2]), dtype=a.dtype)], 0)
    products = [a[g] @ b.narrow(1, at, n) for g, (at, n) in enumerate(spans)]
    return _f.cat([*products, _f.zeros((a.shape[1], rest), dtype=a.dtype)], 1)
