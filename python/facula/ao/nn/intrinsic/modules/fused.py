"""Sequences of layers that are quantised as one: ``fuse_modules`` makes them."""

from __future__ import annotations

from typing import Any

from ..... import nn

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvAdd2d",
    "ConvAddReLU2d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearLeakyReLU",
    "LinearReLU",
    "LinearTanh",
]


class _FusedModule(nn.Sequential):
    """The base: checks the classes of the layers."""

    _layers: tuple = ()

    def __init__(self, *layers: Any) -> None:
        name = type(self).__name__
        if len(layers) != len(self._layers):
            raise TypeError(f"{name} takes {len(self._layers)} modules, got {len(layers)}")
        for layer, kind in zip(layers, self._layers):
            if type(layer) is not kind:
                got = "".join(type(m).__name__ for m in layers)
                raise AssertionError(
                    f"Incorrect types for input modules {got} of {name}: expected {kind.__name__}"
                )
        super().__init__(*layers)


class ConvReLU1d(_FusedModule):
    """A convolution and a rectifier."""

    _layers = (nn.Conv1d, nn.ReLU)


class ConvReLU2d(_FusedModule):
    """A convolution and a rectifier."""

    _layers = (nn.Conv2d, nn.ReLU)


class ConvReLU3d(_FusedModule):
    """A convolution and a rectifier."""

    _layers = (nn.Conv3d, nn.ReLU)


class LinearReLU(_FusedModule):
    """A linear layer and a rectifier."""

    _layers = (nn.Linear, nn.ReLU)


class ConvBn1d(_FusedModule):
    """A convolution and batch normalisation, in training."""

    _layers = (nn.Conv1d, nn.BatchNorm1d)


class ConvBn2d(_FusedModule):
    """A convolution and batch normalisation, in training."""

    _layers = (nn.Conv2d, nn.BatchNorm2d)


class ConvBn3d(_FusedModule):
    """A convolution and batch normalisation, in training."""

    _layers = (nn.Conv3d, nn.BatchNorm3d)


class ConvBnReLU1d(_FusedModule):
    """A convolution, batch normalisation and a rectifier, in training."""

    _layers = (nn.Conv1d, nn.BatchNorm1d, nn.ReLU)


class ConvBnReLU2d(_FusedModule):
    """A convolution, batch normalisation and a rectifier, in training."""

    _layers = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)


class ConvBnReLU3d(_FusedModule):
    """A convolution, batch normalisation and a rectifier, in training."""

    _layers = (nn.Conv3d, nn.BatchNorm3d, nn.ReLU)


class BNReLU2d(_FusedModule):
    """Batch normalisation and a rectifier."""

    _layers = (nn.BatchNorm2d, nn.ReLU)


class BNReLU3d(_FusedModule):
    """Batch normalisation and a rectifier."""

    _layers = (nn.BatchNorm3d, nn.ReLU)


class LinearBn1d(_FusedModule):
    """A linear layer and batch normalisation, in training."""

    _layers = (nn.Linear, nn.BatchNorm1d)


class LinearLeakyReLU(_FusedModule):
    """A linear layer and a leaky rectifier."""

    _layers = (nn.Linear, nn.LeakyReLU)


class LinearTanh(_FusedModule):
    """A linear layer and tanh."""

    _layers = (nn.Linear, nn.Tanh)


class ConvAdd2d(_FusedModule):
    """A convolution whose result is added to another tensor."""

    def __init__(self, conv: Any, add: Any) -> None:
        nn.Sequential.__init__(self, conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """A convolution whose result is added to another tensor, and a rectifier."""

    def __init__(self, conv: Any, add: Any, relu: Any) -> None:
        nn.Sequential.__init__(self, conv)
        self.add, self.relu = add, relu

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.relu(self.add(self[0](x1), x2))
