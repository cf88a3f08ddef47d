"""The graph of a loss, as text."""

import torch
from made import data, fill, show
from torchviz import make_dot

model = fill(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)))
graph = make_dot(model(data(2, 4)).sum(), params=dict(model.named_parameters()))
text = graph.source
show("parameters", [name for name, _ in model.named_parameters() if name in text])
show("tanh", "TanhBackward0" in text)
show("sum", "SumBackward0" in text)
show("accumulated", text.count("AccumulateGrad"))
