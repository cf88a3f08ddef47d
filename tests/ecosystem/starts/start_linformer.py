"""Attention of linear cost."""

from linformer import Linformer, LinformerSelfAttention
from made import data, fill, show

model = fill(Linformer(dim=16, seq_len=12, depth=2, heads=2, k=4, one_kv_head=True, share_kv=True))
out = model(data(2, 12, 16))
show("out", out)
out.pow(2).mean().backward()
show("gradient", next(model.parameters()).grad)
show("attention", fill(LinformerSelfAttention(dim=16, seq_len=12, heads=2, k=4))(data(1, 12, 16)))
