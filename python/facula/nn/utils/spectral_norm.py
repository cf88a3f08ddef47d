"""Spectral normalisation by a hook (``nn.utils.parametrizations.spectral_norm`` is the recommended form)."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from ..parameter import Parameter

Tensor = _C.Tensor


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Returns the weight as a matrix with ``dim`` as rows."""
    if dim:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.flatten(1)


def iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float) -> None:
    """Moves u and then v, in place, towards the singular vectors of the largest singular value."""
    with _C.GradMode(False):
        for _ in range(count):
            u.copy_(F.normalize(matrix.mv(v), dim=0, eps=eps))
            v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=eps))


def default_dim(module: Any) -> int:
    """Returns the dimension of the outputs: 1 in transposed convolutions, else 0."""
    return 1 if type(module).__name__.startswith("ConvTranspose") else 0


class SpectralNorm:
    """A hook that divides a weight by its largest singular value before every forward."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            iterate(matrix.t(), v, u, self.n_power_iterations, self.eps)
            # copies: the next forward changes them, possibly before this one's backward
            u, v = u.clone(), v.clone()
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides ``module.weight`` by its largest singular value before every forward; the parameter is
    ``weight_orig``.

    Source: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.
    """
    if any(isinstance(h, SpectralNorm) and h.name == name for h in module._forward_pre_hooks.values()):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    hook = SpectralNorm(name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(
            f"`SpectralNorm` cannot be applied as parameter `{name}` is None. The module needs a weight."
        )
    matrix = as_matrix(weight.detach(), hook.dim)
    u, v = (F.normalize(matrix.new_empty(size).normal_(0, 1), dim=0, eps=eps) for size in matrix.shape)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)  # copies of the module need it before their first forward
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Turns a weight of spectral_norm into a parameter again, with its normalised value."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            with _C.GradMode(False):
                weight = hook.compute_weight(module, False)
            delattr(module, name)
            delattr(module, name + "_u")
            delattr(module, name + "_v")
            delattr(module, name + "_orig")
            module.register_parameter(name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"spectral_norm of '{name}' not found in {module}")
