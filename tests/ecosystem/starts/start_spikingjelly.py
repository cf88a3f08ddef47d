"""Layers of spiking neurons over several steps."""

import torch
from made import data, fill, show
from spikingjelly.activation_based import functional, layer, neuron, surrogate

network = fill(
    torch.nn.Sequential(
        layer.Conv2d(1, 4, 3, padding=1, bias=False),
        layer.BatchNorm2d(4),
        neuron.IFNode(surrogate_function=surrogate.ATan()),
        layer.Flatten(),
        layer.Linear(64, 3),
        neuron.LIFNode(tau=2.0),
    )  # fmt: skip
)
functional.set_step_mode(network, "m")
spikes = network(2 * data(4, 2, 1, 4, 4))
show("spikes", spikes)
loss = torch.nn.functional.cross_entropy(spikes.mean(0), torch.tensor([0, 2]))
loss.backward()
show("loss", loss)
show("gradient", network[0].weight.grad)
functional.reset_net(network)
show("again", network(2 * data(4, 2, 1, 4, 4)))
