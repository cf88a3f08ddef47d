"""Transformers of tables."""

from made import data, fill, show, whole
from tab_transformer_pytorch import FTTransformer, TabTransformer

categories, numbers = whole(4, 3, below=3), data(4, 2)
for kind in (TabTransformer, FTTransformer):
    model = fill(
        kind(
            categories=(3, 3, 3),
            num_continuous=2,
            dim=8,
            depth=1,
            heads=2,
            dim_out=1,
            attn_dropout=0.0,
            ff_dropout=0.0,
        )
    )
    out = model(categories, numbers)
    show(kind.__name__, out)
    out.pow(2).mean().backward()
    show("gradient", next(p.grad for p in model.parameters() if p.grad is not None))
