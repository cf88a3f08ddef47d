"""The base of the suite's test classes."""

import sys
import unittest

import torch

from . import config


class TestCase(unittest.TestCase):
    def setUp(self):
        super().setUp()
        torch.compiler.reset()
        torch.manual_seed(1234)

    def tearDown(self):
        torch.compiler.reset()
        super().tearDown()

    def assertEqual(self, first, second, msg=None, **options):  # noqa: N802
        from .utils import same

        if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
            self.assertTrue(same(torch.as_tensor(first), torch.as_tensor(second)), msg)
        else:
            super().assertEqual(first, second, msg)


def run_tests(needs=()):
    unittest.main()


__all__ = ["TestCase", "config", "run_tests", "sys"]
