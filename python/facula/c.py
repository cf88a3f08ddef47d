"""Programs as C: a folder of freestanding C99 that runs and trains without Python or an operating system.

:func:`compile` takes programs of :func:`facula.program.trace`. Their code needs ``<math.h>`` and
``<stdint.h>``; intermediates are in one static arena, and the captured tensors (parameters, buffers, states
of optimizers) are arrays: constants, or variables if a program writes them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _C
from .program import Program
from .serialization import replacing

__all__ = ["Array", "Block", "Report", "aar", "compile", "java"]

Tensor = _C.Tensor


@dataclass(frozen=True)
class Block:
    """A part of the arena, which a tensor occupies during some steps of a function."""

    entry: str  #: the function
    name: str  #: the operation that computes the tensor, and its shape
    offset: int
    bytes: int
    first: int  #: the first step
    last: int  #: the last step, inclusive


@dataclass(frozen=True)
class Array:
    """An argument of a function in C, or a captured tensor."""

    name: str
    type: str  #: of its elements, in C
    shape: str  #: dtype and sizes
    elements: int
    written: bool  #: by the function; of a captured tensor, by any


@dataclass(frozen=True)
class Report:
    """The size of a program in C, in bytes, and its functions."""

    functions: tuple[str, ...]  #: prototypes, as the header declares them
    arena: int  #: memory of intermediates, which all functions share
    constant: int  #: captured tensors that no function writes; a linker puts them into flash memory
    writable: int  #: captured tensors that a function writes
    blocks: tuple[Block, ...] = ()  #: the use of the arena
    name: str = "model"  #: the prefix of all names in the code
    arguments: Mapping[str, tuple[Array, ...]] = field(default_factory=dict)  #: of each function
    weights: tuple[Array, ...] = ()  #: the captured tensors

    def __str__(self) -> str:
        sizes = (
            f"arena {self.arena:,} bytes, weights {self.constant:,} constant and {self.writable:,} writable"
        )
        return "\n".join([*self.functions, sizes])


def compile(
    programs: Program | Mapping[str, Program],
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    weights: Any = None,
    arguments: Mapping[str, Iterable[str]] | None = None,
    in_arena: Mapping[str, Iterable[int]] | None = None,
    tiled: bool = True,
    reorder: bool = True,
    lines: Mapping[str, str] | None = None,
) -> Report:
    """Writes traced programs as C99 into a folder: ``NAME.h``, ``NAME.c``, ``NAME_functions.h`` and
    ``NAME_weights.c``.

    Each function of the header runs one program. It takes pointers to the program's arguments and results,
    contiguous tensors in row-major order. Numbers that the program reads at each call, such as the learning
    rate of an optimizer, are further arguments (``const double* lr``). It returns 0, 1 if an index was out of
    range, or 2 for an integer division by zero. Functions of one folder share their weights, so that a
    training step changes what inference computes. Compile the files with ``-ffp-contract=off
    -fno-strict-aliasing``; results then have the same bits on every machine with IEEE arithmetic.

    Args:
        programs: a program, which becomes the function ``NAME_run``, or programs by names of functions.
        folder: created if it does not exist. Files that exist are replaced when all are complete.
        name: the prefix of all names in the code, an identifier.
        weights: names for captured tensors: a module, or a mapping from names to tensors.
        arguments: names of the arguments, by the names of functions.
        in_arena: numbers of arguments that share the arena's memory, by the names of functions: the caller
            writes them to ``NAME_FUNCTION_ARGUMENT`` before each call, which overwrites them.
        tiled: call functions that are tiled for microcontrollers (8-bit convolutions) where there are any,
            instead of loops over the operators' definitions.
        lines: lines of the source ("net.py:12") by the names of modules, for comments, if ``weights`` is a
            mapping. Those of a module's parts are the lines that called them in the trace.
        reorder: compute in the order that needs little memory, instead of the order of the trace.

    Raises:
        NotImplementedError: for an operator without C: sizes that depend on data, symbolic sizes, random
            numbers, functions of users. The message names it.
        ValueError: for names that are no identifiers, or captured tensors that share memory if one of
            them is written.
    """
    entries = {"run": programs} if isinstance(programs, Program) else dict(programs)
    if not entries:
        raise ValueError("c.compile expects at least one program")
    for entry, program in entries.items():
        if not isinstance(program, Program):
            raise TypeError(
                f"c.compile expects programs of {_C.package_name()}.program.trace, "
                f"but '{entry}' is a {type(program).__name__}"
            )
    named = arguments or {}
    rows = [
        (
            entry,
            program._native,
            _argument_names(program, named.get(entry, ())),
            tuple((in_arena or {}).get(entry, ())),
            tiled,
            reorder,
        )
        for entry, program in entries.items()
    ]
    named_tensors = [(n, t, _line(n, entries, weights, lines)) for n, t in _names(weights)]
    files, functions, captured, arena, constant, writable, blocks = _C.c_program(name, rows, named_tensors)
    _write(Path(folder), files)
    return Report(
        tuple(prototype for _, prototype, _ in functions),
        arena,
        constant,
        writable,
        tuple(Block(*b) for b in blocks),
        name,
        {entry: tuple(Array(*a) for a in arrays) for entry, _, arrays in functions},
        tuple(Array(*a) for a in captured),
    )


def _argument_names(program: Program, named: Iterable[str]) -> list[str]:
    """Returns the names of a program's tensors, and of the numbers that it reads at each call."""
    count = program._native.inputs() - len(program._operand_names)
    names = list(named)[:count]
    names += [f"input{k}" for k in range(len(names), count)]
    for name in program._operand_names:
        taken = sum(n == name or n.startswith(f"{name}_") for n in names)
        names.append(f"{name}_{taken}" if taken else name)
    return names


def _names(weights: Any) -> list[tuple[str, Tensor]]:
    if weights is None:
        return []
    if isinstance(weights, Mapping):
        return list(weights.items())
    return [*weights.named_parameters(), *weights.named_buffers()]


def _line(tensor: str, entries: Mapping[str, Program], weights: Any, lines: Mapping[str, str] | None) -> str:
    """Returns the line that calls the module of a captured tensor, "net.py:12", or "" if it is unknown."""
    name = tensor.rpartition(".")[0]
    if isinstance(weights, Mapping):
        return (lines or {}).get(name, "")
    module = weights.get_submodule(name)
    return next((line for p in entries.values() if (line := p.line_of(module))), "")


def _write(folder: Path, files: list[tuple[str, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as complete:  # each file is replaced when all are written
        for name, text in files:
            complete.enter_context(replacing(str(folder / name), "c.compile")).write(text.encode())


def java(report: Report, folder: str | os.PathLike[str], class_name: str = "org.facula.Model") -> None:
    """Writes a Java class for a compiled folder, and the C that connects them: :func:`facula._java.write`."""
    from . import _java

    _java.write(report, folder, class_name)


def aar(
    report: Report,
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    class_name: str = "org.facula.Model",
) -> None:
    """Builds an archive for Android from a compiled folder: :func:`facula._java.archive`."""
    from . import _java

    _java.archive(report, folder, path, class_name)
