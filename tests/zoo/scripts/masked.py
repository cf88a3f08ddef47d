"""Masked tensors as their tutorials show them: what is specified, reductions, gradients where nan would spread, Adagrad."""

import warnings

import numpy as np
import torch
from torch.masked import as_masked_tensor, masked_tensor

warnings.filterwarnings("ignore")
torch.set_printoptions(precision=4, sci_mode=False)

data = torch.arange(24).reshape(2, 3, 4)
mask = data % 2 == 0
mt = masked_tensor(data.float(), mask)
print(mt)
print(mt.sum(0), mt.mean(1), mt.prod(-1), mt.amax(2), mt.amin())
print(
    "mean",
    torch.mean(mt),
    "where all are masked:",
    masked_tensor(torch.ones(2), torch.zeros(2, dtype=torch.bool)).sum(),
)
print(mt.get_data().shape, mt.get_mask().sum(), mt.to_tensor(-1.0)[0])
print(mt[0], mt[:, 1:, ::2].shape)

npm, mtm = np.ma.masked_array(np.arange(6.0), mask=[1, 0, 0, 1, 0, 0]), None
mtm = masked_tensor(torch.arange(6.0), ~torch.tensor([1, 0, 0, 1, 0, 0]).bool())
print(npm.sum(), mtm.sum(), npm.mean(), mtm.mean())
try:
    mtm + masked_tensor(torch.arange(6.0), torch.ones(6).bool())
except ValueError as e:
    print("ValueError", str(e)[:60])
print(mtm + mtm, mtm * 2, torch.sqrt(mtm))

# gradients: 0 * inf, safe softmax, nansum
x = torch.tensor([-10.0, -5, 0, 5, 10, 50, 60, 70, 80, 90, 100], requires_grad=True)
y = torch.where(x < 0, torch.exp(x), torch.ones_like(x))
y.sum().backward()
print(x.grad)
x = torch.tensor([-10.0, -5, 0, 5, 10, 50, 60, 70, 80, 90, 100], requires_grad=True)
m = x < 0
mx, my = masked_tensor(x, m, requires_grad=True), masked_tensor(torch.ones_like(x), ~m, requires_grad=True)
out = torch.where(m, torch.exp(mx), my)
out.sum().backward()
print(mx.grad)
a = torch.tensor([1.0, 2.0, 3.0, float("nan")])
print(as_masked_tensor(a, ~torch.isnan(a)).mean(), torch.nanmean(a))
rows = masked_tensor(
    torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), torch.tensor([[True, False, True], [False, True, True]])
)
print(rows.softmax(1), rows.argmax(1))

# Adagrad of a sparse gradient, by masks
eps, clr = 1e-10, 0.1
param, state_sum = torch.arange(8.0).reshape(2, 4), torch.full((2, 4), 0.5)
grad = torch.tensor([[0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 2.0, 0.0]])
dense = param.clone()
ss = state_sum.clone()
g = masked_tensor(grad, grad != 0)
state = masked_tensor(ss, grad != 0)
state = state + g.pow(2)
std = torch.sqrt(state) + eps
update = -clr * g / std
new = torch.where(grad != 0, (masked_tensor(dense, grad != 0) + update).get_data(), dense)
print(new)
p = torch.nn.Parameter(param.clone())
opt = torch.optim.Adagrad([p], lr=clr, initial_accumulator_value=0.5, eps=eps)
p.grad = grad.clone()
opt.step()
print(p.data, torch.allclose(p.data, new))
