"""Wavelet transforms and their inverses."""

from made import data, show
from pytorch_wavelets import DTCWTForward, DTCWTInverse, DWT1DForward, DWTForward, DWTInverse

x = data(1, 2, 16, 16).requires_grad_()
low, high = DWTForward(J=2, wave="db2", mode="symmetric")(x)
show("low", low)
show("high", high)
back = DWTInverse(wave="db2", mode="symmetric")((low, high))
show("back", back)
back.pow(3).sum().backward()
show("gradient", x.grad)
low, high = DTCWTForward(J=2)(x)
show("complex", [low, *high])
show("again", DTCWTInverse()((low, high)))
show("line", DWT1DForward(J=2, wave="db1")(data(1, 2, 16))[0])
