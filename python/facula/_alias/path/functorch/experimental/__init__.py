"""What functorch kept apart as experimental."""

from . import control_flow as control_flow
