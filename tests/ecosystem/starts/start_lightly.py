"""Losses of contrastive learning and their heads."""

import torch
from lightly.loss import BarlowTwinsLoss, DINOLoss, NegativeCosineSimilarity, NTXentLoss, VICRegLoss
from lightly.models.modules import BYOLPredictionHead, SimCLRProjectionHead
from made import data, fill, show

a, b = data(6, 8).requires_grad_(), data(6, 8, seed=1)
for loss in (NTXentLoss(), BarlowTwinsLoss(), NegativeCosineSimilarity(), VICRegLoss()):
    value = loss(a, b)
    (g,) = torch.autograd.grad(value, a)
    show(type(loss).__name__, [value, g])
show("head", fill(SimCLRProjectionHead(8, 8, 4))(a))
show("prediction", fill(BYOLPredictionHead(8, 8, 4))(a))
show("dino", DINOLoss(output_dim=8)([a, b], [a, b, a], epoch=1))
