"""Export: a module as a graph that is transformed, saved, and run without Python.

:func:`export` returns an :class:`ExportedProgram`; :func:`save` writes it to a file that :func:`load` and
C++ read (docs/export.md).
"""

from __future__ import annotations

from typing import Any

from ..utils._pytree import register_dataclass as register_dataclass
from . import exported_program as exported_program
from . import graph_signature as graph_signature
from ._file import load as load
from ._file import save as save
from ._trace import export as export
from .dynamic_shapes import AdditionalInputs as AdditionalInputs
from .dynamic_shapes import Constraint as Constraint
from .dynamic_shapes import Dim as Dim
from .dynamic_shapes import ShapesCollection as ShapesCollection
from .dynamic_shapes import dims as dims
from .exported_program import ExportedProgram as ExportedProgram
from .exported_program import ModuleCallEntry as ModuleCallEntry
from .exported_program import ModuleCallSignature as ModuleCallSignature
from .graph_signature import ExportBackwardSignature as ExportBackwardSignature
from .graph_signature import ExportGraphSignature as ExportGraphSignature

__all__ = [
    "AdditionalInputs", "Constraint", "Dim", "ExportBackwardSignature", "ExportGraphSignature",
    "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection",
    "default_decompositions", "dims", "draft_export", "export", "export_for_training", "load",
    "register_dataclass", "save",
]  # fmt: skip

export_for_training = export


def default_decompositions() -> dict[Any, Any]:
    """Returns an empty table: an exported graph consists of the compiler's operators already, into which
    composite functions are taken apart when it is traced.
    """
    return {}


def draft_export(mod: Any, args: tuple, kwargs: dict | None = None, **options: Any) -> ExportedProgram:
    """Like :func:`export`, but sizes that the module fixes become fixed sizes of the program instead of
    errors. The attribute ``_report`` of the result lists them.
    """
    from ._draft import draft_export as draft

    return draft(mod, args, kwargs, **options)
