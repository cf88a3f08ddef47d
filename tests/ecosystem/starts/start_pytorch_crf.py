"""A conditional random field."""

import torch
from made import data, show, whole
from torchcrf import CRF

model = CRF(4, batch_first=True)
with torch.no_grad():
    for k, p in enumerate(model.parameters()):
        p.copy_(0.3 * data(*p.shape, seed=k))
emissions, tags = data(3, 6, 4, seed=9).requires_grad_(), whole(3, 6, below=4)
mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 5 + [0]], dtype=torch.bool)
loss = -model(emissions, tags, mask=mask)
loss.backward()
show("loss", loss)
show("gradient", emissions.grad)
show("decoded", model.decode(emissions, mask=mask))
