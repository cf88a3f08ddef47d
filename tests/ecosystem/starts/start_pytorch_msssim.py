"""Structural similarity of images, at one and at several scales."""

from made import show, uniform
from pytorch_msssim import MS_SSIM, SSIM, ms_ssim, ssim

a, b = (uniform(1, 3, 176, 176, seed=k) for k in (0, 1))
a.requires_grad_()
show("ssim", ssim(a, b, data_range=1.0))
show("scales", ms_ssim(a, b, data_range=1.0, size_average=False))
loss = 1 - SSIM(data_range=1.0)(a, b)
loss.backward()
show("gradient", a.grad)
show("module", MS_SSIM(data_range=1.0)(a, 0.5 * a + 0.5 * b))
