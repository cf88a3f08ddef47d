"""Communication hooks that reduce gradients as they are, or in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import _C
from ... import _collectives as collective
from ..._groups import _get_default_group
from ..._reducer import GradBucket

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]

Tensor = _C.Tensor


def _allreduce_fut(process_group: Any, tensor: Tensor) -> Any:
    """Returns a Future of the mean of the tensors of all ranks."""
    group = process_group if process_group is not None else _get_default_group()
    tensor.div_(group.size())
    return collective.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The mean of the gradients: what DistributedDataParallel computes without a hook."""
    return _allreduce_fut(process_group, bucket.buffer())


def _in_dtype(dtype: Any, process_group: Any, bucket: GradBucket) -> Any:
    group = process_group if process_group is not None else _get_default_group()
    buffer = bucket.buffer()
    small = buffer.to(dtype).div_(group.size())
    future = collective.all_reduce(small, group=group, async_op=True).get_future()

    def widen(done: Any) -> Tensor:
        buffer.copy_(done.value()[0])
        return buffer

    return future.then(widen)


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The mean of the gradients, rounded to float16 before they are sent."""
    return _in_dtype(_C.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """The mean of the gradients, rounded to bfloat16 before they are sent."""
    return _in_dtype(_C.bfloat16, process_group, bucket)


def _wrapped(dtype: Any, hook: Callable[..., Any], name: str) -> Callable[..., Any]:
    def wrapper(hook_state: Any, bucket: GradBucket) -> Any:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))

        def widen(done: Any) -> Tensor:
            value = done.value()
            buffer.copy_(value[0] if isinstance(value, (list, tuple)) else value)
            return buffer

        return hook(hook_state, bucket).then(widen)

    wrapper.__name__ = wrapper.__qualname__ = name
    return wrapper


def fp16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a hook that gives float16 gradients to ``hook``."""
    return _wrapped(_C.float16, hook, "fp16_compress_wrapper_hook")


def bf16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a hook that gives bfloat16 gradients to ``hook``."""
    return _wrapped(_C.bfloat16, hook, "bf16_compress_wrapper_hook")
