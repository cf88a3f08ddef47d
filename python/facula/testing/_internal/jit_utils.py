"""The base class of tests of scripted modules."""

from __future__ import annotations

from .common_utils import TestCase


class JitTestCase(TestCase):
    """A test case; it adds nothing, because scripted functions are functions of Python here."""
