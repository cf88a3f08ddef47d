"""The former location of :mod:`facula.ao.nn.intrinsic`."""

from ...ao.nn.intrinsic import *  # noqa: F403
from ...ao.nn.intrinsic import qat as qat
from ...ao.nn.intrinsic import quantized as quantized
