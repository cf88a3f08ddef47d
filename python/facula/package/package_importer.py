"""PackageImporter: reads objects from an archive, and runs the source that they need."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import io
import linecache
import zipfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .._namespace import renamed
from .._pickles import Unpickler
from .._tensor import from_elements
from .._utils import UnpicklingError
from ..serialization import _check_records, _record, _to_meta
from ._files import Directory, GlobGroup
from ._importers import Importer, demangled, new_mangle

_OURS = ("torch", "facula")  # the library, also under PyTorch's name


class _Unpickler(Unpickler):
    """Finds classes in the package's modules."""

    def __init__(self, file: Any, importer: PackageImporter, storage: Callable[..., Any]) -> None:
        super().__init__(file, str(importer), storage, True)
        self._importer = importer

    def persistent_load(self, pid: Any) -> Any:
        # packages number storages by integers
        if isinstance(pid, tuple) and len(pid) == 5 and type(pid[2]) is int:
            pid = (*pid[:2], str(pid[2]), *pid[3:])
        return super().persistent_load(pid)

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in _OURS:
            return super().find_class(module, name)
        member: Any = self.known(module, name)
        if member is None:
            member = self._importer.import_module(module)
            for part in name.split("."):
                member = getattr(member, part)
        return member


class PackageImporter(Importer):
    """Reads a package (a path or an open binary file), including PyTorch's. Its modules are separate from
    those of the process, and of other packages; external ones are those of the process, if
    ``module_allowed(name)`` permits. **Reading runs the code of the package.**
    """

    def __init__(
        self, file_or_buffer: Any, module_allowed: Callable[[str], bool] = lambda module_name: True
    ) -> None:
        self._archive = zipfile.ZipFile(file_or_buffer)
        self.filename = str(self._archive.filename or "<binary>")
        names = self._archive.namelist()
        self._root = names[0].partition("/")[0] + "/" if names else ""
        fp = self._archive.fp
        fp.seek(0, io.SEEK_END)  # type: ignore[union-attr]
        _check_records(self._archive, self.filename, fp.tell())  # type: ignore[union-attr]
        if f"{self._root}.data/extern_modules" not in names:
            raise RuntimeError(
                f"PackageImporter: {self.filename} is no package: it has no .data/extern_modules"
            )
        if f"{self._root}byteorder" in names and self._read("byteorder") != b"little":
            raise RuntimeError(f"PackageImporter: {self.filename} was written on a big-endian machine")
        self.extern_modules = self._read(".data/extern_modules").decode().split()
        for name in self.extern_modules:
            if not module_allowed(name):
                raise ImportError(
                    f"package '{self.filename}' needs the external module '{name}' but that module has been "
                    "disallowed by the module_allowed filter"
                )
        self._mangle = new_mangle()
        self.modules: dict[str, ModuleType] = {}
        self._sources, self._packages = self._indexed(names)
        self.patched_builtins = {**vars(builtins), "__import__": self._import}

    def __str__(self) -> str:
        return f"PackageImporter({self.filename})"

    __repr__ = __str__

    def _indexed(self, names: list[str]) -> tuple[dict[str, str], set[str]]:
        """Returns the paths of sources by module, and the names of packages."""
        sources, packages = {}, set()
        for full in names:
            path = full.removeprefix(self._root)
            if path.startswith(".data/"):
                continue
            *folders, last = path.split("/")
            packages.update(".".join(folders[: k + 1]) for k in range(len(folders)))
            if last.endswith(".py"):
                parts = folders if last == "__init__.py" else [*folders, last[:-3]]
                sources[".".join(parts)] = path
        return sources, packages

    def _read(self, path: str) -> bytes:
        try:
            return bytes(_record(self._archive, self._archive.getinfo(self._root + path)))
        except KeyError:
            raise FileNotFoundError(f"{self.filename} has no record {path}") from None

    # ---- contents

    def load_binary(self, package: str, resource: str) -> bytes:
        """Returns the bytes that ``save_binary`` wrote."""
        return self._read(f"{package.replace('.', '/')}/{resource}")

    def load_text(self, package: str, resource: str, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the text that ``save_text`` wrote."""
        return self.load_binary(package, resource).decode(encoding, errors)

    def load_pickle(self, package: str, resource: str, map_location: Any = None) -> Any:
        """Returns the object that ``save_pickle`` wrote, a new one at each call."""
        if _to_meta(map_location):
            raise RuntimeError("load_pickle: a package is read to the CPU, not to map_location='meta'")
        storages: dict[str, Any] = {}

        def storage(key: str, dtype: Any, numel: int) -> Any:
            if key not in storages:
                data = bytearray(self._read(f".data/{key}.storage"))
                if len(data) != numel * dtype.itemsize:
                    raise UnpicklingError(
                        f"load_pickle: {self.filename} is damaged: storage {key} has {len(data)} bytes, "
                        f"{numel * dtype.itemsize} are expected"
                    )
                storages[key] = from_elements(data, dtype, [numel])
            if storages[key].dtype != dtype:
                raise UnpicklingError(f"load_pickle: {self.filename} views storage {key} as two dtypes")
            return storages[key]

        return _Unpickler(io.BytesIO(self.load_binary(package, resource)), self, storage).load()

    # ---- properties of the package

    def id(self) -> str:
        """Returns the name under which the modules of this importer are placed."""
        return self._mangle

    def python_version(self) -> str | None:
        """Returns the version of Python that wrote the package."""
        try:
            return self._read(".data/python_version").decode().strip()
        except FileNotFoundError:
            return None

    def file_structure(self, *, include: Any = "**", exclude: Any = ()) -> Directory:
        """Returns the files of the package whose paths match (``/`` separates components)."""
        group, top = GlobGroup(include, exclude=exclude, separator="/"), Directory(self.filename, True)
        for full in self._archive.namelist():
            if group.matches(path := full.removeprefix(self._root)):
                top._add_file(path)
        return top

    def get_source(self, module_name: str) -> str:
        """Returns the source of a module of the package."""
        name = demangled(module_name)
        if name not in self._sources:
            raise ImportError(f"{self.filename} has no source of module {name!r}")
        return self._read(self._sources[name]).decode()

    def whichmodule(self, obj: Any, name: str) -> str:
        module = getattr(obj, "__module__", None)
        if isinstance(module, str):
            return module
        return next((n for n, m in self.modules.items() if getattr(m, name, None) is obj), "__main__")

    # ---- modules

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Imports a module of the package, or an external one that it names."""
        name = demangled(name)
        return self._load(importlib.util.resolve_name(name, package) if package else name)

    def _is_external(self, name: str) -> bool:
        if name.partition(".")[0] in _OURS and any(m.partition(".")[0] in _OURS for m in self.extern_modules):
            return True
        prefixes = (m + "." for m in self.extern_modules)
        return any((name + ".").startswith(m) or m.startswith(name + ".") for m in prefixes)

    def _load(self, name: str) -> ModuleType:
        if name in self.modules:
            return self.modules[name]
        parent, _, last = name.rpartition(".")
        if parent and not self._is_external(name):
            self._load(parent)
            if name in self.modules:  # the import of its parent has imported it
                return self.modules[name]
        if name in self._sources or name in self._packages:
            module = self._created(name)
        elif self._is_external(name) or name == "builtins":
            module = importlib.import_module(renamed(name, "torch", "facula") or name)
            self.modules[name] = module
            return module
        else:
            raise ModuleNotFoundError(
                f'No module named "{name}" in self-contained archive "{self.filename}" and the module is '
                f"also not in the list of allowed external modules: {self.extern_modules}",
                name=name,
            )
        if parent and parent in self.modules:
            setattr(self.modules[parent], last, module)
        return module

    def _created(self, name: str) -> ModuleType:
        path = self._sources.get(name)
        mangled = f"{self._mangle}.{name}"
        module = ModuleType(mangled)
        is_package = path is None or path.endswith("__init__.py")
        module.__file__ = f"{self._mangle}.{path}"
        module.__package__ = mangled if is_package else mangled.rpartition(".")[0]
        module.__loader__ = self  # type: ignore[assignment]
        module.__dict__["__builtins__"] = self.patched_builtins
        module.__dict__["__torch_package__"] = True
        if is_package:
            module.__path__ = []
        self.modules[name] = module
        if path is None:
            return module
        source = self._read(path).decode()
        linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
        try:
            exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del self.modules[name]
            raise
        return module

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        """``__import__`` for the modules of the package."""
        if level:
            package = demangled((globals or {}).get("__package__") or "").split(".")
            if level > len(package):
                raise ImportError("attempted relative import beyond top-level package")
            base = package[: len(package) - level + 1]
            name = ".".join([*base, name] if name else base)
        module = self._load(name)
        if not fromlist:
            if level:
                return module
            return self._load(name.partition(".")[0])
        for item in fromlist:
            wanted = getattr(module, "__all__", ()) if item == "*" else (item,)
            for attribute in wanted:
                if not hasattr(module, attribute):
                    self._submodule(name, attribute)
        return module

    def _submodule(self, name: str, attribute: str) -> None:
        full = f"{name}.{attribute}"
        try:
            self._load(full)
        except ModuleNotFoundError as error:
            if error.name not in (full, renamed(full, "torch", "facula")):
                raise
