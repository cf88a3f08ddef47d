"""Rotated queries and keys."""

from made import data, show
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

q, k = data(1, 2, 6, 16).requires_grad_(), data(1, 2, 6, 16, seed=1)
rotary = RotaryEmbedding(dim=8)
show("queries", rotary.rotate_queries_or_keys(q))
show("keys", rotary.rotate_queries_or_keys(k, offset=3))
scaled = RotaryEmbedding(dim=8, use_xpos=True)
a, b = scaled.rotate_queries_and_keys(q, k)
show("scaled", [a, b])
axial = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=10)
frequencies = axial.get_axial_freqs(3, 2)
show("axial", apply_rotary_emb(frequencies, data(1, 3, 2, 16)))
a.sum().backward()
show("gradient", q.grad)
