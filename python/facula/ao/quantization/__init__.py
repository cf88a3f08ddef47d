"""Marks of models that may be quantised. Quantisation is not there yet: they pass values on."""

from __future__ import annotations

from typing import Any, NoReturn

from ...nn.modules.module import Module

__all__ = ["DeQuantStub", "QuantStub", "convert", "prepare", "prepare_qat", "quantize_dynamic"]


class QuantStub(Module):
    """Where values become quantised: here they stay as they are."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Where values become floating again."""


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
