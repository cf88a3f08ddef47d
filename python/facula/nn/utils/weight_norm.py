"""A weight as the product of its direction and its norm."""

from __future__ import annotations

import warnings
from typing import Any

from ... import _C
from ..parameter import Parameter

Tensor = _C.Tensor


def lengths(v: Tensor, dim: int) -> Tensor:
    """Returns the norm for each index of ``dim``, or of the entire tensor (-1)."""
    if dim == -1:
        return v.norm()
    return v.norm(2, [d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True)


class WeightNorm:
    """A hook that computes a weight from its direction and its norm before every forward.

    There is a norm for each index of ``dim``; with None or -1, one norm for the entire weight.
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        v, g = getattr(module, self.name + "_v"), getattr(module, self.name + "_g")
        return v * (g / lengths(v, self.dim))

    def __call__(self, module: Any, args: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Trains the direction ``name_v`` and the norm ``name_g`` of a weight separately.  Salimans and
    Kingma, 2016. Deprecated, as in PyTorch, in favour of ``parametrizations.weight_norm``.
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    if any(isinstance(h, WeightNorm) and h.name == name for h in module._forward_pre_hooks.values()):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(lengths(weight.detach(), hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Turns a weight of weight_norm into a parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module).detach()
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            del module._forward_pre_hooks[key]
            setattr(module, name, Parameter(weight))
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
