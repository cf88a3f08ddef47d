"""Attention with a function that modifies the scores, and another one that selects the pairs.

Computed densely: memory grows with the product of the lengths. Blocks that a BlockMask omits are masked,
not skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from ... import _C

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

Tensor = _C.Tensor
_f = _C.functions
_DEFAULT_SPARSE_BLOCK_SIZE = 128
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexKernelOptions(TypedDict, total=False):
    """Hints for PyTorch's kernels, which are accepted and ignored."""

    BACKEND: str
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool


class AuxRequest(NamedTuple):
    """The additional results of flex_attention."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Selects every pair."""
    return batch.new_ones((), dtype=_C.bool)


def or_masks(*mask_mods: Callable) -> Callable:
    """Selects the pairs that any of the functions selects."""
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=_C.bool)
        for f in mask_mods:
            result = result | f(b, h, q, k)
        return result

    return mask


def and_masks(*mask_mods: Callable) -> Callable:
    """Selects the pairs that all of the functions select."""
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        result = b.new_ones((), dtype=_C.bool)
        for f in mask_mods:
            result = result & f(b, h, q, k)
        return result

    return mask


def _places(sizes: tuple[int, ...], device: Any) -> list[Tensor]:
    """Returns the indices of batch, head, query and key, each along its own dimension, so that functions
    see all pairs.
    """
    return [
        _f.arange(n, device=device).reshape([n if k == axis else 1 for k in range(4)])
        for axis, n in enumerate(sizes)
    ]


