"""Products with the Hessian and the Gauss-Newton matrix."""

import torch
from curvlinops import GGNLinearOperator, HessianLinearOperator
from made import data, fill, show, whole

model = fill(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)))
batches = [(data(6, 4), whole(6, below=3)), (data(3, 4, seed=2), whole(3, below=3, seed=2))]
parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
for kind in (HessianLinearOperator, GGNLinearOperator):
    try:
        operator = kind(model, torch.nn.CrossEntropyLoss(), list(parameters.values()), batches)
    except Exception:
        operator = kind(model, torch.nn.CrossEntropyLoss(), parameters, batches)
    v = data(operator.shape[1], seed=3)
    show(kind.__name__, operator @ v)
