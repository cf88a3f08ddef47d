"""Replacing sequences of layers by one module each."""

from __future__ import annotations

import copy
from typing import Any

from ...nn import Identity, Module
from .fuser_method_mappings import fuse_conv_bn, fuse_conv_bn_relu, get_fuser_method
from .utils import type_before_parametrizations

__all__ = ["fuse_known_modules", "fuse_modules", "fuse_modules_qat"]
__all__ += ["fuse_conv_bn", "fuse_conv_bn_relu", "get_fuser_method"]


def fuse_known_modules(mod_list: list, is_qat: bool, additional_fuser_method_mapping: Any = None) -> list:
    """Returns the fused module, and an Identity for each of the others. Hooks move to the fused module."""
    kinds = tuple(map(type_before_parametrizations, mod_list))
    fused = get_fuser_method(kinds, additional_fuser_method_mapping)(is_qat, *mod_list)
    for hook in mod_list[0]._forward_pre_hooks.values():
        fused.register_forward_pre_hook(hook)
    for hook in mod_list[-1]._forward_hooks.values():
        fused.register_forward_hook(hook)
    mod_list[0]._forward_pre_hooks.clear()
    mod_list[-1]._forward_hooks.clear()
    rest = [Identity() for _ in mod_list[1:]]
    for identity in rest:
        identity.training = mod_list[0].training
    return [fused, *rest]


def _fuse(
    model: Module, modules_to_fuse: Any, is_qat: bool, inplace: bool, fuser_func: Any, custom: Any
) -> Module:
    model = model if inplace else copy.deepcopy(model)
    single = all(isinstance(item, str) for item in modules_to_fuse)
    methods = (custom or {}).get("additional_fuser_method_mapping", {})
    for paths in [modules_to_fuse] if single else modules_to_fuse:
        try:
            layers = [model.get_submodule(path) for path in paths]
            fused = fuser_func(layers, is_qat, methods)
        except (AssertionError, NotImplementedError) as e:
            raise type(e)(f"fuse_modules: {', '.join(paths)}: {e}") from e
        for path, module in zip(paths, fused):
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, module)
    return model


def fuse_modules(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Module:
    """Returns a model in which sequences of layers are one module each, for quantisation after training.

    Args:
        model: the model, in evaluation mode.
        modules_to_fuse: the paths of the layers of one sequence, or a list of such lists: convolution,
            batch normalisation and rectifier, linear and rectifier, and parts of these.
        inplace: whether ``model`` itself is changed.
    """
    return _fuse(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(
    model: Module,
    modules_to_fuse: Any,
    inplace: bool = False,
    fuser_func: Any = fuse_known_modules,
    fuse_custom_config_dict: Any = None,
) -> Module:
    """Returns a model in which sequences of layers are one module each, for training."""
    return _fuse(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