def create_mask(
    mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """Evaluates a mask function for all pairs, or a score function of zeros, as ``[B, H, Q_LEN,
    KV_LEN]``.

    >>> from facula.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, k: q >= k, 1, 1, 2, 2)
    tensor([[[[ True, False],
              [ True,  True]]]])
    """
    import inspect

    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _places(sizes, device)
    count = sum(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in inspect.signature(mod_fn).parameters.values()
    )
    if count == 5:
        return mod_fn(_f.zeros(sizes, device=device), *places).expand(sizes)
    return mod_fn(*places).expand(sizes)


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the number of blocks in each row of blocks, and their columns first."""
    dense = dense.to(_C.int32)
    counts = dense.sum(-1).to(_C.int32)
    order = _f.argsort(dense, dim=-1, descending=True, stable=True)
    return counts, order.to(_C.int32).contiguous()


def _dense(counts: Tensor, indices: Tensor, columns: int) -> Tensor:
    """The inverse of _ordered: 1 where a block is present."""
    there = _f.arange(indices.shape[-1], device=indices.device) < counts.unsqueeze(-1)
    blocks = _f.zeros([*indices.shape[:-1], columns + 1], dtype=_C.int32, device=indices.device)
    places = _f.where(there, indices.long(), columns)  # the last column receives the unused entries
    return blocks.scatter(-1, places, 1)[..., :columns]


def _blocks(block_size: Any) -> tuple[int, int]:
    return (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)


class BlockMask:
    """The blocks of pairs that attention reads: partial ones, in which ``mask_mod`` selects pairs, and
    full ones.

    For each row of blocks, ``kv_num_blocks`` is the number of partial blocks and ``kv_indices`` begins
    with their columns; ``full_kv_...`` are the same for full blocks, ``q_...`` by columns. See
    ``create_block_mask``.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: Callable = noop_mask,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths = tuple(seq_lengths)
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE, self.mask_mod = _blocks(BLOCK_SIZE), mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Callable | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """Creates a mask from these blocks; the ``q_...`` tensors are computed."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        block = _blocks(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        if seq_lengths is None:
            seq_lengths = (rows * block[0], columns * block[1])

        def by_columns(counts: Tensor | None, indices: Tensor | None) -> tuple[Any, Any]:
            if counts is None or indices is None or not compute_q_blocks:
                return None, None
            return _ordered(_dense(counts, indices, columns).transpose(-2, -1))

        return cls(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            *by_columns(kv_num_blocks, kv_indices),
            *by_columns(full_kv_num_blocks, full_kv_indices),
            block,
            mask_mod or noop_mask,
        )

    _TENSORS = (
        "kv_num_blocks",
        "kv_indices",
        "full_kv_num_blocks",
        "full_kv_indices",
        "q_num_blocks",
        "q_indices",
        "full_q_num_blocks",
        "full_q_indices",
    )

    def as_tuple(self, flatten: bool = True) -> tuple:
        """Returns lengths, tensors, block size and function."""
        tensors = tuple(getattr(self, n) for n in self._TENSORS)
        if flatten:
            return (*self.seq_lengths, *tensors, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *tensors, self.BLOCK_SIZE, self.mask_mod)

    def _with(self, change: Callable[[Tensor], Tensor]) -> BlockMask:
        tensors = [getattr(self, n) for n in self._TENSORS]
        changed = [None if t is None else change(t) for t in tensors]
        return BlockMask(self.seq_lengths, *changed, self.BLOCK_SIZE, self.mask_mod)  # type: ignore[arg-type]

    def to(self, device: Any) -> BlockMask:
        """Moves the mask to another device; the function is unchanged."""
        return self._with(lambda t: t.to(device))

    def __getitem__(self, index: Any) -> BlockMask:
        """Returns the mask of some batches and heads."""
        index = index if isinstance(index, tuple) else (index,)
        selection = tuple(slice(k, k + 1) if isinstance(k, int) and k != -1 else
                     slice(-1, None) if k == -1 else k for k in index)  # fmt: skip
        if len(selection) > 2:
            raise NotImplementedError("BlockMask: only batches and heads can be picked")
        return self._with(lambda t: t[selection])

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """The number of pairs."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of pairs in blocks that are omitted."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """Returns 1 for each block that is present, ``[B, H, rows, columns]``."""
        columns = self.kv_indices.shape[-1]
        blocks = _dense(self.kv_num_blocks, self.kv_indices, columns)
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            blocks = blocks | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)
        return blocks

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """Returns a picture of the blocks of the first batches and heads."""
        dense = self.to_dense()
        rows, columns = dense.shape[-2:]
        most = (rows, columns) if grid_size == -1 else grid_size
        steps = [max(1, -(-n // m)) for n, m in zip((rows, columns), most)]
        lines = []
        planes = dense.reshape(-1, rows, columns)
        for number in range(min(limit, planes.shape[0])):
            batch = dense.shape[:-2]
            at: tuple[int, ...] = ()
            rest = number
            for n in reversed(batch):
                at, rest = (rest % n, *at), rest // n
            lines.append(str(at))
            for i in range(0, rows, steps[0]):
                text = ""
                for j in range(0, columns, steps[1]):
                    cell = planes[number, i : i + steps[0], j : j + steps[1]]
                    total = int(cell.sum())
                    text += "██" if total == cell.numel() else "░░" if total else "  "
                lines.append(text)
        if planes.shape[0] > limit:
            lines.append("...")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string()}\n)"

    def __repr__(self) -> str:
        shapes = []
        for name in self._TENSORS:
            t = getattr(self, name)
            shapes.append(f"    {name}={None if t is None else t.shape}")
        name = getattr(self.mask_mod, "__name__", repr(self.mask_mod))
        shapes += [
            f"    BLOCK_SIZE={self.BLOCK_SIZE}",
            f"    shape={self.shape}",
            f"    sparsity={self.sparsity():.2f}%",
            f"    mask_mod={name}",
        ]
        return "BlockMask(\n" + ",\n".join(shapes) + "\n)"

    def _pairs(self, sizes: tuple[int, ...], device: Any) -> Tensor:
        """Returns True for the pairs that are selected."""
        keep = self.mask_mod(*_places(sizes, device)).expand(sizes)
        columns = self.kv_indices.shape[-1]
        partial = self._spread(_dense(self.kv_num_blocks, self.kv_indices, columns), sizes)
        keep = keep & partial
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            keep = keep | self._spread(_dense(self.full_kv_num_blocks, self.full_kv_indices, columns), sizes)
        return keep

    def _spread(self, blocks: Tensor, sizes: tuple[int, ...]) -> Tensor:
        rows, columns = self.BLOCK_SIZE
        spread = blocks.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
        return (spread[..., : sizes[2], : sizes[3]] != 0).expand(sizes)


def create_block_mask(
    mask_mod: Callable,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    **ignored: Any,
) -> BlockMask:
    """Returns the blocks of pairs that ``mask_mod(b, h, q_idx, kv_idx)`` selects; ``B`` or ``H`` is None
    if all batches or heads are alike.

    >>> from facula.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, BLOCK_SIZE=2)
    >>> mask.shape, mask.sparsity()
    ((1, 1, 8, 8), 37.5)
    """
    block = _blocks(BLOCK_SIZE)
    pairs = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    padding = [0, -KV_LEN % block[1], 0, -Q_LEN % block[0]]
    padded = _f.constant_pad_nd(pairs.to(_C.int64), padding, 0)
    rows, columns = padded.shape[-2] // block[0], padded.shape[-1] // block[1]
    sums = padded.reshape(*padded.shape[:2], rows, block[0], columns, block[1]).sum((-3, -1))
    area = block[0] * block[1]
    if separate_full_blocks:
        full = _ordered(sums == area)
        partial = _ordered((sums > 0) & (sums < area))
    else:
        full, partial = (None, None), _ordered(sums > 0)  # type: ignore[assignment]
    return BlockMask.from_kv_blocks(
        *partial, *full, BLOCK_SIZE=block, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )


def _check(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, "
            f"key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={query.size(1)} and Hkv={key.size(1)}. Try setting enable_gqa=True for GQA."
        )
    if query.size(1) % key.size(1):
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={query.size(1)} and Hkv={key.size(1)}."
        )
    if query.size(0) != key.size(0) and key.size(0) != 1:
        raise ValueError(f"Expect query and key/value to have the same batch size, or 1, got "
                         f"{query.size(0)} and {key.size(0)}")  # fmt: skip


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Returns softmax(``score_mod(query @ key.mT * scale, b, h, q_idx, kv_idx)``) @ value over the pairs
    that ``block_mask`` selects; a row without pairs is zero. The functions are called once, with indices
    that broadcast, and must be element-wise.

    Shape: query ``[B, Hq, L, E]``, key ``[B, Hkv, S, E]``, value ``[B, Hkv, S, Ev]``; result
    ``[B, Hq, L, Ev]``, with ``return_lse`` the logarithms of the sums ``[B, Hq, L]`` too.
    """
    _check(query, key, value, enable_gqa)
    sizes = (query.size(0), query.size(1), query.size(2), key.size(2))
    if block_mask is not None and block_mask.seq_lengths != sizes[2:]:
        lengths = block_mask.seq_lengths
        if lengths[0] < sizes[2] or lengths[1] < sizes[3]:
            hint = "As the block mask was created for a smaller length than you're using it for, you likely need to create a new block mask."  # noqa: E501
        else:
            hint = "As the block mask was created for a larger length than you're using it for, you can either 1. create a new block mask with the correct length, or 2. 'adjust' the existing block mask to the correct length."  # noqa: E501
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={sizes[2]} and "
            f"kv_len={sizes[3]}. {hint}"
        )
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    precision = _C.float64 if query.dtype == _C.float64 else _C.float32
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    if score_mod is not None:
        scores = score_mod(scores, *_places(sizes, query.device)).to(precision)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask._pairs(sizes, query.device), -math.inf)
    largest = scores.detach().amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -math.inf, 0.0)  # rows without pairs
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    empty = total == 0
    out = ((weights / total.masked_fill(empty, 1.0)).to(query.dtype) @ value).to(query.dtype)
    if not (return_lse or return_aux is not None):
        return out
    lse = (total.log() + largest).squeeze(-1)
    if return_aux is not None:
        return out, AuxOutput(
            lse=lse if return_aux.lse else None,
            max_scores=scores.amax(-1) if return_aux.max_scores else None,
        )
    return out, lse
