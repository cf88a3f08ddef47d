"""A weight as its direction and its length."""

from __future__ import annotations

import warnings
from typing import Any

from ... import _C
from ..parameter import Parameter

Tensor = _C.Tensor


def lengths(v: Tensor, dim: int) -> Tensor:
    """Norms of what each index of ``dim`` has, or of all (-1)."""
    if dim == -1:
        return v.norm()
    return v.norm(2, [d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True)


class WeightNorm:
    """A hook that makes a weight from its direction and its length before every forward.

    A length for each index of ``dim``; None or -1 for one length of all.
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Any) -> Tensor:
        v, g = getattr(module, self.name + "_v"), getattr(module, self.name + "_g")
        return v * (g / lengths(v, self.dim))

    def __call__(self, module: Any, args: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Trains the direction ``name_v`` and the length ``name_g`` of a weight apart.  Salimans and Kingma,
    2016. Deprecated, as in PyTorch: ``parametrizations.weight_norm`` does it by a parametrization.
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
    """Makes a weight of weight_norm a parameter again."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            weight = hook.compute_weight(module).detach()
            delattr(module, name)
            del module._parameters[name + "_g"], module._parameters[name + "_v"]
            del module._forward_pre_hooks[key]
            setattr(module, name, Parameter(weight))
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
