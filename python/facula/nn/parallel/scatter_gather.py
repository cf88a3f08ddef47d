"""Scattering of inputs to devices, gathering of outputs, and parallel modules, for one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import _C

__all__ = ["gather", "is_namedtuple", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]

Tensor = _C.Tensor


def is_namedtuple(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def _only(devices: Any, what: str) -> int:
    """Returns the number of devices, which must all be this one."""
    requested = list(devices)
    if any(_C.device(d).type != "cpu" for d in requested if not isinstance(d, int)) or any(
        isinstance(d, int) for d in requested
    ):
        raise AssertionError(f"{what}: Facula not compiled with CUDA enabled; devices={requested}")
    return max(len(requested), 1)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Splits every tensor in ``inputs`` along ``dim``, one part per device; other values are passed to
    all devices.
    """
    n = _only(target_gpus, "scatter")

    def parts(x: Any) -> list:
        if isinstance(x, Tensor):
            return list(x.chunk(n, dim))
        if is_namedtuple(x):
            return [type(x)(*p) for p in zip(*map(parts, x))]
        if isinstance(x, (tuple, list)) and x:
            return [type(x)(p) for p in zip(*map(parts, x))]
        if isinstance(x, dict) and x:
            return [type(x)(p) for p in zip(*(parts_of_item(k, v) for k, v in x.items()))]
        return [x] * n

    def parts_of_item(k: Any, v: Any) -> list:
        return [(k, p) for p in parts(v)]

    return parts(inputs)


def scatter_kwargs(
    inputs: tuple, kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple, tuple]:
    """:func:`scatter` of arguments and keyword arguments, padded to equal numbers."""
    args = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    n = max(len(args), len(named))
    return tuple(args) + ((),) * (n - len(args)), tuple(named) + ({},) * (n - len(named))


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Combines the results of all devices; tensors are concatenated along ``dim``."""
    if not isinstance(target_device, int) or target_device >= 0:
        _only([target_device], "gather")
    first = outputs[0]
    if isinstance(first, Tensor):
        if all(t.dim() == 0 for t in outputs):
            return _C.functions.stack(list(outputs))
        return _C.functions.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(o) != len(first) for o in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((k, gather([o[k] for o in outputs], target_device, dim)) for k in first)
    items = [gather(list(p), target_device, dim) for p in zip(*outputs)]
    return type(first)(*items) if is_namedtuple(first) else type(first)(items)


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list:
    """Returns the module for each device, with the same parameters."""
    from copy import copy

    def replica(module: Any) -> Any:
        replica_module = copy(module)
        replica_module._parameters = dict(module._parameters)
        replica_module._buffers = dict(module._buffers)
        if detach:
            replica_module._parameters = {
                k: p if p is None else p.detach() for k, p in replica_module._parameters.items()
            }
        replica_module._modules = {k: m if m is None else replica(m) for k, m in module._modules.items()}
        return replica_module

    return [replica(network) for _ in range(_only(devices, "replicate"))]


def parallel_apply(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list:
    """Returns each module's result for its inputs."""
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}"
        )
    named = kwargs_tup or ({},) * len(modules)
    return [m(*(x if isinstance(x, (tuple, list)) else (x,)), **k) for m, x, k in zip(modules, inputs, named)]
