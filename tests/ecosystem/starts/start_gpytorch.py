"""A Gaussian process whose hyperparameters are trained."""

import gpytorch
import torch
from made import show, uniform


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


x = uniform(20)
y = torch.sin(6 * x)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for _ in range(5):
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
    show("loss", loss)
model.eval(), likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    predicted = likelihood(model(torch.linspace(0, 1, 9)))
    show("mean", predicted.mean)
    show("bounds", list(predicted.confidence_region()))
