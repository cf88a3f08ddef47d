"""Layers with distributions of weights, and their divergence."""

import torch
import torchbnn as bnn
from made import data, fill, show

model = torch.nn.Sequential(bnn.BayesLinear(0, 0.1, 4, 5), torch.nn.ReLU(), bnn.BayesLinear(0, 0.1, 5, 3))
fill(model)
bnn.utils.freeze(model)
loss = bnn.BKLLoss(reduction="mean")(model)
loss.backward()
show("divergence", loss)
show("gradient", model[0].weight_mu.grad)
show("shape", list(model(data(2, 4)).shape))
