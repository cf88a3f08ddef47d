"""Spiking neurons, trained through surrogate gradients."""

import snntorch as snn
import torch
from made import data, fill, show, uniform
from snntorch import functional as SF
from snntorch import spikegen, surrogate

network = fill(torch.nn.Linear(4, 3))
neuron, second = snn.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid()), snn.Synaptic(alpha=0.8, beta=0.7)
state, (current, potential), spikes = neuron.init_leaky(), second.init_synaptic(), []
for k in range(6):
    spike, state = neuron(2 * network(data(5, 4, seed=k)), state)
    out, current, potential = second(spike, current, potential)
    spikes.append(out)
spikes = torch.stack(spikes)
show("spikes", spikes)
show("state", state)
loss = SF.ce_rate_loss()(spikes, torch.tensor([0, 1, 2, 1, 0]))
loss.backward()
show("loss", loss)
show("gradient", network.weight.grad)
show("latency", spikegen.latency(uniform(5), num_steps=4, normalize=True, linear=True))
