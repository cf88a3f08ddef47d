"""Internals of the archived package that have no public successor: a test that uses one is skipped."""

import unittest


class Absent:
    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        raise unittest.SkipTest(f"{self.name}.{name} is internal to the archived package")

    def __call__(self, *args, **kwargs):
        raise unittest.SkipTest(f"{self.name} is internal to the archived package")
