"""Variances and a diagonal of the Gauss-Newton matrix beside gradients."""

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad, BatchL2Grad, DiagGGNExact, Variance
from made import data, fill, show, whole

model = extend(fill(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Sigmoid(), torch.nn.Linear(5, 3))))
lossfunc = extend(torch.nn.CrossEntropyLoss())
loss = lossfunc(model(data(6, 4)), whole(6, below=3))
with backpack(BatchGrad(), Variance(), BatchL2Grad(), DiagGGNExact()):
    loss.backward()
for name, p in model.named_parameters():
    show(name, [p.grad, p.grad_batch, p.variance, p.batch_l2, p.diag_ggn_exact])
