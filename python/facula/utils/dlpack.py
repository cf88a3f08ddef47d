"""Exchange of tensors with other libraries."""

from .._C import from_dlpack
from .._functions import to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
