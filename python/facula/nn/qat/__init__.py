"""The former location of :mod:`facula.ao.nn.qat`."""

from ...ao.nn.qat import *  # noqa: F403
from ...ao.nn.qat import dynamic as dynamic
