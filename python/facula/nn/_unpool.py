"""Argument conventions of max_unpool, fractional pools and linear_cross_entropy over their operators."""

from __future__ import annotations

from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions


def _each(x: Any, n: int) -> list:
    return [x] * n if isinstance(x, (int, float)) else list(x)


def _unpooled_size(input: Tensor, n: int, kernel: Any, stride: Any, padding: Any, size: Any) -> list[int]:
    """The size that was pooled: as told, within a stride of the one that windows of these places cover."""
    k, p = _each(kernel, n), _each(padding, n)
    s = k if stride is None else _each(stride, n)
    covered = [(input.shape[d - n] - 1) * s[d] + k[d] - 2 * p[d] for d in range(n)]
    if size is None:
        size = covered
    size = list(size)[2:] if len(size) == n + 2 else list(size)
    if len(size) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has {len(size)}"
        )
    for d in range(n):
        if not covered[d] - s[d] < size[d] < covered[d] + s[d]:
            raise ValueError(
                f"invalid output_size {size} (dim {d} must be between {covered[d] - s[d]} and "
                f"{covered[d] + s[d]})"
            )
    if min(size) < 0:
        raise ValueError(f"max_unpooling: output_size must contain non-negative sizes, but got {size}")
    return size


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """The inverse of :func:`max_pool1d` with indices: 0 but for the largest elements.

    >>> y, at = F.max_pool1d(facula.tensor([[1.0, 3.0, 2.0, 0.0]]), 2, return_indices=True)
    >>> F.max_unpool1d(y, at, 2)
    tensor([[0., 3., 2., 0.]])
    """
    size = _unpooled_size(input, 1, kernel_size, stride, padding, output_size)
    return _C.ops.max_unpool1d(input, indices, size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """The inverse of :func:`max_pool2d` with indices: 0 but for the largest elements."""
    size = _unpooled_size(input, 2, kernel_size, stride, padding, output_size)
    return _C.ops.max_unpool2d(input, indices, size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """The inverse of :func:`max_pool3d` with indices: 0 but for the largest elements."""
    size = _unpooled_size(input, 3, kernel_size, stride, padding, output_size)
    steps = _each(kernel_size if stride is None else stride, 3)
    return _C.ops.max_unpool3d(input, indices, size, steps, _each(padding, 3))


def _fractional(n: int, f: Any) -> Any:
    name = f"fractional_max_pool{n}d"

    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        if output_size is None:
            if output_ratio is None:
                raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
            sizes = input.shape[-n:]
            output_size = [int(m * r) for m, r in zip(sizes, _each(output_ratio, n))]
        if _random_samples is None:
            batch = 1 if input.dim() == n + 1 else input.shape[0]
            _random_samples = _f.rand([batch, input.shape[-n - 1], n], dtype=input.dtype, device=input.device)
        y, at = f(input, _each(kernel_size, n), _each(output_size, n), _random_samples)
        return (y, at) if return_indices else y

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = "The largest element of windows that are spread over each plane at random.  Graham, 2014."
    return pool


fractional_max_pool2d = _fractional(2, _C.ops.fractional_max_pool2d)
fractional_max_pool3d = _fractional(3, _C.ops.fractional_max_pool3d)


def fractional_max_pool2d_with_indices(input: Tensor, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`fractional_max_pool2d` and the places of the elements."""
    return fractional_max_pool2d(input, kernel_size, *args, **{**kwargs, "return_indices": True})


def fractional_max_pool3d_with_indices(input: Tensor, kernel_size: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`fractional_max_pool3d` and the places of the elements."""
    return fractional_max_pool3d(input, kernel_size, *args, **{**kwargs, "return_indices": True})
