"""The former location of :mod:`facula.ao.nn.quantized`."""

from ...ao.nn.quantized import *  # noqa: F403
from ...ao.nn.quantized import dynamic as dynamic
from ...ao.nn.quantized import functional as functional
