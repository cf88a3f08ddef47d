"""The former location of :mod:`facula.ao.nn.quantizable`."""

from ...ao.nn.quantizable import *  # noqa: F403
