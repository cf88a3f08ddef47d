"""A test case that compares tensors, and the main function of test files."""

from __future__ import annotations

import unittest
from typing import Any

from ... import _C
from .. import assert_close


class TestCase(unittest.TestCase):
    """A ``unittest.TestCase`` whose ``assertEqual`` compares tensors, and containers of tensors, as
    :func:`facula.testing.assert_close` does, with NaN equal to NaN.
    """

    def assertEqual(
        self, x: Any, y: Any, msg: Any = None, *, atol: float | None = None, rtol: float | None = None,
        equal_nan: bool = True, exact_dtype: bool = True,
    ) -> None:  # fmt: skip
        """Raises AssertionError unless ``x`` equals ``y``."""
        if not _has_tensors(x) and not _has_tensors(y) and atol is None and rtol is None:
            super().assertEqual(x, y, msg)
            return
        assert_close(x, y, atol=atol, rtol=rtol, equal_nan=equal_nan, check_dtype=exact_dtype, msg=msg)


def _has_tensors(x: Any) -> bool:
    if isinstance(x, dict):
        return any(map(_has_tensors, x.values()))
    return isinstance(x, _C.Tensor) or isinstance(x, (list, tuple)) and any(map(_has_tensors, x))


def run_tests(argv: list[str] | None = None) -> None:
    """Runs the tests of the program's module."""
    unittest.main(argv=argv)
