"""Runs serialized models: the C functions of ``nnapi_runner.h``, which libfacula.so has, and files for
apps."""

from __future__ import annotations

import ast
import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _C
from ..serialization import replacing
from ._serialize import Model

Tensor = _C.Tensor
FOLDER = Path(_C.__file__).resolve().parent / "nnapi"  #: C sources for apps, and the library of this machine
MARK = 0x314E4E46
_OPERATIONS = {ast.Add: 2, ast.Sub: 3, ast.Mult: 4, ast.FloorDiv: 5}
_FUNCTIONS = {"max": 6, "min": 7}


class _Buffer(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def _functions() -> Any:
    lib = ctypes.CDLL(str(FOLDER.with_name("libfacula.so")))
    lib.facula_nnapi_load.restype = ctypes.c_void_p
    lib.facula_nnapi_load.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_size_t,
        ctypes.POINTER(_Buffer),
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    lib.facula_nnapi_open.restype = ctypes.c_void_p
    lib.facula_nnapi_open.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_int32),
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    for name in ("input", "output"):
        getattr(lib, f"facula_nnapi_{name}_bytes").restype = ctypes.c_size_t
        getattr(lib, f"facula_nnapi_{name}_bytes").argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pointers = ctypes.POINTER(ctypes.c_void_p)
    lib.facula_nnapi_run.argtypes = [ctypes.c_void_p, pointers, pointers, ctypes.c_char_p, ctypes.c_size_t]
    lib.facula_nnapi_free.argtypes = [ctypes.c_void_p]
    return lib


def library() -> str:
    """Returns the NNAPI that models run with: Android's if the system has one, else that of this package."""
    try:
        ctypes.CDLL("libneuralnetworks.so")
    except OSError:
        return str(FOLDER / "libneuralnetworks.so")
    return "libneuralnetworks.so"


class Compilation:
    """A model that NNAPI has compiled.

    Args:
        words: the serialized model; no dimension of an input or output is 0.
        weights: its buffers, contiguous.
        preference: 0 low power, 1 fast single answer, 2 sustained speed.
        relax: whether float32 may be computed in float16.
        path: of the library; None for :func:`library`.

    Raises:
        RuntimeError: if the library refuses the model, with its code.
    """

    def __init__(
        self,
        words: Sequence[int],
        weights: Sequence[Tensor],
        preference: int = 2,
        relax: bool = False,
        path: str | None = None,
    ) -> None:
        self._lib, self._model = _functions(), None
        self._weights = [w.detach().contiguous() for w in weights]
        buffers = (_Buffer * len(self._weights))(
            *(_Buffer(w.data_ptr(), w.numel() * w.element_size()) for w in self._weights)
        )
        error = ctypes.create_string_buffer(512)
        array = (ctypes.c_int32 * len(words))(*words)
        self._model = self._lib.facula_nnapi_load(
            (path or library()).encode(),
            array,
            len(words),
            buffers,
            len(self._weights),
            preference,
            int(relax),
            error,
            len(error),
        )
        if not self._model:
            raise RuntimeError(error.value.decode())

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Computes into ``outputs``. All tensors are contiguous and have the model's sizes and dtypes."""
        for what, tensors in (("input", inputs), ("output", outputs)):
            for k, t in enumerate(tensors):
                expected = getattr(self._lib, f"facula_nnapi_{what}_bytes")(self._model, k)
                if not t.is_contiguous() or t.numel() * t.element_size() != expected:
                    raise ValueError(
                        f"nnapi: {what} {k} has the shape {tuple(t.shape)} and dtype {t.dtype}; expected are "
                        f"{expected} contiguous bytes"
                    )
            if getattr(self._lib, f"facula_nnapi_{what}_bytes")(self._model, len(tensors)):
                raise ValueError(f"nnapi: {len(tensors)} {what}s are too few for this model")
        error = ctypes.create_string_buffer(512)
        lists = [(ctypes.c_void_p * (len(ts) or 1))(*(t.data_ptr() for t in ts)) for ts in (inputs, outputs)]
        if self._lib.facula_nnapi_run(self._model, *lists, error, len(error)):
            raise RuntimeError(error.value.decode())

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._lib.facula_nnapi_free(self._model)
            self._model = None


# ---- files


def _postfix(expression: str) -> list[int]:
    """Returns an expression of the inputs' dimensions as nnapi_runner.c evaluates it."""

    def words(node: ast.AST) -> list[int]:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return [0, node.value]
        if isinstance(node, ast.Name):
            return [1, int(node.id[1:])]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return [0, 0, *words(node.operand), 3]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return [*words(node.left), *words(node.right), _OPERATIONS[type(node.op)]]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            return [*words(node.args[0]), *words(node.args[1]), _FUNCTIONS[node.func.id.lower()]]
        raise NotImplementedError(
            f"nnapi: the size {expression} is computed by operations that models do not have"
        )

    return words(ast.parse(expression, mode="eval").body)


def evaluate(expression: str, dimensions: Sequence[int]) -> int:
    """Returns a size for the dimensions of all inputs."""
    stack: list[int] = []
    words = iter(_postfix(expression))
    for op in words:
        if op < 2:
            n = next(words)
            stack.append(dimensions[n] if op else n)
            continue
        b, a = stack.pop(), stack.pop()
        stack.append((a + b, a - b, a * b, a // b if op == 5 else 0, max(a, b), min(a, b))[op - 2])
    return stack[0]


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes a model for ``facula_nnapi_open``."""
    codes = [(word, _postfix(expression)) for word, expression in model.rules]
    rules = [w for word, code in codes for w in (word, len(code), *code)]
    lengths = [t.numel() * t.element_size() for t in model.weights]
    words = [MARK, len(model.words), len(lengths), len(rules), *model.words, *lengths, *rules]
    with replacing(str(path), "nnapi.save") as file:
        data = struct.pack(f"<{len(words)}i", *words)
        file.write(data + bytes(-len(data) % 64))
        for t, n in zip(model.weights, lengths):
            file.write(t.detach().contiguous().numpy().tobytes() + bytes(-n % 64))
