"""Calls of modules with other parameters: ``func.functional_call`` under its former name."""

from __future__ import annotations

from ...func import functional_call

__all__ = ["functional_call"]
