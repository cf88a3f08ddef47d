"""Functions composed of operators, under PyTorch's names: repetition, unique elements and others; print
options of tensors; memory statistics.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _C, _namespace
from ._C import Tensor

if TYPE_CHECKING:
    from . import profiler

_f = _C.functions

# ---- printing

_PROFILES = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, 2**62, 3, 80),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors are displayed: digits, the size from which they are abbreviated, edge items, line
    width.

    ``profile`` "default", "short" or "full" sets all at once; another name warns and changes nothing, because
    PyTorch accepts any name. ``sci_mode`` forces or forbids exponents.

    >>> facula.set_printoptions(precision=2)
    >>> facula.tensor([1.12345])
    tensor([1.12])
    >>> facula.set_printoptions(profile="default")
    """
    now = _C.get_print_options()
    values = [now["precision"], now["threshold"], now["edgeitems"], now["linewidth"]]
    if profile in _PROFILES:
        values = list(_PROFILES[profile])
    elif profile is not None:
        warnings.warn(
            f"set_printoptions: there is no profile {profile!r}, which is ignored; profiles are "
            f"{list(_PROFILES)}",
            stacklevel=2,
        )
    for k, setting in enumerate((precision, threshold, edgeitems, linewidth)):
        if setting is not None:
            values[k] = 2**62 if setting == math.inf else int(setting)
    _C.set_print_options(*values, sci_mode)


# ---- the profiler


def profile(
    *, record_shapes: bool = True, profile_memory: bool = True, with_stack: bool = False
) -> profiler.profile:
    """Records the operations of a ``with`` block: a :class:`facula.profiler.profile` with shapes and
    memory.

    >>> with facula.profile() as prof:
    ...     y = facula.ones(100, 100).exp().sum()
    >>> print(prof)  # doctest: +ELLIPSIS
    ---...
    >>> prof.export_chrome_trace(tempfile.mkdtemp() + "/trace.json")
    """
    from . import profiler

    return profiler.profile(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack)


# ---- linear algebra


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> tuple[Tensor, ...]:
    """The factors and pivots of ``linalg.lu_factor``; with ``get_infos`` those of ``linalg.lu_factor_ex``.

    >>> factors, pivots = facula.lu(facula.tensor([[1.0, 2.0], [4.0, 2.0]]))
    >>> pivots
    tensor([2, 2], dtype=facula.int32)
    """
    if out is not None and not get_infos:
        out = (*out, _f.empty([0], dtype=_C.int32))
    result = _f._lu_with_info(A, pivot, not get_infos, out=out)
    return tuple(result) if get_infos else tuple(result)[:2]


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications.

    >>> facula.chain_matmul(facula.ones(2, 3), facula.ones(3, 1))
    tensor([[3.],
            [3.]])
    """
    if len(matrices) == 1:
        return matrices[0]
    return _C.linalg.multi_dot(list(matrices), out=out)


# ---- repetition


def tile(input: Tensor, *counts: Any, dims: Any = None) -> Tensor:
    """``input`` repeated along each dimension; missing counts are 1.

    >>> facula.tile(facula.tensor([1, 2]), (2,))
    tensor([1, 2, 1, 2])
    """
    repeats = counts if dims is None else dims
    times = list(repeats[0]) if len(repeats) == 1 and not isinstance(repeats[0], int) else list(repeats)
    return input.repeat([1] * (input.dim() - len(times)) + times)


# ---- unique elements


def _wanted(results: tuple[Tensor, Tensor, Tensor], inverse: bool, counts: bool) -> Any:
    """Returns the values, together with the other results that were requested."""
    extra = [x for x, wanted in zip(results[1:], (inverse, counts), strict=True) if wanted]
    return (results[0], *extra) if extra else results[0]


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Returns the first element of every run of equal elements, or of equal slices along ``dim``.

    >>> facula.unique_consecutive(facula.tensor([1, 1, 2, 2, 1]), return_counts=True)
    (tensor([1, 2, 1]), tensor([2, 2, 1]))
    """
    results = _C.ops.unique_consecutive(input, return_inverse, return_counts, dim)
    return _wanted(results, return_inverse, return_counts)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns the distinct elements in ascending order, or the distinct slices along ``dim``.

    >>> facula.unique(facula.tensor([3, 1, 3]), return_inverse=True)
    (tensor([1, 3]), tensor([1, 0, 1]))
    """
    if dim is None:
        results = _C.ops._unique2(input, sorted, return_inverse, return_counts)
    else:
        results = _C.ops.unique_dim(input, dim, sorted, return_inverse, return_counts)
    return _wanted(results, return_inverse, return_counts)


def _out_option(out: Tensor | None) -> dict[str, Tensor]:
    """Returns the keyword argument out=, if there is one."""
    return {} if out is None else {"out": out}


# ---- random picks


# ---- others


def ravel(input: Tensor) -> Tensor:
    """Returns all elements as one vector; a view if possible."""
    return input.reshape(-1)


def block_diag(*tensors: Tensor) -> Tensor:
    """Returns the block-diagonal matrix of these matrices.

    >>> facula.block_diag(facula.tensor([[1, 2]]), facula.tensor(3))
    tensor([[1, 2, 0],
            [0, 0, 3]])
    """
    return _C.ops.block_diag(list(tensors))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums products over dimensions of both: the last ``dims`` of a and the first of b, or two lists of
    dimensions.

    >>> facula.tensordot(facula.ones(2, 3), facula.ones(3, 2), dims=1)
    tensor([[3., 3.],
            [3., 3.]])
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.dim(), b.dim()):
            raise RuntimeError(
                f"tensordot: dims must be between 0 and the dimensions of both, got {dims} for shapes "
                f"{list(a.shape)} and {list(b.shape)}"
            )
        dims = (list(range(-dims, 0)), list(range(dims)))
    elif not isinstance(dims, (tuple, list)) or len(dims) != 2:
        raise RuntimeError(f"tensordot: dims must be an int or two lists of ints, got {dims}")
    return _C.ops.tensordot(a, b, *map(_as_list, dims), **_out_option(out))


def _as_list(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims)


class _Histogramdd(NamedTuple):
    """The counts, and the edges of each dimension."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]

    def __repr__(self) -> str:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}(\nhist={self.hist},\nbin_edges={self.bin_edges})"


