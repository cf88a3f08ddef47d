"""A network of splines."""

import torch
from kan import KAN
from kan.spline import B_batch, coef2curve, curve2coef
from made import data, show, uniform

x = 2 * uniform(20, 1) - 1
grid = torch.linspace(-1.6, 1.6, 9)[None]
show("splines", B_batch(x, grid, k=3))
coefficients = curve2coef(x, torch.sin(3 * x)[:, :, None], grid, k=3)
show("curve", coef2curve(x, grid, coefficients, k=3))
model = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False)
with torch.no_grad():
    for k, p in enumerate(model.parameters()):
        if p.requires_grad:
            p.copy_(0.3 * data(*p.shape, seed=k))
inputs = 2 * uniform(16, 2) - 1
out = model(inputs)
show("out", out)
out.pow(2).mean().backward()
show("gradient", model.act_fun[0].coef.grad)
