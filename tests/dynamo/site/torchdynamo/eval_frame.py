"""A name that tests import from here."""

from .testing import unsupported

__all__ = ["unsupported"]
