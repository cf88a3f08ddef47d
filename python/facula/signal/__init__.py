"""Signal processing."""

from . import windows as windows
