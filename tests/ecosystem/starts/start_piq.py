"""Measures of the quality of images."""

import piq
from made import show, uniform

a, b = (uniform(2, 3, 64, 64, seed=k) for k in (0, 1))
a.requires_grad_()
for name in ("ssim", "psnr", "gmsd", "vif_p", "fsim", "haarpsi", "mdsi", "vsi", "total_variation"):
    measure = getattr(piq, name)
    show(name, measure(a) if name == "total_variation" else measure(a, b, data_range=1.0))
loss = piq.SSIMLoss(data_range=1.0)(a, b)
loss.backward()
show("gradient", a.grad)
