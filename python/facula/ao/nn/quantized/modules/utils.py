"""Base classes and helpers of the quantised modules."""

from __future__ import annotations

from typing import Any

from ..... import _C, _qscheme, _quantized
from .....nn import Module

__all__ = ["WeightedQuantizedModule"]

Tensor = _C.Tensor


class WeightedQuantizedModule(Module):
    """The base of quantised modules with a weight."""

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        raise NotImplementedError(f"{cls.__name__}.from_float")

    @classmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        raise NotImplementedError(f"{cls.__name__}.from_reference")


def quantized_weight(weight: Tensor, observer: Any) -> Any:
    """Returns a weight quantised with the scales of an observer that has seen it."""
    scale, zero_point = observer.calculate_qparams()
    dtype, weight = observer.dtype, weight.detach().float()
    if observer.qscheme in (_qscheme.per_tensor_symmetric, _qscheme.per_tensor_affine):
        return _quantized.quantize_per_tensor(weight, float(scale), int(zero_point), dtype)
    if observer.qscheme is _qscheme.per_channel_affine_float_qparams:
        return _quantized.quantize_per_channel(
            weight, scale.float(), zero_point.float(), observer.ch_axis, dtype
        )
    return _quantized.quantize_per_channel(weight, scale.double(), zero_point.long(), observer.ch_axis, dtype)


_quantize_weight = quantized_weight


def observed_weight(mod: Any, qconfig: Any, observe: bool = True) -> tuple[Any, Any]:
    """Returns the quantised weight of a module and the observer that it was quantised with."""
    observer = getattr(mod, "weight_fake_quant", None)
    observer = qconfig.weight() if observer is None else observer
    if observe:
        observer(mod.weight)
    return quantized_weight(mod.weight, observer), observer


def output_parameters(mod: Any) -> tuple[float, int]:
    """Returns scale and zero point of a module's result, from its observer."""
    scale, zero_point = mod.activation_post_process.calculate_qparams()
    return float(scale), int(zero_point)


def check_kind(cls: type, mod: Any, kinds: tuple) -> None:
    """Raises AssertionError if ``mod`` is of none of the classes that ``cls`` replaces."""
    if type(mod) not in kinds:
        names = ", ".join(k.__name__ for k in kinds)
        raise AssertionError(
            f"{cls.__module__.rpartition('.modules')[0]}.{cls.__name__}.from_float only works "
            f"for {names}, but "
            f"got: {type(mod)}"
        )
    if not hasattr(mod, "qconfig"):
        raise AssertionError(
            "Input float module must have qconfig defined: set model.qconfig and call prepare before convert"
        )


class OutputParameters(Module):
    """The base of modules that save scale and zero point of their result as numbers."""

    scale: float = 1.0
    zero_point: int = 0

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = _C.tensor(self.scale)
        destination[prefix + "zero_point"] = _C.tensor(self.zero_point)

    def _take_parameters(self, state_dict: Any, prefix: str) -> None:
        """Moves scale and zero point from a state to the module. RuntimeError: they are missing."""
        for name, kind in (("scale", float), ("zero_point", int)):
            value = taken(self, state_dict, prefix, name)
            setattr(self, name, kind(value))


def taken(module: Module, state_dict: Any, prefix: str, name: str) -> Any:
    """Removes an entry from a state. Raises RuntimeError, with the names that are there, if it is missing."""
    if prefix + name not in state_dict:
        there = [k for k in state_dict if k.startswith(prefix)]
        raise RuntimeError(
            f"load_state_dict: {prefix[:-1] or 'the model'}, a {type(module).__name__}, needs "
            f"{prefix + name}, but "
            f"the state has {', '.join(there[:8]) or 'nothing with this prefix'}\n"
            "  hint: the model must be quantized in the same way as the one that was saved"
        )
    return state_dict.pop(prefix + name)


def check_weight(module: Module, prefix: str, new: Any, old: Any) -> None:
    """Raises RuntimeError if a saved weight does not have the shape of the module's."""
    if not isinstance(new, Tensor) or tuple(new.shape) != tuple(old.shape):
        held = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
        raise RuntimeError(
            f"load_state_dict: size mismatch for {prefix}weight of a {type(module).__name__}: "
            f"the state has {held}, "
            f"the model {tuple(old.shape)}"
        )
    if _quantized.is_quantized(new) != _quantized.is_quantized(old):
        raise RuntimeError(
            f"load_state_dict: {prefix}weight has dtype {new.dtype}, but the model's has {old.dtype}"
        )


def pair(x: Any, rank: int) -> tuple:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,) * rank
