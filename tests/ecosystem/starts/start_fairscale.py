"""Checkpointed activations and a sharded optimizer of one process."""

import os
import tempfile

import torch
from fairscale.nn import FlattenParamsWrapper, checkpoint_wrapper
from fairscale.optim import OSS
from made import data, fill, show

os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
model = torch.nn.Sequential(
    checkpoint_wrapper(fill(torch.nn.Linear(4, 5))), torch.nn.ReLU(), fill(torch.nn.Linear(5, 1))
)
optimizer = OSS(model.parameters(), optim=torch.optim.SGD, lr=0.1, momentum=0.9)
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(data(8, 4)) ** 2).mean()
    loss.backward()
    optimizer.step()
    show("loss", loss)
flat = FlattenParamsWrapper(fill(torch.nn.Linear(3, 2)))
show("flat", [flat.flat_param, flat(data(2, 3))])
torch.distributed.destroy_process_group()
