"""Lists of tensors, as optimizers that work on many parameters at a time take them."""

from __future__ import annotations

from typing import Any

from .. import _C

Tensor = _C.Tensor
TensorListList = list[list[Tensor | None]]
Indices = list[int]


def _get_foreach_kernels_supported_devices() -> list[str]:
    return ["cpu"]


def _get_fused_kernels_supported_devices() -> list[str]:
    return ["cpu"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: TensorListList, with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[TensorListList, Indices]]:
    """Lists of the same length, divided by the device and the dtype of the tensors of the first.

    >>> lists = [[facula.ones(1), facula.ones(2, dtype=facula.float64)], [facula.zeros(1), None]]
    >>> groups = _group_tensors_by_device_and_dtype(lists, with_indices=True)
    >>> {dtype: indices for (_, dtype), (_, indices) in groups.items()}
    {facula.float32: [0], facula.float64: [1]}
    """
    if not tensorlistlist or not tensorlistlist[0]:
        raise RuntimeError("_group_tensors_by_device_and_dtype: the first list of tensors must not be empty")
    if len({len(x) for x in tensorlistlist}) > 1:
        raise RuntimeError(
            "_group_tensors_by_device_and_dtype: the lists must have the same length, "
            f"got {[len(x) for x in tensorlistlist]}"
        )
    groups: dict[tuple[Any, Any], tuple[TensorListList, Indices]] = {}
    for k, first in enumerate(tensorlistlist[0]):
        if first is None:
            raise RuntimeError(
                "_group_tensors_by_device_and_dtype: tensors of the first list must not be None"
            )
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for group, tensors in zip(lists, tensorlistlist, strict=True):
            group.append(tensors[k])
        if with_indices:
            indices.append(k)
    return groups


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in _get_foreach_kernels_supported_devices()


def _has_foreach_support(tensors: list[Tensor], device: Any) -> bool:
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)
