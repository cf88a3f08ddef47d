"""A training loop with gradient accumulation."""

import torch
from accelerate import Accelerator
from made import data, fill, show

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = fill(torch.nn.Linear(4, 1))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(data(16, 4), data(16, 1, seed=1)), batch_size=4
)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    show("loss", accelerator.gather(loss))
show("weight", accelerator.unwrap_model(model).weight)
