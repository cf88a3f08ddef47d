"""MTIA devices: there are none."""

from ._no_gpu import device_count as device_count
from ._no_gpu import is_available as is_available
