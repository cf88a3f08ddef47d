"""Compiles users' C++ sources: Python modules (``PYBIND11_MODULE`` of pybind11) and libraries of operators
and classes (``facula/extension.h``), at run time (:func:`load`, :func:`load_inline`) or in a ``setup.py``
(:func:`CppExtension`, ``BuildExtension``).

Compiled files are cached under a key of the contents of the sources and the headers that they include,
the flags, the compiler and this build of Facula. The compiler is called directly, for ``MAX_JOBS``
sources at once; ninja is not needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from .. import _C
from .._ops import ops

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "SyclExtension",
    "check_compiler_is_gcc",
    "check_compiler_ok_for_platform",
    "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler",
    "get_default_build_root",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
]

_LIBRARIES = Path(_C.__file__).resolve().parent  # libfacula.so and this module are in the same folder
_STANDARD = "-std=c++20"
_OLDEST = {"g++": (12,), "clang++": (16,)}  # oldest versions that compile the headers


def _installed_prefix() -> Path:
    """The folder that ``find_package(facula)`` searches."""
    installed = _LIBRARIES.parents[1]  # PREFIX/lib/facula
    return installed if (installed / "include" / "facula").is_dir() else _LIBRARIES


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Returns folders with the headers of Facula (``facula/extension.h``, ``torch/extension.h``)."""
    _only_cpu("include_paths", device_type)
    if not torch_include_dirs:
        return []
    cache = _LIBRARIES.parents[1] / "CMakeCache.txt"
    if cache.exists():  # this is a build folder
        for line in cache.read_text().splitlines():
            if line.startswith("CMAKE_HOME_DIRECTORY:"):
                return [line.partition("=")[2] + "/src", str(cache.parent / "generated")]
    return [str(_installed_prefix() / "include")]


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: str | None = None
) -> list[str]:
    """Returns the folder with ``libfacula.so``."""
    _only_cpu("library_paths", device_type)
    return [str(_LIBRARIES)] if torch_include_dirs else []


def _only_cpu(what: str, device_type: str) -> None:
    if device_type != "cpu":
        _no_device_sources(f"{what}: device_type={device_type!r}")


def _no_device_sources(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: sources for devices are not compiled; kernels for GPUs are generated from the definitions "
        "of operators\n  hint: define the operator in C++ (facula/extension.h, m.define), or use CppExtension"
    )


# ---- the compiler


def get_cxx_compiler() -> str:
    """Returns the C++ compiler: ``CXX`` of the environment, or the first of c++, g++, clang++ that
    exists.
    """
    return os.environ.get("CXX") or next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), "c++")


def _command() -> list[str]:
    command = shlex.split(get_cxx_compiler())
    if not shutil.which(command[0]):
        raise RuntimeError(
            f"no C++ compiler was found: {command[0]}\n  hint: install g++ or clang++, or name one in CXX"
        )
    return command


def _output(command: list[str]) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Returns whether this is a compiler that Facula supports on this system, g++ or clang++."""
    text = _output([*shlex.split(compiler), "--version"]).lower()
    return any(word in text for word in ("gcc", "g++", "clang", "free software foundation"))


def check_compiler_is_gcc(compiler: str) -> bool:
    text = _output([*shlex.split(compiler), "--version"])
    return "clang" not in text.lower() and "Free Software Foundation" in text


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, Any]:
    """Returns whether the compiler can compile Facula's headers (at least GCC 12 or Clang 16), and its
    version.
    """
    from ..torch_version import TorchVersion

    text = _output([*shlex.split(compiler), "-dumpfullversion", "-dumpversion"]).split("\n")[0] or "0"
    numbers = tuple(int(n) for n in text.split(".") if n.isdigit())
    oldest = _OLDEST["g++" if check_compiler_is_gcc(compiler) else "clang++"]
    return check_compiler_ok_for_platform(compiler) and numbers >= oldest, TorchVersion(text)


def is_ninja_available() -> bool:
    try:
        return not subprocess.run(["ninja", "--version"], capture_output=True).returncode
    except OSError:
        return False


def verify_ninja_availability() -> None:
    """Raises RuntimeError if there is no ninja. (Facula does not need it.)"""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def _pybind11() -> str:
    """Returns the folder of pybind11's headers."""
    package = importlib.util.find_spec("pybind11")
    for place in (package.submodule_search_locations or []) if package else []:
        if (Path(place) / "include" / "pybind11").is_dir():
            return str(Path(place) / "include")
    raise RuntimeError(
        "a Python module in C++ needs pybind11, which is not installed\n  hint: pip install pybind11; "
        "libraries of operators (is_python_module=False) do without it"
    )


# ---- compiling


