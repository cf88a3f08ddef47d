"""A temporal fusion transformer over a table."""

import warnings

import numpy as np
import pandas as pd
from made import fill, show
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet
from pytorch_forecasting.metrics import QuantileLoss

warnings.simplefilter("ignore")
table = pd.DataFrame({
    "time": np.tile(np.arange(24), 3), "series": np.repeat(list("abc"), 24), "value": np.random.RandomState(0).rand(72) + 1,
})  # fmt: skip
dataset = TimeSeriesDataSet(
    table, time_idx="time", target="value", group_ids=["series"], max_encoder_length=8, max_prediction_length=4,
    time_varying_unknown_reals=["value"], static_categoricals=["series"], time_varying_known_reals=["time"],
)  # fmt: skip
loader = dataset.to_dataloader(train=False, batch_size=8)
model = TemporalFusionTransformer.from_dataset(
    dataset, hidden_size=8, attention_head_size=2, dropout=0.0, loss=QuantileLoss()
)
fill(model)
x, y = next(iter(loader))
show("inputs", x["encoder_cont"])
out = model(x)
show("quantiles", out.prediction)
loss = model.loss(out.prediction, y)
loss.backward()
show("loss", loss)
show("gradient", next(p.grad for p in model.parameters() if p.grad is not None))
