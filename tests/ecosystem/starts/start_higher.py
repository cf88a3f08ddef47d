"""A gradient through steps of an optimizer."""

import higher
import torch
from made import data, fill, show

model, x, y = fill(torch.nn.Linear(4, 1)), data(8, 4), data(8, 1, seed=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (inner, stepper):
    for _ in range(3):
        loss = ((inner(x) - y) ** 2).mean()
        stepper.step(loss)
        show("inner", loss)
    outer = ((inner(data(8, 4, seed=2)) - y) ** 2).mean()
    outer.backward()
show("outer", outer)
show("gradient", model.weight.grad)
