"""The experimental part of functorch."""

from . import control_flow as control_flow
