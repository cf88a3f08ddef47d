"""Names of PyTorch's graph compiler: its settings, and ahead-of-time packages."""

from . import config as config
from .package import AOTICompiledModel, aot_compile, aoti_compile_and_package, aoti_load_package

__all__ = ["AOTICompiledModel", "aot_compile", "aoti_compile_and_package", "aoti_load_package"]
