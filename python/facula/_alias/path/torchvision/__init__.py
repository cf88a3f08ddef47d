"""The installed torchvision, if there is one; its shared libraries are linked with PyTorch's, and
facula's ``_alias/vision.py`` replaces the functions that it uses from them.

Otherwise the parts that model libraries import: transforms of PIL images and tensors, data sets of local
files, frozen batch norm. Other names are absent.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_own = Path(__file__).resolve()
_others = [p for p in sys.path if Path(p, "torchvision/__init__.py").resolve() != _own]
_installed = PathFinder.find_spec(__name__, _others)
if _installed is not None and _installed.loader is not None:
    _module = importlib.util.module_from_spec(_installed)
    sys.modules[__name__] = _module  # importers of this package receive the installed one
    _installed.loader.exec_module(_module)
else:
    from . import datasets as datasets
    from . import ops as ops
    from . import transforms as transforms

    __version__ = "0.28.0+facula"
