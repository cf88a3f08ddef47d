"""Names of types for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any

from . import _C

Tensor, Size, Generator = _C.Tensor, _C.Size, _C.Generator
_dtype, _device, _layout = _C.dtype, _C.device, _C.layout
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
Number = builtins.int | builtins.float | builtins.bool
_Number = (builtins.int, builtins.float, builtins.bool)
_size = _C.Size | builtins.list[builtins.int] | builtins.tuple[builtins.int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]
Device = _device | builtins.str | builtins.int | None
Storage = Any
FileLike = builtins.str | os.PathLike[builtins.str] | Any
