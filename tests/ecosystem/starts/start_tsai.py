"""Networks of time series."""

from made import data, fill, show
from tsai.models.InceptionTime import InceptionTime
from tsai.models.PatchTST import PatchTST
from tsai.models.TST import TST

for model in (
    InceptionTime(3, 2),
    TST(3, 2, seq_len=12, d_model=16, n_heads=2, d_ff=16, dropout=0.0),
    PatchTST(3, None, 12, pred_dim=4, d_model=8, n_heads=2, d_ff=8, patch_len=4, stride=2, n_layers=1),
):
    out = fill(model).eval()(data(2, 3, 12))
    show(type(model).__name__, out)
    out.pow(2).mean().backward()
    show("gradient", next(p.grad for p in model.parameters() if p.grad is not None))
