"""Collective operations that have gradients."""

from .functional import *  # noqa: F403
