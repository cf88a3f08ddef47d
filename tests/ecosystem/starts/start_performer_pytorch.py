"""Attention by random features, which are fixed here."""

from made import data, fill, show
from performer_pytorch import FastAttention, Performer

q, k, v = (data(1, 2, 10, 8, seed=s) for s in range(3))
attention = FastAttention(dim_heads=8, nb_features=12, causal=False)
attention.projection_matrix.copy_(data(12, 8, seed=3))
show("attention", attention(q, k, v))
model = Performer(
    dim=16, depth=1, heads=2, dim_head=8, causal=False, nb_features=12, feature_redraw_interval=None
)
for name, b in model.named_buffers():
    if "projection" in name:
        b.copy_(data(*b.shape, seed=4))
show("model", fill(model).eval()(data(2, 10, 16)))
