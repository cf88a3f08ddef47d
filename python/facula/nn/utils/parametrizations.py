"""Common parametrizations: weights with learned norms, of spectral norm 1, and orthogonal ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from ... import _C
from .. import functional as F
from ..modules.module import Module
from .parametrize import register_parametrization
from .spectral_norm import as_matrix, default_dim, iterate
from .weight_norm import lengths

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

Tensor = _C.Tensor


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / lengths(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return lengths(weight, self.dim), weight


def _rename_weight_norm(name: str, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Gives the length and the direction in a checkpoint of ``nn.utils.weight_norm`` their names here."""
    old = [f"{prefix}{name}{part}" for part in ("_g", "_v")]
    if all(key in state_dict for key in old):
        for k, key in enumerate(old):
            state_dict[f"{prefix}parametrizations.{name}.original{k}"] = state_dict.pop(key)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Trains the norm of a weight, for each index of ``dim`` or (None) of the entire weight, apart from
    its direction.

    Checkpoints of ``nn.utils.weight_norm`` load too.

    Source: Salimans and Kingma, "Weight Normalization", 2016.

    >>> sorted(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).state_dict())[1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(partial(_rename_weight_norm, name))
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        n = weight.dim()
        if not -n <= dim < n:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{n}, {n - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim % n, eps
        if n > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            for side, size in zip(("_u", "_v"), matrix.shape):
                start = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(side, F.normalize(start, dim=0, eps=eps))
            iterate(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            iterate(matrix, self._u, self._v, self.n_power_iterations, self.eps)
        # copies: the next forward changes them, possibly before this one's backward
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divides a weight by its largest singular value, which power iterations estimate in every training
    forward. ``dim`` is the dimension of the outputs.

    Source: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", 2018.
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


_MAPS = ("matrix_exp", "cayley", "householder")


def _nearby_orthogonal(a: Tensor) -> Tensor:
    """Returns Q of a QR factorization with positive diagonal of R, so that orthogonal matrices do not
    change.
    """
    vectors, tau = _C.functions.geqrf(a)
    signs = vectors.diagonal(0, -2, -1).sgn().unsqueeze(-2)
    return _C.linalg.householder_product(vectors, tau) * signs


def _is_orthogonal(q: Tensor) -> bool:
    identity = _C.functions.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    tolerance = 10 * q.shape[-2] * (2.0**-52 if q.dtype in (_C.float64, _C.complex128) else 2.0**-23)
    return bool(((q.mH @ q - identity).abs() <= tolerance).all())


class _Orthogonal(Module):
    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.trivialized = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        f = _C.functions
        wide = X.shape[-2] < X.shape[-1]
        x = X.mT if wide else X
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            a = x.tril(-1)
            q = _C.linalg.householder_product(a, 2 / (1 + (a * a).sum(-2)))
            q = q * x.diagonal(0, -2, -1).int().unsqueeze(-2)
        else:
            x = x.tril()
            if n != k:
                x = f.cat([x, f.zeros([*x.shape[:-1], n - k], dtype=x.dtype)], -1)
            skew = x - x.mH
            if self.orthogonal_map == "matrix_exp":
                q = _C.linalg.matrix_exp(skew)
            else:
                identity = f.eye(n, dtype=x.dtype)
                q = _C.linalg.solve(identity - 0.5 * skew, identity + 0.5 * skew)
            q = q[..., :k]
        if self.trivialized:
            assert self.base is not None
            q = self.base @ q
        return q.mT if wide else q

    def right_inverse(self, Q: Tensor) -> Tensor:
        f = _C.functions
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        wide = Q.shape[-2] < Q.shape[-1]
        q = Q.mT if wide else Q
        n, k = q.shape[-2:]
        if self.trivialized:
            with _C.GradMode(False):
                if n != k:
                    noise = f.randn([*q.shape[:-2], n, n - k], dtype=q.dtype)
                    self.base = _nearby_orthogonal(f.cat([q, noise], -1))
                else:
                    self.base = q.clone() if _is_orthogonal(q) else _nearby_orthogonal(q)
                start = f.zeros_like(Q)
                start.diagonal(0, -2, -1).fill_(-1.0)
            return start
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        with _C.GradMode(False):
            a, tau = f.geqrf(q)
            diagonal = a.diagonal(0, -2, -1)
            diagonal.copy_(f.where(tau == 0, -diagonal.sign(), diagonal.sign()))
        return a.mT if wide else a


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keeps a weight orthogonal (unitary): with orthonormal columns, or rows if it has more columns than
    rows.

    ``orthogonal_map`` is 'matrix_exp' or 'cayley', of a skew matrix (the former by default for square and
    complex weights), or 'householder', a product of reflections. With ``use_trivialization`` the map is
    relative to the weight that was assigned.

    Source: Lezcano-Casado, "Trivializations for gradient-based optimization on manifolds", 2019.

    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    >>> facula.allclose(layer.weight @ layer.weight.T, facula.eye(3), atol=1e-5)
    True
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    return register_parametrization(
        module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True
    )
