"""Models for Android's neural networks (NNAPI), which run on a phone's accelerators.

:func:`export` converts a module; ``save`` writes a file that an app reads with ``nnapi_runner.c``
(:data:`SOURCES`), and calling the model runs it here: with Android's ``libneuralnetworks.so`` if there is
one, else with a library of the same C interface in this package. PyTorch's names are in
``backends._nnapi``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _C
from ..export.exported_program import ExportedProgram
from ..fx.graph_module import GraphModule
from ..nn.modules.module import Module
from ._run import FOLDER, Compilation, evaluate, library, save
from ._serialize import Model, Serializer, UnsupportedOperatorError, of_module, of_program, renamed

__all__ = ["Compilation", "NnapiModel", "SOURCES", "UnsupportedOperatorError", "export", "library"]

Tensor = _C.Tensor
SOURCES: tuple[Path, ...] = tuple(FOLDER / name for name in ("nnapi.h", "nnapi_runner.h", "nnapi_runner.c"))
_DTYPES = {3: _C.float32, 4: _C.int32, 5: _C.uint8}


class NnapiModel(Module):
    """A converted module. It is compiled at the first call, and again for other sizes of its inputs.

    Attributes:
        model: the serialized model
    """

    def __init__(
        self, model: Model, preference: int = 2, relax: bool = False, path: str | None = None
    ) -> None:
        super().__init__()
        self.model, self._options = model, (preference, relax, path)
        self._compiled: dict[tuple[int, ...], Compilation] = {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that ``facula_nnapi_open`` of ``nnapi_runner.h`` reads."""
        save(self.model, path)

    def forward(self, *args: Tensor) -> Any:
        inputs = self._inputs(args)
        dimensions = tuple(n for t in inputs for n in t.shape)
        if dimensions not in self._compiled:
            words = list(self.model.words)
            for word, expression in self.model.rules:
                words[word] = evaluate(expression, dimensions)
            self._compiled[dimensions] = Compilation(words, self.model.weights, *self._options)
        names = self._size_names(inputs)
        results = [
            _C.functions.empty(
                [n if isinstance(n, int) else names(n) for n in v.sizes], dtype=_DTYPES[v.type]
            )
            for v in self.model.outputs
        ]
        self._compiled[dimensions].run(inputs, results)
        return results[0] if self.model.single else tuple(results)

    def _inputs(self, args: tuple[Tensor, ...]) -> list[Tensor]:
        expected = self.model.inputs
        if len(args) != len(expected):
            raise TypeError(f"this model has {len(expected)} inputs, got {len(args)}")
        inputs = []
        for k, (t, v) in enumerate(zip(args, expected)):
            fixed = all(not isinstance(n, int) or n == m for n, m in zip(v.sizes, t.shape))
            if t.dim() != len(v.sizes) or not fixed or t.dtype is not _DTYPES[v.type]:
                raise ValueError(
                    f"input {k} is {t.dtype} of the shape {tuple(t.shape)}; expected is {_DTYPES[v.type]} "
                    f"of the shape {v.sizes}"
                )
            inputs.append((t.permute(0, 2, 3, 1) if v.nhwc else t).detach().contiguous())
        return inputs

    def _size_names(self, inputs: list[Tensor]) -> Any:
        numbers: dict[str, int] = {}
        for t, v in zip(inputs, self.model.inputs):
            sizes = [v.sizes[d] for d in (0, 2, 3, 1)] if v.nhwc else v.sizes
            numbers.update((n, m) for n, m in zip(sizes, t.shape) if isinstance(n, str) and n.isidentifier())
        names = {n: f"d{k}" for k, n in enumerate(numbers)}
        return lambda expression: evaluate(renamed(expression, names), list(numbers.values()))


def export(
    model: Any,
    args: Any,
    *,
    dynamic_shapes: Any = None,
    preference: int = 2,
    relax: bool = False,
    library: str | None = None,
) -> NnapiModel:
    """Converts a module, or an ExportedProgram, in evaluation mode.

    A result of ``convert_pt2e`` computes with 8-bit integers, wherever an operator reads dequantised tensors
    and its result is quantised. An input that has the attribute ``nnapi_nhwc`` is passed to NNAPI with its
    channels last, as PyTorch's exporter has it.

    Args:
        model: a module, or a program of ``facula.export.export``.
        args: example inputs, float32 or int32.
        dynamic_shapes: sizes that are numbers when the model is loaded, as for ``facula.export.export``.
        preference: 0 low power, 1 fast single answer, 2 sustained speed.
        relax: whether float32 may be computed in float16.
        library: the path of ``libneuralnetworks.so``.

    Raises:
        UnsupportedOperatorError: for an operator without a form in NNAPI, with its line.
    """
    from ..export import export as export_program

    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if isinstance(model, GraphModule) and any("quantize_per" in str(n.target) for n in model.graph.nodes):
        source = of_module(model, args)
    elif isinstance(model, ExportedProgram):
        source = of_program(model)
    else:
        modes = [(m, m.training) for m in model.modules()]
        model.eval()
        try:
            source = of_program(export_program(model, args, dynamic_shapes=dynamic_shapes))
        finally:
            for m, mode in modes:
                m.training = mode
    last = [bool(getattr(t, "nnapi_nhwc", False)) for t in args if isinstance(t, Tensor)]
    return NnapiModel(Serializer(source, last).model(), preference, relax, library)