# Displayed like the result classes of operators.
_Histogramdd.__module__ = f"{__name__.partition('.')[0]}.return_types"
_Histogramdd.__name__ = _Histogramdd.__qualname__ = "histogramdd"


def histogramdd(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> _Histogramdd:
    """Counts the points ``[*, dimensions]`` in each cell of a grid, from numbers of equal parts or from
    edges.

    >>> facula.histogramdd(facula.tensor([[0.0, 1.0], [1.0, 0.0]]), [2, 2]).hist
    tensor([[0., 1.],
            [1., 0.]])
    """
    if isinstance(bins, int):
        bins = [bins] * input.shape[-1]
    edges = tuple(bins)
    if not edges or not isinstance(edges[0], Tensor):
        edges = tuple(_C.ops._histogramdd_bin_edges(input, list(edges), range=range))
    hist = _C.ops._histogramdd(input, list(edges), weight=weight, density=density)
    return _Histogramdd(hist, edges)


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int | None = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = False,
    requires_grad: bool = False,
) -> Tensor:
    """Maps ``size`` elements of a file into memory; with ``shared``, changes are written to the file.

    Raises RuntimeError if the file cannot be opened or, unless it is shared, is too short. The device is the
    CPU.
    """
    from .storage import UntypedStorage

    place = _C.device("cpu" if device is None else device)
    if place.type != "cpu" or layout not in (None, _C.strided):
        raise NotImplementedError(
            "from_file: files are mapped as dense tensors on the CPU, not with "
            f"layout={layout}, device={place}"
            "\n  hint: from_file(...).to(device) copies one"
        )
    if pin_memory:
        raise RuntimeError("from_file: tensors constructed from a file cannot be pinned")
    kind = _C.get_default_dtype() if dtype is None else dtype
    bytes_of = UntypedStorage.from_file(filename, bool(shared), (size or 0) * kind.itemsize)
    return bytes_of._elements.view(kind).requires_grad_(requires_grad)


def scalar_tensor(
    s: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Returns a 0-d tensor of a number, in the default dtype."""
    if layout not in (None, _C.strided):
        raise NotImplementedError(f"scalar_tensor: tensors of layout {layout} have dimensions")
    return _C.tensor(
        s,
        dtype=_C.get_default_dtype() if dtype is None else dtype,
        device=device,
        requires_grad=requires_grad,
    )


def _assert(condition: Any, message: str) -> None:
    if not bool(condition):
        raise AssertionError(message)


def memory_allocated() -> int:
    """Returns the bytes that tensors of this process hold; cached blocks do not count."""
    return _C.memory_stats()["current_bytes"]


def max_memory_allocated() -> int:
    """Returns the peak of memory_allocated since the start, or since :func:`reset_peak_memory_stats`.

    Threads count separately and report amounts above 64 KiB, which is the accuracy of the result.
    """
    return _C.memory_stats()["peak_bytes"]


def memory_reserved() -> int:
    """Returns the bytes allocated from the system for tensors, including cached blocks."""
    return _C.memory_stats()["reserved_bytes.all.current"]


def max_memory_reserved() -> int:
    """Returns the peak of memory_reserved since the start, or since :func:`reset_peak_memory_stats`."""
    return _C.memory_stats()["reserved_bytes.all.peak"]


def memory_summary() -> str:
    """Formats :func:`memory_stats` as a table."""
    stats = _C.memory_stats()
    columns = ("current", "peak", "allocated", "freed")
    lines = [f"{'MiB':24}" + "".join(f"{c:>12}" for c in columns)]
    for name, shown in (("allocated_bytes", "held by tensors"), ("reserved_bytes", "taken from the system")):
        lines.append(f"{shown:24}" + "".join(f"{stats[f'{name}.all.{c}'] / 2**20:12.2f}" for c in columns))
    lines += [
        f"{'storages made':24}{stats['allocation.all.allocated']:12}",
        f"{'large blocks waiting':24}{stats['inactive.large_pool.current']:12}",
        f"{'requests tried again':24}{stats['num_alloc_retries']:12}",
        f"{'requests that failed':24}{stats['num_ooms']:12}",
    ]
    return "\n".join(lines)


def reset_peak_memory_stats() -> None:
    """Resets the peak to the present amount."""
    _C.reset_peak_memory()


_namespace.overridable(
    globals(),
    lambda f: f.__module__ == __name__ and _namespace.of_tensors(f),
)
globals()["_assert"] = _C.Overridable(_assert)  # traced programs keep assertions
