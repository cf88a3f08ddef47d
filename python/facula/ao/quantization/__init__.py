"""Marks of models that can be quantised. Quantisation is not implemented yet: they pass values on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ...nn.modules.module import Module

__all__ = ["DeQuantStub", "QConfig", "QuantStub", "QuantWrapper", "convert", "default_observer",
           "default_per_channel_weight_observer", "default_qconfig", "default_weight_observer",
           "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig",
           "prepare", "prepare_qat",
           "quantize", "quantize_dynamic"]  # fmt: skip


class QuantStub(Module):
    """Marks where values become quantised: here it returns them unchanged."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Marks where values become floating-point again."""


def _unquantised(name: str) -> NoReturn:
    raise NotImplementedError(f"ao.quantization.{name}: models are not quantised yet")


def prepare(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("prepare")


def prepare_qat(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("prepare_qat")


def convert(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("convert")


def quantize_dynamic(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("quantize_dynamic")


def quantize(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("quantize")


def _refusing(name: str) -> Callable:
    def f(*args: Any, **kwargs: Any) -> NoReturn:
        _unquantised(name)

    f.__name__ = f.__qualname__ = name
    return f


default_observer = _refusing("default_observer")
default_weight_observer = _refusing("default_weight_observer")
default_per_channel_weight_observer = _refusing("default_per_channel_weight_observer")


class QConfig(NamedTuple):
    """How a module would be quantised."""

    activation: Any
    weight: Any


default_qconfig = QConfig(default_observer, default_weight_observer)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Returns the configuration that ``prepare`` would use."""
    return default_qconfig


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    return default_qconfig


class QuantWrapper(Module):
    """A module between the two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        return self.dequant(self.module(self.quant(X)))


def _fused(modules: list[Module]) -> list[Module]:
    """Merges convolutions and linear layers with the normalisation that follows; other modules are
    unchanged.
    """
    from ...nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Identity, Linear
    from ...nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval

    first, *rest = modules
    norms = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
    if not rest or not isinstance(rest[0], norms) or not isinstance(first, (Conv1d, Conv2d, Conv3d, Linear)):
        return modules
    if first.training:
        raise AssertionError("fuse_modules: Conv and BN both must be in eval mode to be fused; call eval()")
    fuse = fuse_linear_bn_eval if isinstance(first, Linear) else fuse_conv_bn_eval
    return [fuse(first, rest[0]), Identity(), *rest[1:]]


def fuse_modules(
    model: Module, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = None, **options: Any
) -> Module:
    """Returns the model with normalisations merged into the preceding layers, for lists of submodules'
    paths.

    Activations stay separate modules: kernels are fused with them at run time.
    """
    if fuser_func is not None:
        raise NotImplementedError("fuse_modules: fuser_func is not supported")
    model = model if inplace else copy.deepcopy(model)
    groups = (
        modules_to_fuse if modules_to_fuse and isinstance(modules_to_fuse[0], list) else [modules_to_fuse]
    )
    for paths in groups:
        fused = _fused([model.get_submodule(p) for p in paths])
        for path, module in zip(paths, fused):
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, module)
    return model


def fuse_modules_qat(*args: Any, **kwargs: Any) -> NoReturn:
    _unquantised("fuse_modules_qat")
