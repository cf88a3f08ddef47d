"""Export to ONNX (:func:`export`), with the package ``onnx``, which has to be installed."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ONNXProgram", "OnnxExporterError", "UnsupportedOperatorError", "dynamo_export", "export",
    "is_in_onnx_export",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("ONNXProgram", "OnnxExporterError", "UnsupportedOperatorError"):
        from . import _export

        return getattr(_export, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def export(model: Any, args: Any = (), f: Any = None, **options: Any) -> Any:
    """Converts a module to an ONNX model: see ``facula/onnx/_export.py``."""
    from ._export import export as convert

    return convert(model, args, f, **options)


def dynamo_export(model: Any, *args: Any, export_options: Any = None, **kwargs: Any) -> Any:
    """Converts a module to an ONNX model, with its example arguments as arguments."""
    return export(model, args, kwargs=kwargs)


def is_in_onnx_export() -> bool:
    """Returns whether a module is being converted."""
    import sys

    converter = sys.modules.get(f"{__name__}._export")
    return bool(converter and converter._active[0])


def register_custom_op_symbolic(*args: Any, **kwargs: Any) -> None:
    """Has no effect: see ``export``."""
