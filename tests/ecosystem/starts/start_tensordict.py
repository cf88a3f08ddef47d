"""Dictionaries of tensors with a batch."""

import torch
from made import data, fill, show
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictSequential

d = TensorDict({"a": data(4, 3), "b": {"c": data(4, 2, seed=1)}}, batch_size=[4])
show("part", d[1:3]["b", "c"])
show("stacked", torch.stack([d, d + 1])["a"])
show("shape", list(d.reshape(2, 2).unsqueeze(0)["a"].shape))
show("keys", sorted(map(str, d.keys(include_nested=True, leaves_only=True))))
show("flat", d.flatten_keys(".")["b.c"])
module = TensorDictSequential(
    TensorDictModule(fill(torch.nn.Linear(3, 5)), ["a"], ["h"]),
    TensorDictModule(fill(torch.nn.Linear(5, 1)), ["h"], ["out"]),
)
show("module", module(d)["out"])
weights = TensorDict.from_module(module)
with (weights * 2).to_module(module):
    show("doubled", module(d)["out"])


@tensorclass
class Pair:
    x: torch.Tensor
    y: torch.Tensor


show("class", Pair(data(3), data(3, seed=1), batch_size=[3])[1:].y)
