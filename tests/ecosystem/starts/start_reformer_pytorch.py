"""Reversible layers with full attention."""

from made import data, fill, show
from reformer_pytorch import Reformer

model = fill(
    Reformer(dim=16, depth=2, heads=2, bucket_size=4, use_full_attn=True, causal=True, ff_chunks=2)
)  # in training mode, which its backward needs; nothing is dropped
x = data(2, 8, 16).requires_grad_()
out = model(x)
show("out", out)
out.pow(2).mean().backward()
show("gradient", x.grad)
