"""Normalizing flows of the distribution of data."""

import zuko
from made import data, fill, show, train

x, c = data(16, 3), data(16, 2, seed=1)
for flow in (
    zuko.flows.NSF(3, 2, transforms=2, hidden_features=[8]),
    zuko.flows.MAF(3, 2, transforms=2, hidden_features=[8]),
    zuko.flows.NICE(3, 2, transforms=2, hidden_features=[8]),
):
    fill(flow)
    show(type(flow).__name__, flow(c).log_prob(x))
    show("losses", train(flow.parameters(), lambda: -flow(c).log_prob(x).mean()))
    z = flow(c).transform(x)
    show("back", (flow(c).transform.inv(z) - x).abs().max() < 1e-3)
show("mixture", fill(zuko.mixtures.GMM(3, 2, components=2))(c).log_prob(x))
