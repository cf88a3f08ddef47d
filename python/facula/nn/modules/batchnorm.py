"""Batch normalisation."""

from __future__ import annotations

from typing import Any

from ... import _C
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .lazy import LazyModuleMixin
from .module import Module, TensorModule

Tensor = _C.Tensor
_f = _C.functions


class _NormBase(TensorModule):
    """Statistics and scale of channels, for batch and instance normalisation."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, present in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name, Parameter(_f.empty([num_features], dtype=dtype, device=device)) if present else None
            )
        for name, fill in (("running_mean", _f.zeros), ("running_var", _f.ones)):
            self.register_buffer(
                name, fill([num_features], dtype=dtype, device=device) if track_running_stats else None
            )
        self.register_buffer(
            "num_batches_tracked", _C.tensor(0, dtype=_C.int64) if track_running_stats else None
        )
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict, *rest: Any) -> None:
        # Batches are counted since version 2 of the state.
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats:
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    _ranks: tuple[int, ...] = ()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self._ranks:
            expected = " or ".join(f"{r}D" for r in self._ranks)
            raise ValueError(f"expected {expected} input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        count = self.num_batches_tracked
        if self.training and self.track_running_stats and count is not None:
            count.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(count)
        mean, var = self.running_mean, self.running_var
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            mean if keep else None,
            var if keep else None,
            self.weight,
            self.bias,
            self.training or (mean is None and var is None),
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalises channels of ``[N, C]`` or ``[N, C, L]``.  Ioffe and Szegedy, 2015.

    >>> nn.BatchNorm1d(100)(facula.randn(20, 100)).shape
    facula.Size([20, 100])
    """

    _ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises channels of ``[N, C, H, W]``.  Ioffe and Szegedy, 2015.

    >>> nn.BatchNorm2d(3)(facula.randn(20, 3, 8, 8)).shape
    facula.Size([20, 3, 8, 8])
    """

    _ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises channels of ``[N, C, D, H, W]``.  Ioffe and Szegedy, 2015."""

    _ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm with the statistics of all processes; with one process, of the batch ``[N, C, *]``.

    >>> nn.SyncBatchNorm(4)(facula.randn(5, 4, 3)).shape
    facula.Size([5, 4, 3])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Returns the module with every batch norm in it replaced by one of this class, with the same
        tensors.
        """
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked", "training"):
                setattr(converted, name, getattr(module, name))
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted


class _LazyNormBase(LazyModuleMixin):
    """Normalisations whose ``num_features`` is inferred from the first input."""

    _size = "num_features"

    def __init__(
        self: Any,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self._forget_shapes()

    def _size_in(self: Any, input: Tensor) -> int:
        self._check_input_dim(input)
        return input.shape[1]

    def _shapes(self: Any) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,))


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """BatchNorm1d whose ``num_features`` is inferred from the first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """BatchNorm2d whose ``num_features`` is inferred from the first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """BatchNorm3d whose ``num_features`` is inferred from the first input."""

    cls_to_become = BatchNorm3d
