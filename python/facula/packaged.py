"""Packaged programs for NumPy arrays: this file needs NumPy and the library ``libfacula_runtime.so`` alone,
neither LLVM nor the rest of the package.

>>> import os, tempfile, numpy
>>> path = os.path.join(tempfile.mkdtemp(), "relu.fpk")
>>> program = facula.export.export(facula.nn.ReLU(), (facula.ones(2),))
>>> facula.package(program, path)
>>> facula.load_package(path)(numpy.array([-1, 2], dtype="float32"))
array([0., 2.], dtype=float32)
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["PackagedProgram", "load_package"]

_RANK = 16
# A process that has imported the package has loaded libfacula.so; its memory for variables of threads may not
# hold those of both libraries.
_LIBRARY = "libfacula.so" if __package__ else "libfacula_runtime.so"


class _Array(ctypes.Structure):
    """``facula_array`` of facula_c.h."""

    _fields_ = [
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int),
        ("sizes", ctypes.c_int64 * _RANK),
        ("data", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
    ]


def _library(path: str | os.PathLike | None = None) -> Any:
    library = ctypes.CDLL(os.fspath(path or Path(__file__).with_name(_LIBRARY)))
    array, program = ctypes.POINTER(_Array), ctypes.c_void_p
    library.facula_error.restype = ctypes.c_char_p
    library.facula_load.restype, library.facula_load.argtypes = program, [ctypes.c_char_p]
    library.facula_load_library.argtypes = [ctypes.c_char_p]
    library.facula_free.argtypes = library.facula_inputs.argtypes = library.facula_outputs.argtypes = [
        program
    ]
    library.facula_states.argtypes = [program]
    library.facula_input.argtypes = library.facula_state.argtypes = [program, ctypes.c_int, array]
    library.facula_run.argtypes = [program, array, ctypes.c_int, array]
    library.facula_release.argtypes = [array, ctypes.c_int]
    library.facula_train_step.argtypes = [program, array, ctypes.c_int, ctypes.POINTER(ctypes.c_double)]
    library.facula_save.argtypes = [program, ctypes.c_char_p]
    return library


class PackagedProgram:
    """A loaded package: called with NumPy arrays, it returns an array, or a tuple of them."""

    def __init__(
        self,
        path: str | os.PathLike,
        library: str | os.PathLike | None = None,
        extensions: Iterable[str | os.PathLike] = (),
    ) -> None:
        extensions, self._program = list(extensions), None
        # Operators and classes of users are made of the functions of libfacula.so.
        self._library = _library(library or (extensions and Path(__file__).with_name("libfacula.so")))
        for extension in extensions:
            if self._library.facula_load_library(os.fsencode(extension)):
                self._fail()
        self._program = self._library.facula_load(os.fsencode(path))
        if not self._program:
            self._fail()

    def __del__(self) -> None:
        if getattr(self, "_program", None):
            self._library.facula_free(self._program)

    def _fail(self) -> None:
        raise RuntimeError(self._library.facula_error().decode(errors="replace"))

    @property
    def inputs(self) -> list[tuple[str, tuple[int, ...]]]:
        """Returns the dtype and sizes of each input; -1 is any size."""
        described = []
        for k in range(self._library.facula_inputs(self._program)):
            a = _Array()
            if self._library.facula_input(self._program, k, a):
                self._fail()
            described.append((a.dtype.decode(), tuple(a.sizes[: a.rank])))
        return described

    def _arrays(self, arrays: tuple) -> tuple[Any, list]:
        import numpy

        alive = [numpy.asarray(x, order="C") for x in arrays]
        descriptions = (_Array * max(len(alive), 1))()
        for d, x in zip(descriptions, alive):
            d.dtype, d.rank, d.data = x.dtype.name.encode(), x.ndim, x.ctypes.data
            d.sizes[: x.ndim] = x.shape
        return descriptions, alive

    def __call__(self, *arrays: Any) -> Any:
        import numpy

        descriptions, alive = self._arrays(arrays)
        count = self._library.facula_outputs(self._program)
        results = (_Array * max(count, 1))()
        if self._library.facula_run(self._program, descriptions, len(alive), results):
            self._fail()
        outputs = []
        for r in results[:count]:
            shape, dtype = tuple(r.sizes[: r.rank]), numpy.dtype(r.dtype.decode())
            array = numpy.empty(shape, dtype)
            ctypes.memmove(array.ctypes.data, r.data, array.nbytes)
            outputs.append(array)
        self._library.facula_release(results, count)
        return outputs[0] if count == 1 else tuple(outputs)

    def train_step(self, *arrays: Any) -> float:
        """Runs a program that is a training step, and returns its loss."""
        descriptions, alive = self._arrays(arrays)
        loss = ctypes.c_double()
        if self._library.facula_train_step(self._program, descriptions, len(alive), loss):
            self._fail()
        return loss.value

    def save(self, path: str | os.PathLike) -> None:
        """Writes the program with its present state."""
        if self._library.facula_save(self._program, os.fsencode(path)):
            self._fail()


def load_package(
    path: str | os.PathLike,
    library: str | os.PathLike | None = None,
    extensions: Iterable[str | os.PathLike] = (),
) -> PackagedProgram:
    """Loads a package for NumPy arrays. ``library`` is the path of ``libfacula_runtime.so``, or of
    ``libfacula.so``, which the package uses; by default it is in the folder of this file. ``extensions`` are
    libraries of operators and classes that the program calls, for which the default is ``libfacula.so``. A
    package contains machine code, which is run: load only packages that you trust.
    """
    return PackagedProgram(path, library, extensions)
