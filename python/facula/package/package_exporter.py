"""PackageExporter: writes objects, and the source that they need, to an archive."""

from __future__ import annotations

import collections
import inspect
import io
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from .._namespace import renamed
from .._pickles import Pickler, bytes_of
from ..serialization import _write_record
from ..utils.hooks import RemovableHandle
from . import _dependencies
from ._files import GlobGroup
from ._importers import Importer, OrderedImporter, demangled, sys_importer

_ROOT = "archive"
_MOCK = """from _mock import MockedObject


def __getattr__(attr):
    return MockedObject(__name__ + "." + attr, _suppress_err=True)
"""


class EmptyMatchError(Exception):
    """Raised if a pattern with ``allow_empty=False`` matched no module."""


class PackagingError(Exception):
    """Raised if some modules cannot be packaged as requested; the text names them and the reasons."""

    def __init__(self, reasons: dict[str, list[str]], details: str = "") -> None:
        lines = [""]
        for reason, modules in reasons.items():
            lines += [f"* {reason}", *(f"    {m}" for m in modules)]
        super().__init__("\n".join(lines) + (f"\n{details}" if details else ""))


class _Pattern:
    def __init__(self, group: GlobGroup, action: str, allow_empty: bool) -> None:
        self.group, self.action, self.allow_empty, self.matched = group, action, allow_empty, False


class _Module(NamedTuple):
    action: str  # intern, extern, mock, or the error
    source: str | None = None
    is_package: bool = False


class _Pickler(Pickler):
    """Names objects by an importer; storages are numbered over the entire archive."""

    dispatch = dict(Pickler.dispatch)

    def __init__(self, file: Any, exporter: PackageExporter) -> None:
        super().__init__(file, lambda kind, key, numel: ("storage", kind, int(key), "cpu", numel))
        self._importer = exporter.importer
        self.storages, self._keys = exporter._storages, exporter._keys

    def save_global(self, obj: Any, name: str | None = None) -> None:
        name = name or getattr(obj, "__qualname__", None) or obj.__name__
        module = pickle.whichmodule(obj, name)
        if renamed(module, "facula", "torch"):
            super().save_global(obj, name)
            return
        module, name = self._importer.get_name(obj, name)
        parent, _, last = name.rpartition(".")
        if parent:
            owner: Any = self._importer.import_module(module)
            for part in parent.split("."):
                owner = getattr(owner, part)
            self.save_reduce(getattr, (owner, last), obj=obj)
            return
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch[type] = dispatch[FunctionType] = save_global


