"""The version and components of this library, under PyTorch's names."""

from . import __version__ as __version__
from ._C import _build

debug: bool = _build()["type"] == "Debug"
git_version = ""
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
rocm: str | None = None
