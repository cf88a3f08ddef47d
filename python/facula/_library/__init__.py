"""PyTorch's home of fakes of C++ classes."""

from .fake_class_registry import register_fake_class

__all__ = ["register_fake_class"]
