"""The name torch for Facula: an import finder that returns our modules under that name, and a runner for
programs behind it.

``path/`` is on the path of processes before the finder is installed. It contains a package torch that
installs the finder, the metadata of a distribution torch with the version that programs see, and
replacements for libraries that need PyTorch's binaries.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import io
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import facula

from .. import _unsupported
from .._namespace import names_now, renamed
from .._native import complete
from ..torch_version import TorchVersion
from . import moved

_PATH = str(Path(__file__).parent / "path")
_OURS, _THEIRS = "facula", "torch"


def _rename(module: ModuleType) -> None:
    """Gives a module of ours, and the classes and functions that it defines, torch's names; adds the names
    that Facula does not support.
    """
    module.__name__ = renamed(module.__name__, _OURS, _THEIRS) or module.__name__
    name = module.__name__.partition(".")[2]
    _unsupported.complete(module, name, module.__name__)
    for part, home in _HOMES.items():
        if home == name == part.rpartition(".")[0]:  # one of ours is several of theirs
            names_now(module).setdefault(part.rpartition(".")[2], module)
    for value in list(names_now(module).values()):
        where = getattr(value, "__module__", None)
        if isinstance(where, str) and (new := renamed(where, _OURS, _THEIRS)):
            if isinstance(value, facula._C.Overridable):
                value = value.__wrapped__  # displays the name of its function
            try:
                value.__module__ = new
            except (AttributeError, TypeError):
                pass  # an instance, which has the name of its class


class _SameModule(importlib.abc.Loader):
    """Loads torch.x as the module facula.x, which is not changed."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: Any) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system set it to its own

    def get_code(self, name: str) -> Any:
        """The code that ``python -m torch.x`` runs."""
        return self.spec.loader.get_code(self.spec.name) if self.spec and self.spec.loader else None


