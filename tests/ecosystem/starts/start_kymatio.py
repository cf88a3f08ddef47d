"""A scattering transform."""

from kymatio.torch import Scattering1D, Scattering2D
from made import data, show

wave = data(2, 256).requires_grad_()
scattered = Scattering1D(J=4, shape=256, Q=4)(wave)
show("wave", scattered)
show("image", Scattering2D(J=2, shape=(16, 16), L=4)(data(1, 16, 16)))
scattered.sum().backward()
show("gradient", wave.grad)
