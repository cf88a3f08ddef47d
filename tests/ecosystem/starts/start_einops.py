"""Rearrangements, reductions and layers."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import EinMix, Rearrange, Reduce
from made import data, fill, show

x = data(2, 3, 8, 8).requires_grad_()
patches = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
show("patches", patches)
show("means", reduce(x, "b c h w -> b c", "mean"))
show("repeated", repeat(x[:, :, 0, 0], "b c -> b c n", n=2))
show("product", einsum(patches, patches, "b i d, b j d -> b i j"))
show("packed", pack([x, x[:, :1]], "b * h w")[0])
model = torch.nn.Sequential(
    Rearrange("b c h w -> b h w c"),
    fill(EinMix("b h w c -> b h w d", "c d", c=3, d=4)),
    Reduce("b h w d -> b d", "max"),
)
out = model(x)
out.sum().backward()
show("mixed", out)
show("gradient", x.grad)
