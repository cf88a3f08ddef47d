"""Quantized vectors with fixed codebooks."""

import torch
from made import data, show
from vector_quantize_pytorch import FSQ, LFQ, VectorQuantize

x = data(2, 6, 8).requires_grad_()
quantizer = VectorQuantize(
    dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0, learnable_codebook=True, ema_update=False
)
with torch.no_grad():
    quantizer._codebook.embed.copy_(data(1, 16, 8, seed=1))
quantizer.eval()
quantized, indices, loss = quantizer(x)
show("quantized", quantized)
show("indices", indices)
show("loss", loss)
quantized.sum().backward()
show("gradient", x.grad)
codes, indices = FSQ(levels=[8, 5, 5])(data(2, 6, 3))
show("finite", [codes, indices])
show("codes", LFQ(codebook_size=16, dim=4).eval()(data(2, 6, 4))[1])
