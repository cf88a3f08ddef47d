"""The flow for scripted modules, which is replaced by those of graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "convert_dynamic_jit",
    "convert_jit",
    "fuse_conv_bn_jit",
    "prepare_dynamic_jit",
    "prepare_jit",
    "quantize_dynamic_jit",
    "quantize_jit",
    "script_qconfig",
    "script_qconfig_dict",
]


def _refused(name: str) -> Callable[..., NoReturn]:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name}: scripted modules cannot be quantised\n"
            "  hint: quantize_fx.prepare_fx and quantize_pt2e.prepare_pt2e quantise the original module"
        )

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Raises NotImplementedError: the graphs of scripted modules are not available."
    return call


convert_dynamic_jit = _refused("convert_dynamic_jit")
convert_jit = _refused("convert_jit")
fuse_conv_bn_jit = _refused("fuse_conv_bn_jit")
prepare_dynamic_jit = _refused("prepare_dynamic_jit")
prepare_jit = _refused("prepare_jit")
quantize_dynamic_jit = _refused("quantize_dynamic_jit")
quantize_jit = _refused("quantize_jit")
script_qconfig = _refused("script_qconfig")
script_qconfig_dict = _refused("script_qconfig_dict")
