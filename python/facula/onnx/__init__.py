"""Export to ONNX, which is not implemented yet; queries of programs whether it is running are answered."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["export", "is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    return False


def export(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "onnx.export: programs are not exported to ONNX yet; save the module's state_dict"
    )


dynamo_export = export


def register_custom_op_symbolic(*args: Any, **kwargs: Any) -> None:
    """Has no effect: see ``export``."""


class OnnxExporterError(RuntimeError):
    """The error that export would raise."""
