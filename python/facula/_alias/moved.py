"""Names of libraries that contain parts which PyTorch had: imports of them find ours if the library is not
installed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

_AO, _QUANTIZER = "torchao.quantization.pt2e", "ao.quantization.quantizer"
_XNNPACK = "executorch.backends.xnnpack.quantizer"
# The module of ours for each module of another library.
MOVED = {
    _AO: "ao.quantization.pt2e",
    f"{_AO}.export_utils": "ao.quantization.pt2e.export_utils",
    f"{_AO}.fake_quantize": "ao.quantization.fake_quantize",
    f"{_AO}.graph_utils": "ao.quantization.pt2e.graph_utils",
    f"{_AO}.lowering": "ao.quantization.pt2e.lower",
    f"{_AO}.observer": "ao.quantization.observer",
    f"{_AO}.quantize_pt2e": "ao.quantization.quantize_pt2e",
    f"{_AO}.quantizer": _QUANTIZER,
    f"{_AO}.quantizer.composable_quantizer": f"{_QUANTIZER}.composable_quantizer",
    f"{_AO}.quantizer.embedding_quantizer": f"{_QUANTIZER}.embedding_quantizer",
    f"{_AO}.quantizer.quantizer": f"{_QUANTIZER}.quantizer",
    f"{_AO}.quantizer.utils": f"{_QUANTIZER}.utils",
    f"{_AO}.quantizer.x86_inductor_quantizer": f"{_QUANTIZER}.x86_inductor_quantizer",
    f"{_XNNPACK}.xnnpack_quantizer": f"{_QUANTIZER}.xnnpack_quantizer",
    f"{_XNNPACK}.xnnpack_quantizer_utils": f"{_QUANTIZER}.xnnpack_quantizer_utils",
}


class _Ours(importlib.abc.Loader):
    """Loads a module of ours under another name, or a package without contents."""

    def __init__(self, module: ModuleType | None) -> None:
        self.module = module

    def create_module(self, spec: Any) -> ModuleType | None:
        if self.module is not None:
            self.spec = self.module.__spec__
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        if self.module is not None:
            module.__spec__ = self.spec  # the import system set it to its own


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of ``MOVED`` and the packages that contain them."""

    def __init__(self) -> None:
        self.installed: dict[str, bool] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        root = name.partition(".")[0]
        is_package = any(m.startswith(name + ".") for m in MOVED)
        if (name not in MOVED and not is_package) or self._is_installed(root):
            return None
        module = importlib.import_module("facula." + MOVED[name]) if name in MOVED else None
        return importlib.machinery.ModuleSpec(name, _Ours(module), is_package=is_package)

    def _is_installed(self, root: str) -> bool:
        if root not in self.installed:
            others = [f for f in sys.meta_path if f is not self and hasattr(f, "find_spec")]
            self.installed[root] = any(f.find_spec(root, None) is not None for f in others)
        return self.installed[root]
