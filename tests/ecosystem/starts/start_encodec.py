"""The codec's encoder, quantizer and decoder."""

import torch
from encodec import EncodecModel
from encodec.modules import SEANetDecoder, SEANetEncoder
from encodec.quantization import ResidualVectorQuantizer
from made import data, fill, show

encoder, decoder = (
    SEANetEncoder(n_filters=4, dimension=8, ratios=[2, 2]),
    SEANetDecoder(n_filters=4, dimension=8, ratios=[2, 2]),
)
wave = data(1, 1, 128)
with torch.no_grad():
    latent = fill(encoder).eval()(wave)
    show("latent", latent)
    show("wave", fill(decoder).eval()(latent))
quantizer = ResidualVectorQuantizer(dimension=8, n_q=2, bins=16).eval()
for k, layer in enumerate(quantizer.vq.layers):
    layer._codebook.embed.copy_(data(16, 8, seed=k))
    layer._codebook.inited.fill_(True)
codes = quantizer.encode(latent, sample_rate=32)
show("codes", codes)
show("decoded", quantizer.decode(codes))
show("parameters", sum(p.numel() for p in EncodecModel._get_model([3.0], 24000, 1).parameters()))
