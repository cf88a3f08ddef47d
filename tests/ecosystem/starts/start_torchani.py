"""Features of atoms' surroundings, and an energy with forces."""

import torch
from made import data, fill, show
from torchani.aev import AEVComputer

computer = (
    AEVComputer.like_2x(num_species=2)
    if hasattr(AEVComputer, "like_2x")
    else AEVComputer.like_1x(num_species=2)
)
species = torch.tensor([[0, 0, 1, 0]])
coordinates = (0.8 * data(1, 4, 3)).requires_grad_()
features = computer(species, coordinates)
features = features if isinstance(features, torch.Tensor) else features.aevs
show("features", features)
network = fill(
    torch.nn.Sequential(torch.nn.Linear(features.shape[-1], 8), torch.nn.CELU(0.1), torch.nn.Linear(8, 1))
)
energy = network(features).sum()
energy.backward()
show("energy", energy)
show("forces", -coordinates.grad)
