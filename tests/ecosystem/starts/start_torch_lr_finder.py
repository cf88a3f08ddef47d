"""A test of learning rates."""

import torch
from made import data, fill, show
from torch_lr_finder import LRFinder

model = fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data(32, 4), data(32, 1, seed=1)), batch_size=32
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
finder = LRFinder(model, optimizer, torch.nn.MSELoss(), device="cpu")
finder.range_test(loader, end_lr=1, num_iter=10)
show("rates", finder.history["lr"])
show("losses", [float(v) for v in finder.history["loss"]])
finder.reset()
show("reset", model[0].weight)
