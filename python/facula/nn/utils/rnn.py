"""Conversions between sequences of different lengths and one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ... import _C

Tensor = _C.Tensor
_f = _C.functions
__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpad_sequence",
    "pack_sequence",
    "unpack_sequence",
]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences of different lengths without padding: all first elements, then all second ones, and so
    on.

    ``batch_sizes`` is the number of sequences that have an element at each step; ``sorted_indices`` are
    the positions in the batch of the sequences, sorted by decreasing length.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else type(self)(data, *self[1:])

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self

    def pin_memory(self) -> PackedSequence:
        return self

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        return self.data.is_pinned()


def _conversion(name: str, dtype: Any) -> Any:
    def convert(self: PackedSequence) -> PackedSequence:
        return self.to(dtype=dtype)

    convert.__name__, convert.__qualname__ = name, f"PackedSequence.{name}"
    return convert


for _name, _dtype in {
    "double": _C.float64, "float": _C.float32, "half": _C.float16, "long": _C.int64,
    "int": _C.int32, "short": _C.int16, "char": _C.int8, "byte": _C.uint8,
}.items():  # fmt: skip
    setattr(PackedSequence, _name, _conversion(_name, _dtype))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """Returns the inverse of a permutation."""
    return None if permutation is None else permutation.argsort()


def _places(batch_sizes: Sequence[int], batch: int) -> Tensor:
    """Returns the rows of the packed elements in ``[T * batch, *]``."""
    sizes = _C.tensor(batch_sizes, device="cpu")  # on the CPU, as in PyTorch
    inside = _f.arange(batch, device="cpu").unsqueeze(0) < sizes.unsqueeze(1)
    return inside.reshape(-1).nonzero().reshape(-1)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences ``[T, N, *]`` of these lengths.

    ``enforce_sorted``: the sequences must be sorted by decreasing length.
    """
    lengths = _C.as_tensor(lengths).to(_C.int64)
    order = None
    if not enforce_sorted:
        lengths, order = lengths.sort(descending=True)
        input = input.index_select(0 if batch_first else 1, order)
    x = input.transpose(0, 1) if batch_first else input
    sizes = lengths.tolist()
    if x.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != x.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={x.shape[1]})"
        )
    if any(n <= 0 for n in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this "
            "requirement if "
            "you do not need ONNX exportability."
        )
    if sizes[0] > x.shape[0]:
        raise RuntimeError(f"Expected lengths of at most {x.shape[0]} steps, but got {sizes[0]}")
    batch_sizes = [sum(n > t for n in sizes) for t in range(sizes[0])]
    rows = x[: sizes[0]].reshape(sizes[0] * len(sizes), *x.shape[2:])
    data = rows.index_select(0, _places(batch_sizes, len(sizes)).to(rows.device))
    return PackedSequence(data, _C.tensor(batch_sizes, device="cpu"), order, None)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the sequences as ``[T, N, *]``, padded with ``padding_value``, and their lengths."""
    sizes = sequence.batch_sizes.tolist()
    steps, batch = len(sizes), sizes[0]
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    data = sequence.data
    rest = list(data.shape[1:])
    total = steps if total_length is None else total_length
    padded = _f.full([total * batch, *rest], padding_value, dtype=data.dtype, device=data.device)
    padded = padded.index_copy(0, _places(sizes, batch).to(data.device), data).reshape(total, batch, *rest)
    lengths = _C.tensor([sum(n > k for n in sizes) for k in range(batch)], device="cpu")
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is None:
        return padded, lengths
    order = sequence.unsorted_indices
    return padded.index_select(0 if batch_first else 1, order), lengths[order]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences ``[L_i, *]``.

    >>> pack_sequence([facula.tensor([1, 2, 3]), facula.tensor([4, 5]), facula.tensor([6])]).data
    tensor([1, 4, 6, 2, 5, 3])
    """
    lengths = [len(t) for t in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Returns the sequences that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Returns sequences ``[L_i, *]`` as ``[L, B, *]``, or ``[B, L, *]``, where L is the largest length;
    the rest is ``padding_value``.

    >>> pad_sequence([facula.tensor([1, 2]), facula.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    for k, t in enumerate(sequences):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {k} in argument 0, but got {type(t).__name__}")
        if t.dim() == 0 or t.shape[1:] != sequences[0].shape[1:]:
            raise RuntimeError(
                "pad_sequence: sequences must have the same sizes but for the first dimension, got "
                f"{list(sequences[0].shape)} and {list(t.shape)}"
            )
    length = sequences[0].shape[0]
    for t in sequences[1:]:
        length = _C.sym_max(length, t.shape[0])
    padded = []
    for t in sequences:
        missing = length - t.shape[0]
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        fill = [0, 0] * (t.dim() - 1)
        # in a traced function, a symbolic size may be 0 at run time
        complete = type(missing) is int and missing == 0
        padded.append(t if complete else _C.functions.constant_pad_nd(t, [*fill, *ends], padding_value))
    return _C.functions.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Returns the sequences that were padded at their ends."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [t[:n] for t, n in zip(padded_sequences, lengths.tolist())]
