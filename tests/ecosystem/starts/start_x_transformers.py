"""Transformers with their variants, and generation."""

import torch
from made import data, fill, show, whole
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

tokens = whole(2, 8, below=20)
decoder = Decoder(
    dim=16, depth=2, heads=2, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True
)
model = fill(TransformerWrapper(num_tokens=20, max_seq_len=16, attn_layers=decoder))
out = model(tokens)
show("logits", out)
trained = AutoregressiveWrapper(model)
loss = trained(tokens)
loss.backward()
show("loss", loss)
show("gradient", model.token_emb.emb.weight.grad)
show("generated", trained.generate(tokens[:1, :2], 4, temperature=0.0))
encoder = Encoder(dim=16, depth=1, heads=2, attn_dim_head=8, alibi_pos_bias=True, attn_qk_norm=True)
show("encoder", fill(encoder)(data(2, 5, 16), mask=torch.ones(2, 5, dtype=torch.bool)))