class PackageExporter:
    """Writes a package. Each module on which saved objects depend is handled by the first pattern that
    its name matches: ``intern`` (its source and its dependencies are included), ``extern`` (it is
    imported where the package is read), ``mock`` (it is omitted, and raises an error when it is used) or
    ``deny``. ``close()``, or the end of the ``with`` block, raises PackagingError if there is none.
    """

    importer: Importer

    def __init__(
        self, f: Any, importer: Importer | Sequence[Importer] = sys_importer, debug: bool = False
    ) -> None:
        self.debug = debug
        self.importer = importer if isinstance(importer, Importer) else OrderedImporter(*importer)
        self._file, self._closed = f, False
        self._records: dict[str, bytes] = {}
        self._patterns: list[_Pattern] = []
        self._modules: dict[str, _Module] = {}
        self._needs: dict[str, dict[str, None]] = collections.defaultdict(dict)
        self._storages: list[Any] = []
        self._keys: dict[Any, int] = {}
        self._hooks: dict[str, collections.OrderedDict] = {
            action: collections.OrderedDict() for action in ("intern", "extern", "mock")
        }
        self._unique = 0

    # ---- handling of modules

    def _pattern(self, action: str, include: Any, exclude: Any, allow_empty: bool) -> None:
        self._patterns.append(_Pattern(GlobGroup(include, exclude=exclude), action, allow_empty))

    def intern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Includes the source of matching modules."""
        self._pattern("intern", include, exclude, allow_empty)

    def extern(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Imports matching modules where the package is read."""
        self._pattern("extern", include, exclude, allow_empty)

    def mock(self, include: Any, *, exclude: Any = (), allow_empty: bool = True) -> None:
        """Omits matching modules: their contents raise an error when they are used."""
        self._pattern("mock", include, exclude, allow_empty)

    def deny(self, include: Any, *, exclude: Any = ()) -> None:
        """Makes a dependency on matching modules an error."""
        self._pattern("deny", include, exclude, True)

    def _register(self, action: str, hook: Callable) -> RemovableHandle:
        handle = RemovableHandle(self._hooks[action])
        self._hooks[action][handle.id] = hook
        return handle

    def register_intern_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(exporter, module name)`` for each module whose source is included."""
        return self._register("intern", hook)

    def register_extern_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(exporter, module name)`` for each external module."""
        return self._register("extern", hook)

    def register_mock_hook(self, hook: Callable) -> RemovableHandle:
        """Calls ``hook(exporter, module name)`` for each module that is mocked."""
        return self._register("mock", hook)

    def add_dependency(self, module_name: str, dependencies: bool = True) -> None:
        """Handles a module according to the patterns."""
        if module_name in self._modules:
            return
        top = module_name.partition(".")[0]
        if top in ("torch", "facula") or top in sys.stdlib_module_names:
            self._modules[module_name] = _Module("extern")
            return
        for p in self._patterns:
            if not p.group.matches(module_name):
                continue
            p.matched = True
            if p.action == "intern":
                self._intern(module_name, dependencies)
            elif p.action == "mock":
                self._modules[module_name] = _Module("mock")
                source = Path(__file__).with_name("_mock.py").read_text()
                self._modules["_mock"] = _Module("intern", source)
            else:
                wrong = "Module was denied by a pattern."
                self._modules[module_name] = _Module("extern" if p.action == "extern" else wrong)
            return
        self._modules[module_name] = _Module(
            "Module did not match against any action pattern. Extern, mock, or intern it."
        )

    def _intern(self, name: str, dependencies: bool) -> None:
        try:
            module = self.importer.import_module(name)
            source = _source_of(module)
        except ImportError:
            module = source = None
        if source is None:
            self._modules[name] = _Module("Module has no source that could be interned: was it compiled?")
            return
        self._add_source(name, source, hasattr(module, "__path__"), dependencies)

    def _add_source(self, name: str, source: str, is_package: bool, dependencies: bool) -> None:
        self._modules[name] = _Module("intern", source, is_package)
        if not dependencies:
            return
        package = name if is_package else name.rpartition(".")[0]
        for module, attribute in _dependencies.of_source(source, package):
            self._need(name, f"{module}.{attribute}" if self._is_module(module, attribute) else module)

    def _is_module(self, module: str, attribute: str | None) -> bool:
        if attribute is None:
            return False
        try:
            return isinstance(getattr(self.importer.import_module(module), attribute), ModuleType) and bool(
                self.importer.import_module(f"{module}.{attribute}")
            )
        except (ImportError, AttributeError):
            try:
                self.importer.import_module(f"{module}.{attribute}")
                return True
            except ImportError:
                return False

    def _need(self, who: str, module: str) -> None:
        self._needs[who][module] = None
        self.add_dependency(module)

    # ---- saving

    def _write(self, path: str, data: bytes) -> None:
        if self._closed:
            raise RuntimeError("PackageExporter: the package is closed")
        self._records[path] = data

    def save_binary(self, package: str, resource: str, binary: bytes) -> None:
        """Saves bytes, which ``load_binary`` returns."""
        self._write(_path(package, resource), bytes(binary))

    def save_text(self, package: str, resource: str, text: str) -> None:
        """Saves a text, which ``load_text`` returns."""
        self.save_binary(package, resource, text.encode())

    def save_pickle(
        self, package: str, resource: str, obj: Any, dependencies: bool = True, pickle_protocol: int = 3
    ) -> None:
        """Saves an object, which ``load_pickle`` returns, and the modules that its pickle names."""
        if pickle_protocol not in (2, 3):
            raise NotImplementedError(f"save_pickle: expected pickle_protocol 2 or 3, got {pickle_protocol}")
        buffer, stored = io.BytesIO(), len(self._storages)
        _Pickler(buffer, self).dump(obj)
        for k in range(stored, len(self._storages)):
            self._write(f".data/{k}.storage", bytes(bytes_of(self._storages[k])))
        self._write(_path(package, resource), buffer.getvalue())
        if dependencies:
            who = f"<{package}.{resource}>"
            for module in _dependencies.of_pickle(buffer.getvalue()):
                self._need(who, module)

    def save_module(self, module_name: str, dependencies: bool = True) -> None:
        """Saves the source of a module of this process."""
        if not isinstance(module_name, str):
            raise TypeError(f"save_module() expects a string input, got {type(module_name).__name__}")
        self._intern(module_name, dependencies)

    def save_source_string(
        self, module_name: str, src: str, is_package: bool = False, dependencies: bool = True
    ) -> None:
        """Saves a text as the source of a module."""
        self._add_source(module_name, src, is_package, dependencies)

    def save_source_file(self, module_name: str, file_or_directory: str, dependencies: bool = True) -> None:
        """Saves a file as the source of a module, or a folder as that of a package with all of its
        modules.
        """
        path = Path(file_or_directory)
        if not path.is_dir():
            is_package = path.name == "__init__.py"
            self._add_source(module_name, path.read_text(), is_package, dependencies)
            return
        for file in sorted(path.rglob("*.py")):
            parts = list(file.relative_to(path).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join([module_name, *(parts[:-1] if is_package else parts)])
            self._add_source(name, file.read_text(), is_package, dependencies)

    def get_unique_id(self) -> str:
        """Returns a text that differs for each call on this exporter."""
        self._unique += 1
        return str(self._unique - 1)

    # ---- queries

    def _of(self, action: str) -> list[str]:
        return [name for name, m in self._modules.items() if m.action == action]

    def interned_modules(self) -> list[str]:
        return self._of("intern")

    def externed_modules(self) -> list[str]:
        return self._of("extern")

    def mocked_modules(self) -> list[str]:
        return self._of("mock")

    def denied_modules(self) -> list[str]:
        return self._of("Module was denied by a pattern.")

    def get_rdeps(self, module_name: str) -> list[str]:
        """Returns the dependents of a module: modules, and ``<package.resource>`` for pickles."""
        return [who for who, needed in self._needs.items() if module_name in needed]

    def dependency_graph_string(self) -> str:
        """Returns the dependencies as a graph in DOT."""
        return _dot((a, b) for a, needed in self._needs.items() for b in needed)

    def all_paths(self, src: str, dst: str) -> str:
        """Returns the part of that graph that leads from ``src`` to ``dst``."""
        reaching, todo = {dst}, [dst]
        while todo:
            for who in self.get_rdeps(todo.pop()):
                if who not in reaching:
                    reaching.add(who)
                    todo.append(who)
        edges, seen, todo = [], {src}, [src]
        while todo:
            a = todo.pop()
            for b in self._needs.get(a, ()):
                if b in reaching:
                    edges.append((a, b))
                    if b not in seen:
                        seen.add(b)
                        todo.append(b)
        return _dot(edges)

    # ---- closing

    def close(self) -> None:
        """Writes the package; raises PackagingError for modules that no pattern handles."""
        if self._closed:
            return
        reasons = collections.defaultdict(list)
        for name, m in self._modules.items():
            if m.action not in self._hooks:
                reasons[m.action].append(name)
        if reasons:
            raise PackagingError(reasons, self.dependency_graph_string() if self.debug else "")
        for p in self._patterns:
            if not p.allow_empty and not p.matched:
                raise EmptyMatchError(
                    f"Exporter did not match any modules to {p.group}, which was marked as allow_empty=False"
                )
        self._write_modules()
        self._closed = True
        with zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED) as archive:
            for path, data in self._records.items():
                _write_record(archive, f"{_ROOT}/{path}", data)

    def _write_modules(self) -> None:
        for name, m in self._modules.items():
            for hook in self._hooks[m.action].values():
                hook(self, name)
            if m.action == "extern":
                continue
            source = _MOCK if m.action == "mock" else m.source or ""
            path = name.replace(".", "/") + ("/__init__.py" if m.is_package or m.action == "mock" else ".py")
            self._write(path, source.encode())
        self._write(".data/extern_modules", "".join(f"{n}\n" for n in self.externed_modules()).encode())
        self._write(".data/python_version", ".".join(map(str, sys.version_info[:3])).encode())
        self._write(".data/version", b"6\n")
        self._write("byteorder", b"little")

    def __enter__(self) -> PackageExporter:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        if exc_type is None:
            self.close()


def _path(package: str, resource: str) -> str:
    if "/" in resource:
        raise ValueError(f"resource must be a name without folders, got {resource!r}")
    return f"{package.replace('.', '/')}/{resource}"


def _source_of(module: ModuleType) -> str | None:
    loader = getattr(module, "__loader__", None)
    if loader is not None and hasattr(loader, "get_source"):
        try:
            return loader.get_source(demangled(module.__name__))
        except ImportError:
            return None
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        return None


def _dot(edges: Iterable[tuple[str, str]]) -> str:
    lines = "\n".join(f'    "{a}" -> "{b}";' for a, b in edges)
    return f"digraph G {{\n    rankdir = LR;\n{lines}\n}}\n"
