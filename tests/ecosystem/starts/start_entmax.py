"""Sparse alternatives of softmax, and their gradients."""

import torch
from entmax import Entmax15, entmax15, entmax15_loss, entmax_bisect, sparsemax
from made import data, show, whole

x = data(4, 7).requires_grad_()
for f in (sparsemax, entmax15, lambda v, dim: entmax_bisect(v, alpha=1.3, dim=dim)):
    y = f(x, dim=-1)
    (g,) = torch.autograd.grad((y * data(4, 7, seed=1)).sum(), x)
    show("probabilities", y)
    show("gradient", g)
show("loss", entmax15_loss(x, whole(4, below=7)))
show("layer", Entmax15(dim=0)(x))