def get_default_build_root() -> str:
    """Returns the folder of compiled extensions: ``TORCH_EXTENSIONS_DIR``, or one in the user's cache."""
    configured = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.realpath(configured or os.path.join(cache, "facula_extensions"))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _content(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Admits one process at a time; the system releases the lock if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _headers(rule: str) -> list[str]:
    """Returns the user's own headers from a dependency file."""
    words = rule.replace("\\\n", " ").partition(":")[2].split()
    ours = tuple(os.path.realpath(p) + "/" for p in include_paths())
    return [w for w in words if not os.path.realpath(w).startswith(ours)]


def _unchanged(manifest: Path) -> bool:
    try:
        return all(_content(p) == digest for p, digest in json.loads(manifest.read_text()).items())
    except (OSError, ValueError):
        return False


def _run(name: str, command: list[str], verbose: bool) -> None:
    if verbose:
        print(shlex.join(command), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True)
    if verbose and done.stderr:
        print(done.stderr, file=sys.stderr)
    if done.returncode:
        raise RuntimeError(
            f"Error building extension '{name}': the compiler said\n{done.stderr or done.stdout}\n"
            f"The command was\n{shlex.join(command)}"
        )


def _build(
    name: str,
    sources: list[str],
    compile_flags: list[str],
    link_flags: list[str],
    folder: Path,
    verbose: bool,
) -> Path:
    """Compiles the sources if anything changed, and returns the path of the result."""
    compiler = _command()
    usable, version = get_compiler_abi_compatibility_and_version(shlex.join(compiler))
    if not usable:
        raise RuntimeError(
            f"Error building extension '{name}': {shlex.join(compiler)} {version} cannot compile Facula's "
            "headers, which are C++20\n  hint: name g++ 12 or clang++ 16, or a later one, in CXX"
        )
    library = os.stat(_LIBRARIES / "libfacula.so")
    about = (compiler, str(version), library.st_mtime_ns, library.st_size, compile_flags, link_flags)
    key = _digest(name, [(os.path.abspath(s), _content(s)) for s in sources], about)[:24]
    target = folder / key / f"{name}.so"
    with _alone(folder):
        if target.exists() and _unchanged(target.with_suffix(".json")):
            return target
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            build = Path(temporary)

            def compile_one(k: int) -> str:
                output = str(build / f"{k}.o")
                dependencies = ["-MMD", "-MF", str(build / f"{k}.d")]
                _run(
                    name, [*compiler, *dependencies, *compile_flags, "-c", sources[k], "-o", output], verbose
                )
                return output

            jobs = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
            with ThreadPoolExecutor(jobs) as pool:
                objects = list(pool.map(compile_one, range(len(sources))))
            _run(name, [*compiler, *objects, *link_flags, "-o", str(build / target.name)], verbose)
            read = [h for k in range(len(sources)) for h in _headers((build / f"{k}.d").read_text())]
            manifest = {os.path.abspath(h): _content(h) for h in read}
            target.parent.mkdir(exist_ok=True)
            os.replace(build / target.name, target)
            target.with_suffix(".json").write_text(json.dumps(manifest))
    return target


def _import(name: str, path: Path) -> Any:
    ops.load_library(
        str(path)
    )  # the module may also register operators; if that fails, none stays registered
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """Compiles C++ sources and returns the Python module that they define
    (``PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)``). With ``is_python_module=False`` loads their operators
    and classes and returns the path of the library; with ``is_standalone=True`` returns the path of a
    program.

    The flags are appended to the default ones (C++20, -O2). Raises RuntimeError with the compiler's
    messages.
    """
    sources = [sources] if isinstance(sources, str) else [os.fspath(s) for s in sources]
    if with_cuda or with_sycl or extra_cuda_cflags or extra_sycl_cflags:
        _no_device_sources(f"load({name!r})")
    for s in sources:
        if s.endswith((".cu", ".cuh", ".sycl")):
            _no_device_sources(f"load({name!r}): {s}")
        if not os.path.exists(s):
            raise FileNotFoundError(f"load({name!r}): there is no source {s}")
    if not name.isidentifier():
        raise ValueError(f"load: an extension's name is a name of Python's, not {name!r}")
    python_module = is_python_module and not is_standalone
    folders = [*include_paths(), sysconfig.get_paths()["include"]]
    if python_module:
        folders.append(_pybind11())
    flags = [_STANDARD, "-O2", "-fPIC", f"-DTORCH_EXTENSION_NAME={name}"]
    flags += [f"-I{os.path.abspath(p)}" for p in extra_include_paths or []]
    flags += [f"-I{p}" for p in folders[: len(include_paths())]]
    flags += [f"-isystem{p}" for p in folders[len(include_paths()) :]]
    flags += extra_cflags or []
    link = [] if is_standalone else ["-shared"]
    for p in library_paths():
        link += [f"-L{p}", f"-Wl,-rpath,{p}"]
    link += ["-lfacula", *(extra_ldflags or [])]
    folder = Path(build_directory or os.path.join(get_default_build_root(), name))
    path = _build(name, sources, flags, link, folder, verbose)
    if is_standalone:
        return str(path)
    if not is_python_module:
        ops.load_library(str(path))
        return str(path)
    return _import(name, path)


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: Any = None,
    sycl_sources: Any = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """Like :func:`load`, for source text. ``functions`` lists the C++ functions of the module, or maps
    them to docstrings.
    """
    if cuda_sources or sycl_sources:
        _no_device_sources(f"load_inline({name!r})")
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    if not no_implicit_headers:
        texts.insert(0, "#include <torch/extension.h>")
    if functions is not None:
        named = [functions] if isinstance(functions, str) else functions
        docs = named if isinstance(named, dict) else dict.fromkeys(named, "")
        lines = [f"  m.def({json.dumps(f)}, {f}, {json.dumps(doc or f)});" for f, doc in docs.items()]
        texts.append("\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]))
    text = "\n".join(texts) + "\n"
    folder = build_directory or os.path.join(get_default_build_root(), name)
    source = Path(folder) / f"main-{_digest(text)[:24]}.cpp"
    with _alone(Path(folder)):
        if not source.exists():
            source.write_text(text)
    return load(
        name,
        [str(source)],
        extra_cflags,
        extra_cuda_cflags,
        extra_sycl_cflags,
        extra_ldflags,
        extra_include_paths,
        folder,
        verbose,
        with_cuda,
        with_sycl,
        is_python_module,
    )


# ---- setup.py


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """Returns a ``setuptools.Extension`` that finds Facula's headers and library.

    >>> setup(name="mine", ext_modules=[CppExtension("mine", ["mine.cpp"])],
    ...       cmdclass={"build_ext": BuildExtension})  # doctest: +SKIP
    """
    from setuptools import Extension

    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths()]
    kwargs["library_dirs"] = [*kwargs.get("library_dirs", []), *library_paths()]
    kwargs["runtime_library_dirs"] = [*kwargs.get("runtime_library_dirs", []), *library_paths()]
    kwargs["libraries"] = [*kwargs.get("libraries", []), "facula"]
    kwargs["language"] = "c++"
    return Extension(name, list(sources), *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: sources for GPUs are not compiled."""
    _no_device_sources(f"CUDAExtension({name!r})")


def SyclExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: sources for GPUs are not compiled."""
    _no_device_sources(f"SyclExtension({name!r})")


def _build_extension() -> type:
    from setuptools.command.build_ext import build_ext

    class BuildExtension(build_ext):
        """The command ``build_ext`` of a setup.py with :func:`CppExtension`: adds C++20 and the module's
        name. ``use_ninja`` has no effect; ``no_python_abi_suffix`` leaves Python's version out of the
        file name.
        """

        @classmethod
        def with_options(cls, **options: Any) -> type:
            class Configured(cls):  # type: ignore[misc, valid-type]
                def __init__(self, *args: Any, **kwargs: Any) -> None:
                    super().__init__(*args, **(kwargs | options))

            return Configured

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("use_ninja", None)
            self.no_python_abi_suffix = kwargs.pop("no_python_abi_suffix", False)
            super().__init__(*args, **kwargs)

        def build_extension(self, ext: Any) -> None:
            wanted = ext.extra_compile_args
            if isinstance(wanted, dict):
                wanted = wanted.get("cxx", [])
            name = ext.name.rpartition(".")[2]
            standard = [] if any(a.startswith("-std=") for a in wanted) else [_STANDARD]
            ext.extra_compile_args = [f"-DTORCH_EXTENSION_NAME={name}", *standard, *wanted]
            with contextlib.suppress(RuntimeError):  # libraries of operators do not need pybind11
                ext.include_dirs = [*ext.include_dirs, _pybind11()]
            super().build_extension(ext)

        def get_ext_filename(self, ext_name: str) -> str:
            filename: str = super().get_ext_filename(ext_name)
            if not self.no_python_abi_suffix:
                return filename
            parts = filename.split(".")
            return ".".join([*parts[:-2], parts[-1]])

    return BuildExtension


BuildExtension: Any  # created on demand: importing setuptools takes long


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":
        created = globals()[name] = _build_extension()
        return created
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


CUDA_HOME = ROCM_HOME = None  # extensions for GPUs are not compiled
