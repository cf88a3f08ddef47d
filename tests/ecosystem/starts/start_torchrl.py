"""Losses and estimators of reinforcement learning."""

import os

import torch

os.environ["RL_LOGGING_LEVEL"] = "ERROR"  # its messages contain the time
from made import data, fill, show
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.modules import MLP, ValueOperator
from torchrl.objectives.value.functional import generalized_advantage_estimate

values = [data(2, 5, 1, seed=k) for k in range(3)]
done = torch.zeros(2, 5, 1, dtype=torch.bool)
show("advantage", list(generalized_advantage_estimate(0.9, 0.95, *values, done)))
network = fill(MLP(in_features=4, out_features=3, num_cells=[8]))
show("network", network(data(2, 4)))
buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4)
buffer.extend(TensorDict({"x": data(10, 2)}, batch_size=[10]))
show("sampled", list(buffer.sample()["x"].shape))
show(
    "value",
    ValueOperator(fill(MLP(in_features=4, out_features=1, num_cells=[8])))(
        TensorDict({"observation": data(2, 4)}, [2])
    )["state_value"],
)
