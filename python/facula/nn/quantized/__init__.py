"""The former location of :mod:`facula.ao.nn.quantized`."""

from ...ao.nn.quantized import FloatFunctional as FloatFunctional
