"""Settings of PyTorch's graph compiler: they are stored and have no effect."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from .._dynamo.config import patch_of

coordinate_descent_tuning = False
# Programs are run by C++ for either value; packages (facula.package) need no Python.
cpp_wrapper = False
cpp = SimpleNamespace(threads=-1)
epilogue_fusion = True
fx_graph_cache = True
max_autotune = False
triton = SimpleNamespace(cudagraphs=False, unique_kernel_names=True)
patch = patch_of(sys.modules[__name__])