class _Unsupported(importlib.abc.Loader):
    """Makes a module of names that Facula does not support."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _unsupported.complete(module, module.__name__.partition(".")[2], module.__name__)


class _Renaming(importlib.abc.Loader):
    """Loads a module of ours as usual, then renames what it defines."""

    def __init__(self, usual: Any) -> None:
        self.usual = usual

    def __getattr__(self, name: str) -> Any:
        return getattr(self.usual, name)

    def create_module(self, spec: Any) -> Any:
        return self.usual.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        ours = module.__name__
        self.usual.exec_module(module)
        _rename(module)
        theirs = _THEIRS + ours[len(_OURS) :]
        if theirs not in _asked_for:
            # An import under that name would bind the module in its package in place of a function.
            sys.modules[theirs] = module


# Modules of PyTorch whose names are defined by another module of ours.
_HOMES = {
    "_C._distributed_c10d": "distributed",
    "_dynamo.eval_frame": "compiler",
    "_dynamo.external_utils": "compiler",
    "_vmap_internals": "_vmap",
    "amp.autocast_mode": "amp",
    "amp.grad_scaler": "amp",
    "autograd.grad_mode": "_modes",
    "cuda.amp.autocast_mode": "cuda.amp",
    "cuda.amp.common": "cuda.amp",
    "cuda.amp.grad_scaler": "cuda.amp",
    "cuda.graphs": "cuda",
    "cuda.memory": "cuda",
    "cuda.streams": "cuda",
    "cuda.comm": "nn.parallel.comm",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.experimental": "distributed.tensor.experimental",
    "distributed.checkpoint.filesystem": "distributed.checkpoint",
    "distributed.tensor.device_mesh": "distributed.device_mesh",
    "distributed.distributed_c10d": "distributed",
    "distributed.fsdp.fully_sharded_data_parallel": "distributed.fsdp",
    "distributed.constants": "distributed",
    "distributed.fsdp.api": "distributed.fsdp",
    "distributed.fsdp.wrap": "distributed.fsdp",
    "jit._script": "jit",
    "jit._trace": "jit",
    "nn.utils.clip_grad": "nn.utils",
    "nn.utils.memory_format": "nn.utils",
    "onnx.utils": "onnx",
    "optim._multi_tensor": "optim",
    "profiler.profiler": "profiler",
    "nn.intrinsic.modules": "ao.nn.intrinsic.modules",
    "nn.intrinsic.qat": "ao.nn.intrinsic.qat",
    "nn.intrinsic.quantized": "ao.nn.intrinsic.quantized",
    "nn.qat.dynamic": "ao.nn.qat.dynamic",
    "nn.qat.modules": "ao.nn.qat.modules",
    "nn.quantizable.modules": "ao.nn.quantizable.modules",
    "nn.quantized.dynamic": "ao.nn.quantized.dynamic",
    "nn.quantized.functional": "ao.nn.quantized.functional",
    "quantization": "ao.quantization",
    "quantization.fake_quantize": "ao.quantization.fake_quantize",
    "quantization.fuse_modules": "ao.quantization.fuse_modules",
    "quantization.fuser_method_mappings": "ao.quantization.fuser_method_mappings",
    "quantization.observer": "ao.quantization.observer",
    "quantization.qconfig": "ao.quantization.qconfig",
    "quantization.qconfig_mapping": "ao.quantization.qconfig_mapping",
    "quantization.quantization_mappings": "ao.quantization.quantization_mappings",
    "quantization.quantize": "ao.quantization.quantize",
    "quantization.quantize_fx": "ao.quantization.quantize_fx",
    "quantization.stubs": "ao.quantization.stubs",
    "quantization.utils": "ao.quantization.utils",
    "utils.data._utils.worker": "utils.data.worker",
    "utils.data.datapipes.iter.callable": "utils.data.datapipes.iter",
    "utils.data.datapipes.iter.combinatorics": "utils.data.datapipes.iter",
    "utils.data.datapipes.iter.combining": "utils.data.datapipes.iter",
    "utils.data.datapipes.iter.grouping": "utils.data.datapipes.iter",
    "utils.data.datapipes.iter.selecting": "utils.data.datapipes.iter",
    "utils.data.datapipes.iter.utils": "utils.data.datapipes.iter",
}
# Modules of torchvision that load its shared libraries and register their contents: vision.py.
_BINARIES = {
    "torchvision._autograd_registrations",
    "torchvision._meta_registrations",
    "torchvision.extension",
    "torchvision.ops._register_onnx_ops",
}
_asked_for: set[str] = set()  # names of modules that the finder is importing, and which it will return


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if ours := renamed(name, _THEIRS, _OURS):
            home = _HOMES.get(ours.partition(".")[2])
            ours = f"{_OURS}.{home}" if home else ours
            _asked_for.add(name)
            try:
                module = importlib.import_module(ours)
            except ModuleNotFoundError as e:
                if e.name is None or renamed(ours, e.name, "") is None:
                    raise  # ours is there; what it imports is not
                theirs = _THEIRS + ours[len(_OURS) :]
                if theirs.partition(".")[2] not in _unsupported.modules():
                    return None
                if theirs != name:
                    return importlib.machinery.ModuleSpec(name, _SameModule(importlib.import_module(theirs)))
                return importlib.machinery.ModuleSpec(name, _Unsupported(), is_package=True)
            finally:
                _asked_for.discard(name)
            file = getattr(module, "__file__", None)
            return importlib.machinery.ModuleSpec(name, _SameModule(module), origin=file)
        if name in _BINARIES:
            return importlib.machinery.ModuleSpec(
                name, _SameModule(importlib.import_module(__name__ + ".vision"))
            )
        if renamed(name, _OURS, _OURS):
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = _Renaming(spec.loader)
            return spec
        return None


def _version() -> str:
    (distribution,) = importlib.metadata.distributions(name=_THEIRS, path=[_PATH])
    return distribution.version


def install() -> None:
    """Makes ``import torch`` import Facula, here and in child processes. Idempotent.

    Raises ImportError if PyTorch itself has been imported.
    """
    there = sys.modules.get(_THEIRS)
    if there is facula:
        return
    origin = getattr(there, "__file__", None)
    if there is not None and origin != str(Path(_PATH, _THEIRS, "__init__.py")):
        raise ImportError(
            f"facula.torch: torch is imported already, from {origin}; "
            "import facula.torch before what imports torch"
        )
    facula._C.set_package_name(_THEIRS)
    facula._C._use_torch_random(True)  # programs expect PyTorch's numbers for their seeds
    complete(facula._C)
    facula.__version__ = TorchVersion(_version())
    for name, module in list(sys.modules.items()):
        if (theirs := renamed(name, _OURS, _THEIRS)) and not name.startswith((__name__, "facula.torch")):
            _rename(module)
            sys.modules[theirs] = module
    sys.modules[_OURS + ".torch"] = facula
    facula.torch = facula  # type: ignore[attr-defined]  # torch.torch is torch
    sys.meta_path.insert(0, _Finder())
    sys.meta_path.insert(1, moved.Finder())
    if _PATH not in sys.path:
        sys.path.insert(1, _PATH)  # for programs that check whether the distribution is installed
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _PATH not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_PATH, *inherited]))


def _stop(text: str) -> NoReturn:
    print("facula.torch: " + text, file=sys.stderr)
    raise SystemExit(2)


def main(arguments: Sequence[str], usage: str | None = None) -> None:
    """Runs a program behind the alias, as ``python ARGUMENTS...`` would run it."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return
    what, *rest = arguments
    if what in ("-c", "-m") and not rest:
        _stop(f"{what} needs what to run")
    if what.startswith("-") and what not in ("-c", "-m"):
        _stop(f"unknown option {what}: give a script, -m module or -c code; options of Python go before -m")
    if not what.startswith("-") and not os.path.exists(what):
        _stop(f"can't open file {what!r}: there is no such file")
    install()
    # a new module, because spawned children would run this program's __main__ again
    program = sys.modules["__main__"] = ModuleType("__main__")
    program.__builtins__ = builtins
    try:
        _run(program, what, rest)
    except BaseException as e:
        traceback = e.__traceback__
        for _ in range(2):  # this function's frame and that of _run
            traceback = traceback and traceback.tb_next
        _show_from(e, traceback)
        raise


def _run(program: ModuleType, what: str, rest: Sequence[str]) -> None:
    """Runs what the command line names in the module ``program``, which is ``__main__``."""
    import runpy

    if what == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        program.__loader__ = importlib.machinery.BuiltinImporter
        code = compile(rest[0], "<string>", "exec", dont_inherit=True)
    elif what == "-m":
        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        return
    elif os.path.isdir(what) or zipfile.is_zipfile(what):
        sys.argv, sys.path[0] = [what, *rest], what
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    else:
        path = os.path.abspath(what)
        sys.argv, sys.path[0] = [what, *rest], os.path.dirname(os.path.realpath(path))
        program.__file__ = path
        program.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as f:
            code = compile(f.read(), path, "exec", dont_inherit=True)
    exec(code, program.__dict__)


def _show_from(error: BaseException, start: TracebackType | None) -> None:
    """Lets the traceback of an exception that ends the program begin at ``start``, whoever shows it."""
    show = sys.excepthook

    def show_from_start(kind: Any, value: BaseException, traceback: TracebackType | None) -> None:
        if value is error:
            value, traceback = value.with_traceback(start), start
        show(kind, value, traceback)

    sys.excepthook = show_from_start
