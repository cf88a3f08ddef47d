"""Modules that libraries import from ``torch.fx.experimental``."""

from . import optimization as optimization
