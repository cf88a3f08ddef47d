"""Quantisation of models, by the former name of :mod:`facula.ao.quantization`."""

from ..ao.quantization import *  # noqa: F403
from ..ao.quantization import report as report
