"""Differentiable collective operations."""

from .functional import *  # noqa: F403
