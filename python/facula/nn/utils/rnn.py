"""Sequences of different lengths as one tensor, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ... import _C

Tensor = _C.Tensor
__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences ``[L_i, *]`` as ``[L, B, *]``, or ``[B, L, *]``, of the longest's length; the rest is
    ``padding_value``.

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
    length = max(len(t) for t in sequences)
    padded = []
    for t in sequences:
        missing = length - len(t)
        ends = (missing, 0) if padding_side == "left" else (0, missing)
        fill = [0, 0] * (t.dim() - 1)
        padded.append(_C.functions.constant_pad_nd(t, [*fill, *ends], padding_value) if missing else t)
    return _C.functions.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences that were padded at their ends."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [t[:n] for t, n in zip(padded_sequences, lengths.tolist())]
