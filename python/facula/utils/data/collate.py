"""Batches from samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import _C

Tensor = _C.Tensor
CollateMap = dict[type | tuple[type, ...], Callable[..., Any]]


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


def collate_tensor_fn(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    """Stacks tensors of one shape."""
    first = batch[0]
    for k, t in enumerate(batch):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"default_collate: expected Tensor at entry {k}, as at entry 0, but got {type(t).__name__}"
            )
        if t.shape != first.shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry 0 "
                f"and {list(t.shape)} at entry {k}; give the loader a collate_fn that pads or crops"
            )
    return _C.functions.stack(list(batch), 0)


def _collate_array(batch: Sequence, collate_fn_map: CollateMap | None) -> Any:
    """Stacks NumPy's arrays and numbers as tensors."""
    first = batch[0]
    if first.dtype.kind in "SUO":
        raise TypeError(
            f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            f"found {first.dtype}"
        )
    if first.shape == ():
        return _C.as_tensor(list(batch), dtype=_C.as_tensor(first).dtype)
    return collate([_C.as_tensor(a) for a in batch], collate_fn_map=collate_fn_map)


def _collate_ints(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return _C.tensor(list(batch))


def _collate_floats(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return _C.tensor(list(batch), dtype=_C.float64)


def _collate_strings(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Sequence:
    return batch


# How elements become batches, by their type. Programs add types of their own.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    float: _collate_floats,
    int: _collate_ints,
    str: _collate_strings,
    bytes: _collate_strings,
}


def _function_for(first: Any, functions: CollateMap) -> Callable[..., Any] | None:
    if type(first) in functions:
        return functions[type(first)]
    return next((f for kind, f in functions.items() if isinstance(first, kind)), None)


def collate(batch: Sequence, *, collate_fn_map: CollateMap | None = None) -> Any:
    """A batch of samples: containers element by element, the rest by the function that ``collate_fn_map``
    has for the type of the first sample.
    """
    first = batch[0]
    numpys = (
        _is_numpy(first)
        and collate_fn_map is default_collate_fn_map
        and type(first) not in default_collate_fn_map
    )
    if numpys:
        return _collate_array(batch, collate_fn_map)
    if collate_fn_map and (function := _function_for(first, collate_fn_map)):
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        columns = {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first}
        return _like_mapping(first, columns)
    if isinstance(first, Sequence) and not isinstance(first, (str, bytes)):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch)]
        return items if isinstance(first, tuple) and not hasattr(first, "_fields") else _like(first, items)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__module__}.{type(first).__qualname__}"
    )


def default_collate(batch: Sequence) -> Any:
    """Stacks tensors, arrays and numbers of samples; containers element by element; strings stay as they
    are.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
