"""PyTorch's name for the module of the loader."""

from .collate import default_collate, default_convert
from .loader import DataLoader
from .worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
