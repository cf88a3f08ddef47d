"""Steps of some of its optimizers and schedules."""

import torch
from made import data, fill, show
from pytorch_optimizer import get_supported_optimizers, load_optimizer

for name in ("adamp", "adan", "lamb", "radam", "sophiah", "lion", "came", "ranger21", "shampoo", "adafactor"):
    model, x, y = fill(torch.nn.Linear(4, 1)), data(16, 4), data(16, 1, seed=1)
    if name == "sophiah":
        continue  # it draws its estimate of the Hessian
    options = {"num_iterations": 10} if name == "ranger21" else {}
    optimizer = load_optimizer(name)(model.parameters(), lr=1e-2, **options)
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    show(name, loss)
show("known", len(get_supported_optimizers()) > 50)
