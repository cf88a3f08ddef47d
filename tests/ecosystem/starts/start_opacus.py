"""Training with differential privacy: clipped gradients of examples."""

import torch
from made import data, fill, show
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.validators import ModuleValidator

model = GradSampleModule(
    fill(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1)))
)
(model(data(6, 4)) ** 2).mean().backward()
show("gradients", [p.grad_sample for p in model.parameters()])
model, loader = (
    fill(torch.nn.Linear(4, 1)),
    torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(data(16, 4), data(16, 1, seed=1)), batch_size=16
    ),
)
model, optimizer, loader = PrivacyEngine().make_private(
    module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader, noise_multiplier=0.0,
    max_grad_norm=0.5, poisson_sampling=False,
)  # fmt: skip
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        show("loss", loss)
accountant = RDPAccountant()
for _ in range(100):
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
show("epsilon", float(accountant.get_epsilon(delta=1e-5)))
show("invalid", len(ModuleValidator.validate(torch.nn.BatchNorm1d(3))))
