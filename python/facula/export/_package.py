"""Packages: files of programs with the machine code of their kernels, for machines without LLVM or a
compiler.

A package is a file of :func:`facula.export.save` with further records ``kernels/avx2/NAME``,
``kernels/avx512/NAME`` and ``kernels/amx/NAME``: the kernels that calls with the example's sizes use, for
each kind of processor. Processors with AMX use the last ones and those for AVX-512. The C interface
(``facula/deploy/facula_c.h``) and :func:`facula.load_package` load it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import _C
from .._ops import ops
from ..program import Program
from ..serialization import replacing
from ._file import _Writer, save, save_traced
from .exported_program import ExportedProgram

__all__ = ["package"]

TARGETS = ("avx2", "avx512", "amx")
# Runs a program with zeros of these sizes in another process, which uses one instruction set and
# records its kernels. A line of its standard input says that the file of the program is complete.
_RECORDER = """
import json, sys
import facula
from facula import _C
path, folder, calls = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for library in json.loads(sys.argv[4]):
    facula.ops.load_library(library)
_C.record_kernels_to(folder)
if not sys.stdin.readline():
    sys.exit()
program, _ = _C.load_program(path)
with facula.no_grad():
    for call in calls:
        tensors = [facula.zeros(sizes, dtype=getattr(facula, dtype)) for dtype, sizes in call]
        for result in program.run(tensors):
            if result is not None:
                result.contiguous()
"""


def package(
    program: ExportedProgram | Program,
    path: str | os.PathLike,
    *,
    targets: Iterable[str] | None = None,
    sizes: Iterable[dict[str, int]] = (),
    extra_files: dict[str, Any] | None = None,
) -> None:
    """Writes a program, exported or traced (also a training step), to a package that runs without LLVM or a
    compiler.

    The package contains the kernels for ``targets``, of "avx2", "avx512" and "amx"; by default for all that
    this processor has, because they are run while they are recorded. ``sizes`` names further sizes of the
    program's Dims, besides those of the example, that calls will have: ``[{"batch": 2}, {"batch": 64}]``.
    Kernels hardly depend on sizes, so that other sizes usually work too; a call that needs a kernel
    which the package lacks raises an error where there is no compiler.
    """
    available = [t for t in TARGETS if t in _available()]
    chosen = available if targets is None else list(targets)
    for target in chosen:
        if target not in available:
            raise RuntimeError(f"package: this processor does not have {target}, only {', '.join(available)}")
    calls = _calls(program, list(sizes))
    with replacing(os.fspath(path), "package") as file, tempfile.TemporaryDirectory() as folder:
        with _Recorders(file.name, folder, chosen, calls) as recorders:
            if isinstance(program, ExportedProgram):
                save(program, file, extra_files=extra_files)
            else:
                save_traced(program, file, extra_files)
            file.flush()
            recorders.begin()
            os.fsync(file.fileno())  # while the recorders run
            folders = recorders.finish()
        _add_kernels(file, folders)


def _available() -> list[str]:
    """Returns the instruction sets of this processor."""
    flags = Path("/proc/cpuinfo").read_text()
    needed = {"avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"), "amx": ("amx_bf16", "amx_tile")}
    available = ["avx2"]
    for target, names in needed.items():
        if not all(f" {name}" in flags for name in names):
            break
        available.append(target)
    return available


def _calls(program: Any, sizes: list[dict[str, int]]) -> list[list]:
    """Returns the dtypes and sizes of the tensors of each call to record."""
    if isinstance(program, Program):
        facts = _C.program_graph(program._with_numbers())
        hints = {name: hint for name, hint, *_ in facts["symbols"]}
        count = len(facts["inputs"]) - len(facts["captured"])
        from ..fx._bridge import size_value

        inputs = facts["inputs"][:count]
        return [
            [[str(dtype).rpartition(".")[2], [size_value(n, hints) for n in s]] for _, dtype, s, _ in inputs]
        ]

    symbols = program._checks.symbols
    calls = []
    for chosen in [{}, *sizes]:
        values = {n: chosen.get(s.dim.__name__ if s.dim else n, s.hint) for n, s in symbols.items()}
        unknown = set(chosen) - {s.dim.__name__ if s.dim else n for n, s in symbols.items()}
        if unknown:
            raise ValueError(f"package: the program has no Dim {', '.join(sorted(unknown))}")
        inputs = [x for x in program._checks.inputs if x.dtype is not None]
        calls.append([[str(x.dtype).rpartition(".")[2], [values.get(n, n) for n in x.sizes]] for x in inputs])
    return calls


class _Recorders:
    """Processes that record the kernels of the calls, one for each instruction set. They start while the file
    of the program is written, and run side by side.
    """

    def __init__(self, plain: str, folder: str, targets: list[str], calls: list) -> None:
        self._folders = {t: os.path.join(folder, t) for t in targets}
        self._processes: dict[str, subprocess.Popen] = {}
        # Libraries of operators and classes that the program calls.
        libraries = json.dumps(sorted(ops.loaded_libraries))
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        capability = {"amx": ""}  # the name of all that the processor has
        try:
            for target, kernels in self._folders.items():
                os.mkdir(kernels, mode=0o700)
                self._processes[target] = subprocess.Popen(
                    [sys.executable, "-c", _RECORDER, plain, kernels, json.dumps(calls), libraries],
                    env=os.environ
                    | {"FACULA_CPU_CAPABILITY": capability.get(target, target), "PYTHONPATH": path},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> _Recorders:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            with process:  # closes its pipes, and waits for it
                pass

    def begin(self) -> None:
        """Lets them read the file."""
        for process in self._processes.values():
            # finish() raises the error of a process that has ended.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()

    def finish(self) -> dict[str, str]:
        """Returns for each instruction set a folder with the kernels that the calls use on it."""
        for target, process in self._processes.items():
            errors = process.communicate()[1]
            if process.returncode:
                raise RuntimeError(f"package: the program does not run on {target}:\n{errors[-2000:]}")
        folders = self._folders
        if {"avx512", "amx"} <= set(folders):
            for name in set(os.listdir(folders["avx512"])) & set(os.listdir(folders["amx"])):
                os.remove(os.path.join(folders["amx"], name))
        return folders


def _add_kernels(file: Any, folders: dict[str, str]) -> None:
    """Adds kernels to the file of a program."""
    writer = _Writer(file, "a")
    for target, folder in folders.items():
        for name in sorted(os.listdir(folder)):
            writer.add(f"kernels/{target}/{name.removesuffix('.o')}", Path(folder, name).read_bytes())
    writer.zip.close()
