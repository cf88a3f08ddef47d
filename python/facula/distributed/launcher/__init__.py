"""Launching from a program: ``elastic_launch(LaunchConfig(...), "program.py")("argument")``."""

from __future__ import annotations

from .api import LaunchConfig as LaunchConfig
from .api import elastic_launch as elastic_launch

__all__ = ["LaunchConfig", "elastic_launch"]
