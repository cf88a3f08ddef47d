"""Losses and miners of metric learning."""

import torch
from made import data, show, whole
from pytorch_metric_learning import distances, losses, miners

x, y = data(12, 6).requires_grad_(), whole(12, below=3)
for loss in (
    losses.TripletMarginLoss(),
    losses.ContrastiveLoss(),
    losses.NTXentLoss(),
    losses.MultiSimilarityLoss(),
    losses.CircleLoss(),
):
    value = loss(x, y)
    (g,) = torch.autograd.grad(value, x)
    show(type(loss).__name__, [value, g])
pairs = miners.MultiSimilarityMiner(epsilon=0.1)(x, y)
show("mined", [len(p) for p in pairs])
show("with pairs", losses.TripletMarginLoss(distance=distances.CosineSimilarity())(x, y, pairs))
