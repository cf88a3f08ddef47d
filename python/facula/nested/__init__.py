"""Tensors whose rows differ in length along one dimension, of layout ``jagged``: without padding, the
rows are consecutive in ``values()``, and ``offsets()`` are the positions where they begin.

    nt = facula.nested.nested_tensor([facula.ones(2, 8), facula.ones(5, 8)], layout=facula.jagged)
    nt.shape                                    # facula.Size([2, j1, 8])
    facula.nn.Linear(8, 4)(nt).sum(1)           # [2, 4]

Element-wise functions, linear, normalisation, attention, softmax, reductions and views support them;
every other function raises an error. Gradients pass through ``values()``.
"""

from __future__ import annotations

from typing import Any

from .. import _C
from ._jagged import NestedTensor, _nested, _Ragged, as_tensors, lengths_of, ragged_of

Tensor = _C.Tensor
_f = _C.functions

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def _check_layout(name: str, layout: Any) -> None:
    if layout is not _C.jagged:
        raise NotImplementedError(
            f"nested.{name}: nested tensors are of layout jagged, got {layout or _C.strided}\n"
            f"  hint: pass layout={_C.package_name()}.jagged"
        )


def _joined(name: str, rows: list[Tensor]) -> NestedTensor:
    if not rows:
        raise RuntimeError(f"nested.{name}: cannot make a jagged tensor of no rows")
    first = rows[0]
    for t in rows:
        if t.dim() == 0 or t.shape[1:] != first.shape[1:] or t.dtype != first.dtype:
            raise RuntimeError(
                f"nested.{name}: rows of a jagged tensor differ in their first dimension only, got "
                f"{[tuple(r.shape) for r in rows[:6]]} of dtypes {sorted({str(r.dtype) for r in rows})}"
            )
    lengths = _C.tensor([t.shape[0] for t in rows], dtype=_C.int64)
    return _nested(_f.cat(rows, 0), ragged_of(lengths), 1)


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """Returns a jagged tensor with copies of the rows (tensors or lists of numbers), detached from them.

    >>> nt = facula.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=facula.jagged)
    >>> nt.offsets()
    tensor([0, 2, 3])
    """
    _check_layout("nested_tensor", layout)
    rows = [t.detach() if isinstance(t, Tensor) else _C.tensor(t) for t in as_tensors(tensor_list)]
    rows = [t if dtype is None else t.to(dtype) for t in rows]
    joined = _joined("nested_tensor", rows if device is None else [t.to(device) for t in rows])
    return joined.requires_grad_(requires_grad)  # type: ignore[return-value]


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """Returns a jagged tensor of the rows, or of the first dimension of a tensor; differentiable."""
    if isinstance(ts, NestedTensor):
        return ts if dtype is None and device is None else ts.to(dtype or ts.dtype)  # type: ignore[return-value]
    _check_layout("as_nested_tensor", layout)
    if isinstance(ts, Tensor):
        if ts.dim() < 2:
            raise RuntimeError(
                f"nested.as_nested_tensor: expected at least 2 dimensions, got {tuple(ts.shape)}"
            )
        lengths = _f.full((ts.shape[0],), ts.shape[1], dtype=_C.int64)
        values = ts.flatten(0, 1)
        return _nested(values if dtype is None else values.to(dtype), ragged_of(lengths), 1)
    rows = [t if isinstance(t, Tensor) else _C.tensor(t) for t in ts]
    return _joined("as_nested_tensor", [t if dtype is None else t.to(dtype) for t in rows])


def to_padded_tensor(input: Tensor, padding: float, output_size: Any = None, out: Any = None) -> Tensor:
    """Returns the rows as a dense tensor, padded with ``padding`` to the longest one or to
    ``output_size``.

    >>> nt = facula.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=facula.jagged)
    >>> facula.nested.to_padded_tensor(nt, 0.0)
    tensor([[1., 2.],
            [3., 0.]])
    """
    if not isinstance(input, NestedTensor):
        raise NotImplementedError(
            f"to_padded_tensor: expected a nested tensor, got a dense one of shape {tuple(input.shape)}"
        )
    if out is not None:
        raise NotImplementedError("to_padded_tensor: out= is not supported")
    return input.to_padded_tensor(padding, output_size)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """Returns a jagged tensor of consecutive values, which it shares: row i begins at ``offsets[i]`` and
    ends at the next offset, or after ``lengths[i]``. The ragged dimension is ``jagged_dim`` (default 1).
    Tensors with the same ``offsets`` object are compatible.

    >>> nt = facula.nested.nested_tensor_from_jagged(facula.arange(5), facula.tensor([0, 2, 5]))
    >>> nt.unbind()
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    if offsets is None and lengths is None:
        raise RuntimeError("nested_tensor_from_jagged: expected offsets or lengths, or both")
    axis = 1 if jagged_dim is None else jagged_dim
    if not 1 <= axis <= values.dim():
        raise RuntimeError(
            f"nested_tensor_from_jagged: jagged_dim {axis} is out of range of {values.dim() + 1}"
        )
    for name, t in (("offsets", offsets), ("lengths", lengths)):
        if t is not None and (t.dim() != 1 or t.dtype not in (_C.int64, _C.int32)):
            raise RuntimeError(
                f"nested_tensor_from_jagged: expected {name} to be a vector of integers, got {t}"
            )
    ragged = ragged_of(lengths) if offsets is None else ragged_of(lengths, offsets)  # type: ignore[arg-type]
    end = int(ragged.ends.max()) if len(ragged) else 0
    if end > values.shape[axis - 1]:
        raise RuntimeError(
            f"nested_tensor_from_jagged: rows end at {end}, but values have {values.shape[axis - 1]} elements"
        )
    return _nested(values, ragged, axis)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = None) -> NestedTensor:
    """Returns ``length`` elements from ``start`` on of each row of ``tensor`` [rows, n, ...] (numbers, or
    tensors with one for each row), which share its memory if it is contiguous. ``dim`` must be 1.
    """
    _check_layout("narrow", layout)
    if dim != 1 or tensor.dim() < 2:
        raise RuntimeError(
            f"nested.narrow: expected dim=1 of a tensor of 2 dimensions or more, got dim={dim}"
        )
    rows, n = tensor.shape[:2]

    def each(x: Any) -> Tensor:
        return x.to(_C.int64) if isinstance(x, Tensor) else _f.full((rows,), int(x), dtype=_C.int64)

    begin, count = each(start), each(length)
    if rows and not bool(((begin >= 0) & (count >= 0) & (begin + count <= n)).all()):
        raise RuntimeError(f"nested.narrow: start and length leave rows of {n} elements")
    offsets = _f.cat([begin + _f.arange(rows) * n, _C.tensor([rows * n])])
    return _nested(tensor.flatten(0, 1), _Ragged(offsets, count), 1)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """Returns the elements of each row of a matrix where ``mask`` is True.

    >>> x = facula.tensor([[1, 2], [3, 4]])
    >>> facula.nested.masked_select(x, x != 3).unbind()
    (tensor([1, 2]), tensor([4]))
    """
    if tensor.layout is not _C.strided:
        raise RuntimeError(f"nested.masked_select: expected a dense tensor, got layout {tensor.layout}")
    if tensor.dim() != 2 or mask.dtype != _C.bool:
        raise RuntimeError(
            f"nested.masked_select: expected a matrix and a mask of dtype bool, got shape "
            f"{tuple(tensor.shape)} and {mask.dtype}"
        )
    mask = mask.expand(tensor.shape)
    return _nested(tensor.masked_select(mask), ragged_of(mask.sum(1)), 1)
