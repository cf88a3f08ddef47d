"""Batches from samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import _C

Tensor = _C.Tensor


def _is_numpy(x: Any) -> bool:
    return type(x).__module__ == "numpy"


def _like(original: Any, items: list) -> Any:
    """Returns ``items`` as a sequence of the type of ``original``; as a list if that type cannot be
    constructed.
    """
    if isinstance(original, tuple) and hasattr(original, "_fields"):
        return type(original)(*items)
    try:
        return type(original)(items)
    except TypeError:
        return items


def _like_mapping(original: Mapping, items: dict) -> Any:
    try:
        return type(original)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """Converts NumPy arrays to tensors, inside of containers too."""
    if isinstance(data, Tensor):
        return data
    if _is_numpy(data):
        return data if data.dtype.kind in "SUO" else _C.as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(d) for d in data])
    return data


def default_collate(batch: Sequence) -> Any:
    """Stacks tensors, arrays and numbers of samples; collates containers element by element; leaves
    strings unchanged.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        for k, t in enumerate(batch):
            if not isinstance(t, Tensor):
                raise TypeError(
                    f"default_collate: expected Tensor at entry {k}, as at entry 0, but got "
                    f"{type(t).__name__}"
                )
            if t.shape != first.shape:
                raise RuntimeError(
                    f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 "
                    f"and {list(t.shape)} "
                    f"at entry {[x is t for x in batch].index(True)}; give the loader a collate_fn that "
                    f"pads or crops"
                )
        return _C.functions.stack(list(batch), 0)
    if _is_numpy(first):
        if first.dtype.kind in "SUO":
            raise TypeError(
                f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                f"found {first.dtype}"
            )
        if first.shape == ():
            return _C.as_tensor(list(batch), dtype=_C.as_tensor(first).dtype)
        return default_collate([_C.as_tensor(a) for a in batch])
    if isinstance(first, bool) or isinstance(first, int):
        return _C.tensor(list(batch))
    if isinstance(first, float):
        return _C.tensor(list(batch), dtype=_C.float64)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _like_mapping(
            first, {key: default_collate([sample[key] for sample in batch]) for key in first}
        )
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [default_collate(column) for column in zip(*batch)]
        return items if isinstance(first, tuple) and not hasattr(first, "_fields") else _like(first, items)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__module__}.{type(first).__qualname__}"
    )
